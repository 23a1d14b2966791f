"""Everything that the helper controls, GPU by GPU, over one NVML that is open only while it is needed.

Each GPU has tasks of its own, so that one that is slow keeps no other waiting.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.clock import Clock
from gpusupervisor.errors import GpuUnavailable, NoSuchGpu, SupervisorError
from gpusupervisor.gpu.errors import DriverError, plain
from gpusupervisor.gpu.nvml_thread import DriverUnresponsive, NvmlThread
from gpusupervisor.gpu.power import DevicePower, find_devices, read_power
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.helper.control import GpuControl, Moment, Shown, Tell
from gpusupervisor.helper.fans.controller import FanController
from gpusupervisor.helper.fans.marker import boot_id, find_marks
from gpusupervisor.helper.given_away import GivenAway
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.profile.access import NvmlAccess
from gpusupervisor.helper.profile.store import ProfileStore, StoreError, is_uuid
from gpusupervisor.helper.profile_keeper import ProfileKeeper
from gpusupervisor.helper.restore_fans import restore
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.hardware import FansRestored, FansStranded, ProfileNotStored, XidReported

DEADLINE = 5.0
RESTORE_DEADLINE = 10.0
"""Seconds: the bus gives a service that it starts 25."""
UNNAMED = "NVIDIA GPU"

Spawn = Callable[[Coroutine[object, object, None]], asyncio.Task[None]]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folders:
    """Where things are kept."""

    state: Path
    """Profiles: root's."""
    runtime: Path
    """Marks of what has to be undone; outlives the helper, but not the boot."""
    owner: int = 0
    """Whom the files must belong to; root but in tests."""


