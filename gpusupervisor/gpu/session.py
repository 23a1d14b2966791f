"""NVML over time: opened when it may be, read, closed so that GPUs sleep, initialised again after it failed.

Synchronous, and for the NVML thread alone.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.gpu import driver_status
from gpusupervisor.gpu.backoff import Backoff
from gpusupervisor.gpu.driver_access import files
from gpusupervisor.gpu.errors import LIB_RM_VERSION_MISMATCH, DriverError, plain
from gpusupervisor.gpu.power import DevicePower, find_devices, read_power
from gpusupervisor.gpu.reader import NvmlReader, Reading, ReadRequest, pci_order
from gpusupervisor.gpu.sample import DriverStatus, GpuIdentity, GpuSample, GpuState, Sample, told_apart
from gpusupervisor.gpu.sleep_gate import SleepGate

LOOK_FOR_DEVICES = 30 * MICROSECONDS
"""How often sysfs is searched for GPUs that came or went."""
GIVEN_AWAY = "detached, so it is left alone until Attach is called"
MISMATCHES = 2
"""Initialisations in a row at which a driver that has worked must differ from its library."""
PERSISTENT = 3
"""Samples in a row in which a GPU fails, after which NVML is initialised again."""


class DriverSession:
    """What every sample is taken from."""

    def __init__(
        self,
        reader: NvmlReader,
        clock: Clock,
        sysfs_root: Path,
        given_away: Callable[[], Mapping[str, GpuIdentity]] = dict,
    ) -> None:
        """given_away: tells, from the NVML thread, the GPUs that are to be treated as if they slept, by UUID."""
        self._reader = reader
        self._given_away = given_away
        self._given: Mapping[str, GpuIdentity] = {}
        self._clock = clock
        self._root = sysfs_root
        self._gate = SleepGate()
        self._backoff = Backoff()
        self._status = driver_status.STARTING
        self._known: dict[str, GpuIdentity] = {}
        self._present: tuple[str, ...] = ()
        self._search_at = 0
        self._installed = ""
        """Version of the library that a new process would load; empty when unknown."""
        self._vacant = False
        self._failures = 0
        self._has_worked = False
        self._mismatches = 0
        """Initialisations in a row that failed for it."""

    def wake(self) -> Sample:
        """All GPUs now, those that sleep too: being asked wakes them."""
        return self.sample(fresh_processes=True, utilization=False, needed=True, waking=True)

    def sample(
        self, fresh_processes: bool, utilization: bool, needed: bool, sensors: bool = False, waking: bool = False
    ) -> Sample:
        """All GPUs now. Never raises for the driver's errors: they are states."""
        now = self._clock.now()
        self._let_go_of_given()
        power = self._look_at_devices(now, "active" if waking else "")
        asleep = frozenset(device.pci_bus_id for device in power if device.asleep) | self._given_places()
        if self._given and asleep.issuperset(self._present) and self._known.keys() <= self._given.keys():
            return self._leave_alone(now)
        if not self._gate.may_open(now, power, needed=needed, vacant=self._vacant):
            return self._leave_alone(now)
        if self._reader.is_open and self._backoff.due(now):
            self._reader.close()
        try:
            if not self._reader.is_open:
                if self._backoff.waiting(now):
                    return self._unavailable(now, asleep)
                self._reader.open()
            readings = self._reader.read(ReadRequest(fresh_processes, utilization, sensors, self._present, asleep))
        except DriverError as error:
            return self._failed(now, asleep, error)
        return self._succeeded(now, asleep, readings)

    def sample_gpu(self, uuid: str) -> GpuSample:
        """One GPU now, its process list included. Raises NoSuchGpu for a UUID that was never seen."""
        identity = self._known.get(uuid)
        if identity is None:
            raise NoSuchGpu(f"There is no GPU {plain(uuid)!r}: gpusupervisorctl status lists those that there are")
        pci = identity.pci_bus_id
        asleep = uuid in self._given or (bool(pci) and read_power(self._root, pci).asleep)
        if asleep or self._status.state == "asleep":
            return self._unread(identity, "asleep", "")
        if not self._reader.is_open:
            return self._unread(identity, "failing", self._status.detail)
        try:
            readings = self._reader.read(ReadRequest(fresh_processes=True, only=uuid))
        except DriverError as error:
            return self._unread(identity, "failing", str(error), driver_status.remedy_of(error))
        return readings[0].gpu if readings else self._unread(identity, "lost", self._status.detail)

    def close(self) -> None:
        """Shut NVML down."""
        self._reader.close()

    def _look_at_devices(self, now: int, status: str) -> tuple[DevicePower, ...]:
        """status: what to take for the runtime status of all; empty: what sysfs says."""
        if now >= self._search_at:
            self._search_at = now + LOOK_FOR_DEVICES
            self._installed = files().installed_library() if self._reader.is_open else ""
            found = find_devices(self._root)
            if found != self._present:
                self._present = found
                self._reader.close()  # NVML knows only the GPUs of its initialisation
        places = self._given_places()
        power = (read_power(self._root, pci) for pci in self._present)
        if status:
            power = (replace(device, runtime_status=status) for device in power)
        return tuple(
            replace(device, runtime_status="suspended") if device.pci_bus_id in places else device for device in power
        )

    def _let_go_of_given(self) -> None:
        """Handles of what was given away since the last sample are dropped; it stays known."""
        given = self._given_away()
        if given.keys() - self._given.keys():
            self._reader.close()
        self._given = given
        self._known = {**self._known, **given}

    def _given_places(self) -> frozenset[str]:
        return frozenset(identity.pci_bus_id for identity in self._given.values())

    def _leave_alone(self, now: int) -> Sample:
        self._reader.close()
        self._backoff.succeeded()
        self._vacant = False
        self._status = driver_status.ASLEEP
        return self._compose(now, self._unread_all("asleep", ""))

    def _failed(self, now: int, asleep: frozenset[str], error: DriverError) -> Sample:
        doubtful = self._is_doubtful(error)
        self._reader.close()
        self._backoff.failed(now)
        if doubtful:
            self._status = driver_status.failing(str(error), self._reader.driver_version)
        else:
            self._status = driver_status.of_error(
                error, files().access(), library=self._reader.library_version(), module=self._module_version()
            )
        return self._unavailable(now, asleep)

    def _is_doubtful(self, error: DriverError) -> bool:
        """Whether it is a mismatch of versions that may be a glitch, for which nobody should give up this process.

        A driver that has worked must say so at two initialisations in a row.
        """
        if error.code != LIB_RM_VERSION_MISMATCH:
            self._mismatches = 0
        elif not self._reader.is_open:
            self._mismatches += 1
        return error.code == LIB_RM_VERSION_MISMATCH and self._has_worked and self._mismatches < MISMATCHES

    def _unavailable(self, now: int, asleep: frozenset[str]) -> Sample:
        self._vacant = False
        state: GpuState = "lost" if self._status.state in ("missing", "mismatch", "no-gpu") else "failing"
        return self._compose(now, self._unread_all(state, self._status.detail, asleep))

    def _succeeded(self, now: int, asleep: frozenset[str], readings: tuple[Reading, ...]) -> Sample:
        self._has_worked, self._mismatches = True, 0
        errors = [reading.error for reading in readings if reading.error is not None]
        unreachable = self._reader.unreachable
        self._status = self._judge(readings, errors, unreachable, asleep)
        curable = [error for error in errors if error.error_class != "permission"]
        self._failures = self._failures + 1 if curable else 0
        gone = any(error.error_class == "lifecycle" for error in errors)
        gone |= any(error.error_class in ("lifecycle", "transient") for error in unreachable)
        if gone or self._failures >= PERSISTENT or self._status.state == "no-gpu":
            self._backoff.failed(now)
        else:
            self._backoff.succeeded()
        self._remember(readings, asleep, keep_missing=bool(unreachable))
        gpus = tuple(reading.gpu for reading in readings)
        self._vacant = bool(gpus) and all(gpu.is_unused for gpu in gpus) and not unreachable
        seen = {gpu.identity.uuid for gpu in gpus}
        detail, remedy = (str(unreachable[0]), driver_status.remedy_of(unreachable[0])) if unreachable else ("", "")
        rest = [gpu for gpu in self._unread_all("lost", detail, asleep, remedy) if gpu.identity.uuid not in seen]
        return self._compose(now, (*gpus, *rest))

    def _judge(
        self,
        readings: tuple[Reading, ...],
        errors: list[DriverError],
        unreachable: tuple[DriverError, ...],
        asleep: frozenset[str],
    ) -> DriverStatus:
        version = self._reader.driver_version
        if errors and len(errors) == len(readings):
            return driver_status.unreadable(errors[0], version)
        if not readings and unreachable:
            return driver_status.of_error(unreachable[0])
        if not readings and not asleep:
            return driver_status.NO_GPU
        return driver_status.healthy(version, unreachable, self._installed)

    def _remember(self, readings: Iterable[Reading], asleep: frozenset[str], *, keep_missing: bool) -> None:
        """GPUs that were seen before stay known while they sleep, or while NVML has a GPU it cannot open."""
        read = {reading.gpu.identity.uuid: reading.gpu.identity for reading in readings}
        kept = {
            uuid: identity for uuid, identity in self._known.items() if keep_missing or identity.pci_bus_id in asleep
        }
        self._known = {**kept, **read}

    def _unread_all(
        self, state: GpuState, detail: str, asleep: frozenset[str] = frozenset(), remedy: str = ""
    ) -> tuple[GpuSample, ...]:
        return tuple(
            self._unread(identity, "asleep", "")
            if identity.pci_bus_id in asleep
            else self._unread(identity, state, detail, remedy)
            for identity in self._known.values()
        )

    def _unread(self, identity: GpuIdentity, state: GpuState, detail: str, remedy: str = "") -> GpuSample:
        detail = GIVEN_AWAY if identity.uuid in self._given else detail
        return GpuSample(identity, state, self._clock.now(), detail=detail, remedy=remedy or self._remedy(state))

    def _remedy(self, state: GpuState) -> str:
        return self._status.remedy if state in ("lost", "failing") else ""

    def _compose(self, now: int, gpus: Iterable[GpuSample]) -> Sample:
        return Sample(now, self._status, told_apart(sorted(gpus, key=pci_order)))

    def _module_version(self) -> str:
        """Version of the loaded kernel module: /sys/module/nvidia/version beside /sys/bus/pci/devices."""
        try:
            text = (self._root.parents[2] / "module/nvidia/version").read_text("ascii", "replace")
        except (OSError, IndexError):
            return ""
        return plain(text, 32)
