"""Everything about the profile of one GPU put together: applied, tried, stored, watched for drift.

The process around it calls `start` once, `tick` when `next_due` says so, tells it what happens to the machine
(`freeze`, `thaw`, `trigger`, `xid`), and `close` when it stops. One thing is done at a time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import Busy, GpuUnavailable, InvalidArgument
from gpusupervisor.helper.drift.keeper import Decision, DriftKeeper, Trigger
from gpusupervisor.helper.drift.verdict import Verdict, judge
from gpusupervisor.helper.profile import trial as trials
from gpusupervisor.helper.profile.apply import Applied, apply_profile, capture, restore, set_defaults
from gpusupervisor.helper.profile.card import Access, CardError, Fans, Reading, present, read_settings
from gpusupervisor.helper.profile.items import PERSISTENCE, items, overlay, part
from gpusupervisor.helper.profile.memory import ProfileMemory
from gpusupervisor.helper.profile.record import PROBATION, Record, after_xid, reason_not_to_apply
from gpusupervisor.helper.profile.store import ProfileStore, StoreError
from gpusupervisor.helper.profile.trial import Ended, Trial
from gpusupervisor.helper.profile_state import ProfileEvent, ProfileState, TrialEnded
from gpusupervisor.helper.values import ItemResult, Profile
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.hardware import ProfileDistrusted

RETRY = 10 * MICROSECONDS
"""Between two attempts to do what the driver was not there for."""
MOST_RESTORES = 3
"""Attempts to set the state before a trial again when the card answers but does not take all of it."""


HasLeft = Callable[[], bool]
"""Tells whether whoever set a point of a sweep is gone."""


class ProfileKeeper:
    """Of one GPU. Methods that a caller asks for raise SupervisorErrors only."""

    def __init__(
        self,
        gpu: str,
        access: Access,
        fans: Fans,
        store: ProfileStore,
        clock: Clock,
        boot_id: str,
        emit: Callable[[ProfileEvent], None],
    ) -> None:
        self._gpu = gpu
        self._access = access
        self._fans = fans
        self._memory = ProfileMemory(gpu, store, boot_id)
        self._clock = clock
        self._boot_id = boot_id
        self._emit = emit
        self._turn = asyncio.Lock()
        self._drift = DriftKeeper(clock.now())
        self._trial: Trial | None = None
        self._trial_applied = Applied((), Profile(), Profile())
        self._has_left: HasLeft | None = None
        """Of a point of a sweep."""
        self._owed: Ended | None = None
        self._last_trial: Ended | None = None
        self._verdicts: tuple[Verdict, ...] = ()
        self._persistence: bool | None = None
        self._generation: int | None = None
        self._probation_ends: int | None = None
        self._start_at: int | None = None
        self._retry_at = 0
        self._restores = 0
        self._problems: dict[str, str] = {}

    def state(self) -> ProfileState:
        """How things are."""
        return ProfileState(
            self._memory.record,
            self._trial,
            self._trial_applied.results,
            self._last_trial,
            self._verdicts,
            self._drift.frozen,
            "; ".join(problem for problem in (self._memory.problem, *self._problems.values()) if problem),
        )

    @property
    def held(self) -> str:
        """What keeps the helper running; empty when nothing does."""
        if self._trial is not None:
            return "a profile on trial"
        return "a profile" if self._memory.record is not None and not self._memory.record.distrust else ""

    def next_due(self) -> int | None:
        """When `tick` has something to do, in microseconds of the domain clock; None: not by itself."""
        if self._drift.frozen:
            return None
        if self._trial is not None and self._owed is not None:
            return self._retry_at
        if self._trial is not None:
            return self._clock.now() if self._is_abandoned else self._trial.deadline
        times = (self._start_at, self._probation_ends, self._drift.next_check() if self._memory.record else None)
        return min((time for time in times if time is not None), default=None)

    async def start(self) -> None:
        """Take back a trial that was running, and apply the stored profile unless it is distrusted. Never raises for
        the driver or the disk: the state says what is wrong."""
        async with self._turn:
            try:
                self._trial = await self._memory.load()
            except StoreError as error:
                self._memory.complain(error)
                return
            self._owed = trials.restarted(self._trial, self._boot_id)
            await self._judge_record()
            self._start_at = self._clock.now()
            await self._go_on()

    async def tick(self) -> None:
        """Do what is due. Never raises for the driver or the disk."""
        async with self._turn:
            if not self._drift.frozen:
                await self._go_on()

    async def apply(self, profile: Profile) -> tuple[ItemResult, ...]:
        """Set a profile and keep it; what was accepted or refused, item by item."""
        async with self._changing():
            return await self._apply(profile)

    async def try_(self, profile: Profile, within: int, has_left: HasLeft | None = None) -> tuple[ItemResult, ...]:
        """Set a profile, to be confirmed within so many microseconds, else the state before is set again.

        has_left: makes it a point of a sweep, which cannot be confirmed, and is taken back as soon as this is true.
        """
        async with self._changing():
            now = self._clock.now()
            trials.check_time(within)
            before, refused = await capture(self._access, self._fans, profile, self._memory.known())
            tried = part(profile, set(items(profile)) - {result.item for result in refused})
            begun = Trial(tried, before, now, now + within, self._boot_id)
            await self._memory.begin_trial(begun)
            self._trial, self._has_left = begun, has_left
            try:
                applied = await apply_profile(self._access, self._fans, tried)
            except CardError:
                await self._end_trial(Ended("fault", False, "the GPU could not be asked"))
                raise
            self._trial_applied = replace(applied, results=(*refused, *applied.results))
            if not items(applied.in_force):
                await self._end_trial(Ended("fault", True, "nothing of the profile was taken"))
            return (*refused, *applied.results)

    async def confirm(self) -> None:
        """Keep the profile on trial. Raises InvalidArgument when nothing is on trial any more."""
        async with self._turn:
            self._refuse_while_frozen()
            if self._has_left is not None:
                raise InvalidArgument("A sweep is trying its points, which cannot be confirmed: wait for its end")
            ended = self._owed or trials.confirm(self._trial, self._clock.now())
            if ended.restore or self._trial is None:
                await self._end_trial(ended)
                raise InvalidArgument(f"It is too late to confirm: {ended.reason}")
            applied, confirmed = self._trial_applied, self._trial
            started = self._clock.realtime(confirmed.started)
            await self._memory.keep(self._memory.record_of(confirmed.profile, applied, started))
            self._in_force_since(confirmed.started)
            await self._end_trial(ended)

    async def revert(self) -> tuple[ItemResult, ...]:
        """Set the state before the trial again. Raises InvalidArgument when nothing is on trial."""
        async with self._turn:
            self._refuse_while_frozen()
            results = await self._end_trial(self._owed or trials.revert(self._trial))
            if results is None:
                raise GpuUnavailable(f"{self._problems['trial']}; it is tried again by itself")
            return results

    async def reset(self) -> tuple[ItemResult, ...]:
        """Set everything of the stored profile to the card's default (persistence stays) and forget the profile."""
        async with self._changing():
            if self._memory.record is None:
                return ()
            touched = self._memory.record.in_force
            results = await set_defaults(self._access, self._fans, touched)
            await self._memory.keep(None)
            self._verdicts, self._start_at, self._probation_ends = (), None, None
            self._problems.clear()
            self._forget_drift()
            return results

    async def check_drift(self) -> tuple[Verdict, ...]:
        """Look now; what drifted is repaired as the policy has it. Raises Busy before sleep and during a trial."""
        async with self._changing():
            await self._check()
            if "drift" in self._problems:
                raise GpuUnavailable(self._problems["drift"])
            return self._verdicts

    def trigger(self, trigger: Trigger) -> None:
        """Something happened after which the driver may have forgotten settings."""
        self._drift.trigger(trigger, self._clock.now())

    async def freeze(self) -> None:
        """The machine goes to sleep: when this returns nothing is being read or set, until `thaw`."""
        self._drift.freeze()
        async with self._turn:
            pass

    def thaw(self) -> None:
        """The machine is awake: what was set is looked at when the driver has settled."""
        self._drift.thaw(self._clock.now())

    async def xid(self, code: int) -> None:
        """The GPU reported an error: a trial is taken back, a profile that was just applied is distrusted."""
        async with self._turn:
            ended = trials.fault(self._trial, f"the GPU reported Xid {code}")
            if ended is not None and self._drift.frozen:
                self._owed = ended
            elif ended is not None:
                await self._end_trial(ended)
            if self._memory.record is not None:
                marked = after_xid(self._memory.record, code)
                if marked != self._memory.record:
                    write(ProfileDistrusted(self._gpu, marked.distrust))
                    await self._memory.keep_quietly(marked)
            self._drift.trigger("xid", self._clock.now())

    async def close(self) -> None:
        """Stop in an orderly way: a trial is taken back, the profile stays as it is set."""
        async with self._turn:
            if self._trial is not None:
                await self._end_trial(Ended("restarted", True, "the helper was stopped during the trial"))
            if self._memory.record is not None:
                await self._memory.keep_quietly(replace(self._memory.record, stopped=True))

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """A change that a caller asked for: not beside another, not in a trial, not before sleep."""
        async with self._turn:
            self._refuse_while_frozen()
            if self._trial is not None:
                raise Busy("A profile is on trial: confirm it or revert it first")
            try:
                yield
            except CardError as error:
                raise GpuUnavailable(f"The GPU cannot be asked, so its profile is as it was: {error}") from error

    def _refuse_while_frozen(self) -> None:
        if self._drift.frozen:
            raise Busy("The machine is going to sleep: nothing is read or set until it is awake again")

    @property
    def _is_abandoned(self) -> bool:
        return self._has_left is not None and self._has_left()

    async def _judge_record(self) -> None:
        """A profile that may have brought the machine down is distrusted, also when the disk does not take that."""
        record = self._memory.record
        reason = reason_not_to_apply(record, self._boot_id) if record is not None else ""
        if record is None or not reason:
            return
        write(ProfileDistrusted(self._gpu, reason))
        if not record.distrust:
            await self._memory.keep_quietly(replace(record, distrust=reason))

    async def _go_on(self) -> None:
        now = self._clock.now()
        if self._trial is not None:
            ended = self._owed or (trials.abandoned() if self._is_abandoned else trials.tick(self._trial, now))
            if ended is not None and now >= self._retry_at:
                await self._end_trial(ended)
            if self._trial is not None:
                return
        if self._start_at is not None and now >= self._start_at:
            await self._apply_stored(now)
        if self._probation_ends is not None and now >= self._probation_ends and self._memory.record is not None:
            self._probation_ends = None
            await self._memory.keep_quietly(replace(self._memory.record, phase="settled"))
        if self._drift.due(now):
            await self._check()

    async def _apply_stored(self, now: int) -> None:
        """At start; again later while the driver is not there."""
        record, self._start_at = self._memory.record, None
        if record is None or record.distrust:
            return
        try:
            if record.boot_id != self._boot_id:
                await self._apply(record.requested)
                return
            await apply_profile(self._access, self._fans, Profile(fans=record.requested.fans))
            await self._memory.keep(replace(record, stopped=False))
            self._in_force_since(now)
            self._drift.trigger("driver", now)  # what was set before this start is looked at, not set blindly
        except (*CardError, StoreError) as error:
            self._problems["start"] = f"The stored profile could not be applied yet: {error}"
            self._start_at = now + RETRY

    async def _apply(self, profile: Profile) -> tuple[ItemResult, ...]:
        await present(self._access)  # nothing is marked when the card cannot be asked
        now = self._clock.now()
        known = self._memory.known()
        marked = Record(profile, unreadable=known, boot_id=self._boot_id, applied_at=self._clock.realtime(now))
        before = self._memory.record
        await self._memory.keep(marked)
        try:
            applied = await apply_profile(self._access, self._fans, profile)
        except CardError:  # nothing was set
            await self._memory.keep(before)
            raise
        await self._memory.keep_quietly(self._memory.record_of(profile, applied, marked.applied_at))
        self._in_force_since(now)
        return applied.results

    def _in_force_since(self, applied_at: int) -> None:
        """The profile in memory was applied: on probation unless that is over, and watched."""
        record = self._memory.record
        on_probation = record is not None and record.phase == "probation"
        self._probation_ends = applied_at + PROBATION if on_probation else None
        self._start_at, self._verdicts = None, ()
        self._problems.clear()
        self._forget_drift()

    def _forget_drift(self) -> None:
        for event in self._drift.start_over(self._clock.now()):
            self._emit(event)

    async def _end_trial(self, ended: Ended) -> tuple[ItemResult, ...] | None:
        """Restore what is to be restored and forget the trial; None when it failed: still owed."""
        results: tuple[ItemResult, ...] = ()
        if ended.restore and self._trial is not None:
            problem = ""
            try:
                results = (await restore(self._access, self._fans, self._trial.before)).results
            except CardError as error:
                problem = str(error)
            else:
                self._restores += 1
                if self._restores < MOST_RESTORES:
                    problem = "; ".join(f"{result.item}: {result.detail}" for result in results if not result.ok)
            if problem:
                self._owed, self._retry_at = ended, self._clock.now() + RETRY
                self._problems["trial"] = f"The state before the trial could not be set again yet: {problem}"
                return None
        self._restores = 0
        self._trial, self._has_left, self._owed, self._last_trial = None, None, None, ended
        self._problems.pop("trial", None)
        self._trial_applied = Applied((), Profile(), Profile())
        await self._memory.end_trial_quietly()
        self._emit(TrialEnded(ended, results))
        return results

    async def _check(self) -> None:
        """Read first; set again only what was read as drifted, and what the driver may have forgotten unseen."""
        record, now = self._memory.record, self._clock.now()
        if record is None:
            return
        self._drift.looked(now)
        try:
            capabilities = await present(self._access)
        except CardError as error:
            self._problems["drift"] = f"Drift could not be looked for: {error}"
            return
        reading = await read_settings(self._access, {*items(record.accepted), PERSISTENCE})
        self._notice_resets(reading, now)
        unreadable = part(record.unreadable, items(record.requested))
        verdicts = judge(record.accepted, unreadable, reading, capabilities)
        decision = self._drift.decide(verdicts, now, repair=not record.distrust)
        self._verdicts = decision.verdicts
        self._problems.pop("drift", None)
        for event in decision.events:
            self._emit(event)
        if decision.repair or decision.renew:
            await self._repair(record, decision)

    def _notice_resets(self, reading: Reading, now: int) -> None:
        """The driver started anew, or lost its persistence: both make it forget."""
        generation, persistence = self._access.generation, reading.values.persistence
        if self._generation not in (None, generation):
            self._drift.trigger("driver", now)
        if self._persistence and persistence is False:
            self._drift.trigger("persistence", now)
        self._generation = generation
        self._persistence = self._persistence if persistence is None else persistence

    async def _repair(self, record: Record, decision: Decision) -> None:
        again = part(record.requested, (*decision.repair, *decision.renew))
        try:
            applied = await apply_profile(self._access, self._fans, again)
        except CardError as error:
            self._problems["drift"] = f"Drift could not be repaired: {error}"
            return
        for event in self._drift.repaired([result for result in applied.results if result.item in decision.repair]):
            self._emit(event)
        accepted = overlay(record.accepted, applied.accepted)
        if accepted != record.accepted:
            await self._memory.keep_quietly(replace(record, accepted=accepted))
