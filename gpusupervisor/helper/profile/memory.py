"""The stored profile of one GPU at hand: the same in memory and on disk, written without holding up the event loop."""

import asyncio

from gpusupervisor.helper.profile.apply import Applied
from gpusupervisor.helper.profile.items import items, overlay, part
from gpusupervisor.helper.profile.record import Record
from gpusupervisor.helper.profile.store import ProfileStore, StoreError
from gpusupervisor.helper.profile.trial import Trial
from gpusupervisor.helper.values import Profile
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.hardware import ProfileNotStored


class ProfileMemory:
    """Everything raises StoreError, but what is said to be quiet."""

    def __init__(self, gpu: str, store: ProfileStore, boot_id: str) -> None:
        self._gpu = gpu
        self._store = store
        self._boot_id = boot_id
        self.record: Record | None = None
        self.problem = ""
        """What the disk did not take or give; empty when all is stored."""

    async def load(self) -> Trial | None:
        """Read the profile, and the trial that was running when it was stored."""
        trial = await asyncio.to_thread(self._store.load_trial, self._gpu)
        self.record = await asyncio.to_thread(self._store.load, self._gpu)
        return trial

    async def keep(self, record: Record | None) -> None:
        """This is the profile; None: there is none any more."""
        if record is None:
            await asyncio.to_thread(self._store.remove, self._gpu)
        else:
            await asyncio.to_thread(self._store.save, self._gpu, record)
        self.record, self.problem = record, ""

    async def keep_quietly(self, record: Record) -> None:
        """This is the profile, even when the disk does not take it."""
        try:
            await self.keep(record)
        except StoreError as error:
            self.record = record
            self.complain(error)

    async def begin_trial(self, trial: Trial) -> None:
        """A trial begins once this returns."""
        await asyncio.to_thread(self._store.save_trial, self._gpu, trial)

    async def end_trial_quietly(self) -> None:
        """The trial is over."""
        try:
            await asyncio.to_thread(self._store.remove_trial, self._gpu)
        except StoreError as error:
            self.complain(error)

    def complain(self, error: StoreError) -> None:
        """Say what the disk did."""
        self.problem = str(error)
        write(ProfileNotStored(self._gpu, str(error)))

    def known(self) -> Profile:
        """What was set in this boot and cannot be read."""
        if self.record is None or self.record.boot_id != self._boot_id:
            return Profile()
        return self.record.unreadable

    def record_of(self, profile: Profile, applied: Applied, applied_at: int) -> Record:
        """A profile that was just applied. applied_at: realtime microseconds."""
        return Record(
            profile,
            applied.accepted,
            self.known_after(applied),
            applied.results,
            self._boot_id,
            applied_at,
            "probation",
        )

    def known_after(self, applied: Applied) -> Profile:
        """The same when a further profile was applied."""
        known = self.known()
        still = set(items(known)) - set(items(applied.accepted))
        return overlay(part(known, still), applied.unreadable)