class Controls:
    """Of all GPUs. What a caller asks for raises SupervisorErrors only."""

    def __init__(
        self, thread: NvmlThread, clock: Clock, sysfs_root: Path, folders: Folders, tell: Tell, pause: float
    ) -> None:
        """pause: seconds between two ticks."""
        self._thread = thread
        self._clock = clock
        self._sysfs = sysfs_root
        self._folders = folders
        self._tell = tell
        self._pause = pause
        self._boot = ""
        self._store = ProfileStore(folders.state, folders.owner)
        self._stored: frozenset[str] = frozenset()
        self._stranded: Mapping[str, frozenset[int]] = {}
        """By UUID: fans that an earlier helper took over and that could not be given back so far."""
        self._session = HardwareSession(which=self._touchable)
        self._gpus: dict[str, GpuControl] = {}
        self._power: tuple[DevicePower, ...] = ()
        self._users = 0
        self._spawn: Spawn | None = None
        self.given_away = GivenAway(folders.runtime)

    @property
    def held(self) -> list[str]:
        """What is controlled, for a person; it keeps the helper running."""
        return [f"{held} of {gpu.identity.name}" for gpu in self._gpus.values() if (held := gpu.held)]

    async def prepare(self) -> None:
        """Undo what an earlier helper left, and find what waits to be applied. Never raises."""
        try:
            lines, left = await self._thread.call(restore, self._folders.runtime, deadline=RESTORE_DEADLINE)
        except DriverUnresponsive as problem:
            lines, left = [f"Fans could not be given back to the driver: {problem}"], True
        for line in lines:
            write(FansStranded(line) if left else FansRestored(line))
        marks = await asyncio.to_thread(find_marks, self._folders.runtime)
        self._stranded = {mark.uuid: frozenset(mark.fans) for mark in marks}
        self._boot = await asyncio.to_thread(boot_id)
        await asyncio.to_thread(self.given_away.load)
        try:
            self._stored = await asyncio.to_thread(self._store.gpus)
        except StoreError as error:
            write(ProfileNotStored("", str(error)))
        await self._look_at_power()
        for uuid in sorted(self._stored | self.given_away.gpus.keys() | set(filter(is_uuid, self._stranded))):
            self._make(self.given_away.gpus.get(uuid, GpuIdentity(uuid, UNNAMED, "")))

    async def run(self, spawn: Spawn) -> None:
        """Control, until cancelled. spawn: starts a task of the same life."""
        self._spawn = spawn
        for gpu in self._gpus.values():
            self._start(gpu)
        while True:
            if self._gpus:
                await self._look_at_power()
            if self._session.is_open:
                await self._take_in_xids()
                await self._close_unless_needed()
            await asyncio.sleep(self._pause)

    async def look(self) -> tuple[Shown, ...]:
        """All GPUs now. Raises GpuUnavailable when the driver cannot list them."""
        async with self._using():
            await self._find()
            gpus = list(self._gpus.values())
            await asyncio.gather(*(gpu.look() for gpu in gpus))
            return tuple(gpu.shown() for gpu in gpus)

    @asynccontextmanager
    async def gpu(self, uuid: str) -> AsyncIterator[GpuControl]:
        """One GPU, to do something with it while NVML stays open. Raises NoSuchGpu, GpuUnavailable."""
        async with self._using():
            if uuid not in self._gpus or not self._gpus[uuid].identity.pci_bus_id:
                await self._find()
            found = self._gpus.get(uuid)
            if found is None:
                raise NoSuchGpu(f"There is no GPU {plain(uuid)!r}: gpusupervisorctl status lists those that there are")
            yield found

    async def watch(self, uuid: str) -> Moment:
        """One GPU now, with the Xids that came until now. Raises NoSuchGpu, GpuUnavailable."""
        async with self.gpu(uuid) as gpu:
            if self._session.is_open:
                await self._take_in_xids()
            return await gpu.watch()

    async def detach(self, uuid: str) -> None:
        """Let go of a GPU and remember that, until it is attached or the machine starts again."""
        async with self.gpu(uuid) as gpu:
            await gpu.give_away()
            try:
                await asyncio.to_thread(self.given_away.give, gpu.identity)
            except OSError as error:
                gpu.take_back()
                raise SupervisorError(f"The GPU was not detached: {self._unrecorded(error)}") from error
        await self._close()  # its handle too; whoever needs the others opens it without that one

    async def attach(self, uuid: str) -> None:
        """Take a GPU back."""
        gpu = self._gpus.get(uuid)
        if gpu is None:
            raise NoSuchGpu(f"GPU {plain(uuid)!r} is not detached")
        try:
            await asyncio.to_thread(self.given_away.take_back, uuid)
        except OSError as error:
            raise SupervisorError(f"The GPU was not taken back: {self._unrecorded(error)}") from error
        gpu.take_back()

    def _unrecorded(self, error: OSError) -> str:
        return f"that cannot be recorded in {self._folders.runtime} ({error.strerror})"

    async def before_sleep(self) -> None:
        """The machine goes to sleep when this returns."""
        await asyncio.gather(*(gpu.machine_goes_to_sleep() for gpu in self._gpus.values()))

    async def after_sleep(self) -> None:
        """The machine woke up."""
        for gpu in self._gpus.values():
            gpu.machine_woke_up()

    async def close(self) -> None:
        """Let go of everything, leaving the hardware safe."""
        await asyncio.gather(*(gpu.close() for gpu in self._gpus.values()))
        await self._close()

    def _make(self, identity: GpuIdentity) -> None:
        uuid = identity.uuid
        access = NvmlAccess(self._thread, self._session, uuid)
        left = self._stranded.get(uuid, frozenset())
        fans = FanController(uuid, self._session, self._thread, self._folders.runtime, left=left)
        keeper = ProfileKeeper(
            uuid, access, fans, self._store, self._clock, self._boot, lambda event: self._tell(uuid, event)
        )
        gpu = GpuControl(
            identity,
            access,
            keeper,
            fans,
            self._clock,
            self._tell,
            stored=uuid in self._stored,
            given_away=uuid in self.given_away.gpus,
        )
        self._gpus[uuid] = gpu
        self._note_dormant(gpu)
        if self._spawn is not None:
            self._start(gpu)

    def _start(self, gpu: GpuControl) -> None:
        assert self._spawn is not None
        self._spawn(gpu.control_fans_for_ever(self._pause))
        self._spawn(gpu.keep_profile_for_ever(self._pause))

    async def _find(self) -> None:
        """All GPUs that may be touched are known, and by their names. Raises GpuUnavailable."""
        await self._look_at_power()
        if self._touchable() == ():
            return
        try:
            identities = await self._thread.call(self._identities, deadline=DEADLINE)
        except (DriverError, DriverUnresponsive) as error:
            raise GpuUnavailable(f"The GPUs cannot be listed: {error}") from error
        for identity in identities:
            if identity.uuid in self._gpus:
                self._gpus[identity.uuid].identity = identity
            elif is_uuid(identity.uuid):
                self._make(identity)

    def _identities(self) -> tuple[GpuIdentity, ...]:
        self._session.reopen_when_others_may_be_touched()
        return self._session.identities()

    def _touchable(self) -> tuple[str, ...] | None:
        """PCI bus ids of the GPUs that neither sleep nor are given away; None for all. Any thread."""
        given = self.given_away.gpus
        away = {identity.pci_bus_id for identity in given.values()}
        left = tuple(device.pci_bus_id for device in self._power if not device.asleep and device.pci_bus_id not in away)
        if given and (not self._power or not left):
            return ()
        return None if len(left) == len(self._power) else left

    async def _look_at_power(self) -> None:
        self._power = await asyncio.to_thread(self._read_power)
        for gpu in self._gpus.values():
            self._note_dormant(gpu)

    def _read_power(self) -> tuple[DevicePower, ...]:
        return tuple(read_power(self._sysfs, pci) for pci in find_devices(self._sysfs))

    def _note_dormant(self, gpu: GpuControl) -> None:
        """A GPU whose place is not known yet may be any of those that sleep."""
        asleep = {device.pci_bus_id for device in self._power if device.asleep}
        pci = gpu.identity.pci_bus_id
        gpu.note_dormant(pci in asleep if pci else bool(asleep) and len(asleep) == len(self._power))

    async def _take_in_xids(self) -> None:
        try:
            xids = await self._thread.call(self._session.xids, deadline=DEADLINE)
        except DriverUnresponsive:
            return  # the fans' ticks say so
        for xid in xids:
            write(XidReported(xid.uuid or "unknown", xid.code))
            for gpu in self._gpus.values():
                if xid.uuid in ("", gpu.identity.uuid):
                    gpu.xid(xid.code)

    @asynccontextmanager
    async def _using(self) -> AsyncIterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            await self._close_unless_needed()

    async def _close_unless_needed(self) -> None:
        """NVML stays open while a GPU is watched, and while something is held, for the last client to leave may make
        the driver forget what is set; but not where a GPU could sleep that only a settled profile is held of."""
        held = [gpu for gpu in self._gpus.values() if gpu.held]
        managed = bool(self._power) and all(device.managed for device in self._power)
        needed = any(gpu.needs_driver for gpu in held) or (bool(held) and not managed)
        needed |= any(gpu.watched for gpu in self._gpus.values())
        if not needed and not self._users:
            await self._close()

    async def _close(self) -> None:
        try:
            await self._thread.call(self._session.close, deadline=DEADLINE)
        except DriverUnresponsive as problem:
            _LOG.warning("NVML cannot be closed: %s", problem)
