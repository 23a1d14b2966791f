"""One GPU read through its NVML handle. NVML thread only."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.gpu import process_lists
from gpusupervisor.gpu.calls import ask
from gpusupervisor.gpu.errors import (
    FUNCTION_NOT_FOUND,
    INSUFFICIENT_SIZE,
    NOT_FOUND,
    DriverError,
    plain,
)
from gpusupervisor.gpu.memory import MemoryReader
from gpusupervisor.gpu.plausibility import PREFIX, problem_of_driver, problem_of_list
from gpusupervisor.gpu.process_lists import ListedProcess, ProcessList
from gpusupervisor.gpu.sample import (
    GpuIdentity,
    GpuMemory,
    GpuProcess,
    GpuSample,
    GpuSensors,
    ProcessKind,
)
from gpusupervisor.gpu.sensors import SensorReader

NO_SAMPLES = frozenset({0, NOT_FOUND})
"""How pynvml says that nothing ran: NVML's NOT_FOUND, or success of the size query raised as an error."""
LISTS: tuple[tuple[ProcessKind, str], ...] = (
    ("compute", "nvmlDeviceGetComputeRunningProcesses"),
    ("graphics", "nvmlDeviceGetGraphicsRunningProcesses"),
    ("mps", "nvmlDeviceGetMPSComputeRunningProcesses"),
)
LIST_ATTEMPTS = 4
UTILIZATION_WINDOW = 1 * MICROSECONDS
MIG_PROBLEM = PREFIX + "MIG is enabled, and the processes of its instances are not told apart"


@dataclass(frozen=True, slots=True)
class DriverFacts:
    """What the reading of every GPU depends on, constant while NVML is open."""

    version: str
    pid_max: int


def identify(handle: object) -> GpuIdentity:
    """Which GPU a handle is; raises DriverError when it does not tell its UUID."""
    uuid = plain(ask("nvmlDeviceGetUUID", handle))
    name, pci = "NVIDIA GPU", ""
    try:
        name = plain(ask("nvmlDeviceGetName", handle)) or name
        pci = sysfs_bus_id(ask("nvmlDeviceGetPciInfo", handle).busId)
    except DriverError as error:
        if error.is_fatal:
            raise
    return GpuIdentity(uuid, name, pci)


def sysfs_bus_id(bus_id: bytes | str) -> str:
    """NVML's "00000000:01:00.0" as sysfs writes it, "0000:01:00.0"; empty when it is neither."""
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.strip().lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}"
    except ValueError:
        return ""


class Device:
    """A GPU of this initialisation of NVML, and what was found out about its driver's abilities."""

    def __init__(
        self, identity: GpuIdentity, handle: object, facts: DriverFacts, clock: Clock, memory: MemoryReader
    ) -> None:
        """memory: of this card, of every initialisation."""
        self.identity = identity
        self._handle = handle
        self._facts = facts
        self._clock = clock
        self._memory = memory
        self._list_functions = {function: function for _, function in LISTS}
        self._has_mig: bool | None = None
        self._has_utilization: bool | None = None
        """Whether the driver can tell; None while it has not answered. What it could once is not given up."""
        self._last: ProcessList | None = None
        self._sensors = SensorReader(handle)

    def sample(self, *, fresh_processes: bool, utilization: bool, sensors: bool) -> GpuSample:
        """Read it; raises DriverError when the memory cannot be read or the GPU is gone."""
        sampled_at = self._clock.now()
        memory = self._memory.read(self._handle)
        listed = self._processes(memory, sampled_at, fresh=fresh_processes)
        processes = listed.processes
        if utilization and processes:
            processes = process_lists.with_utilization(processes, self._utilization(sampled_at))
        if memory.source == "unified":
            memory = _count_processes_only(memory, processes)
        return GpuSample(
            self.identity,
            "ok",
            sampled_at,
            memory,
            processes,
            attribution_problem=listed.problem,
            sensors=self._sensors.read() if sensors else GpuSensors(),
        )

    def forget_processes(self) -> None:
        """The last process list no longer stands (the GPU slept, or failed)."""
        self._last = None

    def _processes(self, memory: GpuMemory, now: int, *, fresh: bool) -> ProcessList:
        occupied = memory.total - memory.free
        if self._last is not None and not process_lists.must_read(self._last, occupied=occupied, now=now, fresh=fresh):
            return self._last
        self._last = None  # should reading fail, the old list does not stand in for the new one
        try:
            processes, problem = self._read_processes(memory)
        except DriverError as error:
            if error.is_fatal:
                raise
            return ProcessList((), self._clock.now(), occupied, f"{PREFIX}{error}")
        self._last = ProcessList(processes, self._clock.now(), occupied, problem)
        return self._last

    def _read_processes(self, memory: GpuMemory) -> tuple[tuple[GpuProcess, ...], str]:
        """The merged list, or none and why it cannot be believed."""
        problem = problem_of_driver(self._facts.version)
        if not problem and self._mig_enabled():
            problem = MIG_PROBLEM
        if problem:
            return (), problem
        processes = process_lists.merge(self._all_lists())
        problem = problem_of_list(processes, total=memory.total, pid_max=self._facts.pid_max)
        return () if problem else processes, problem

    def _mig_enabled(self) -> bool:
        if self._has_mig is False:
            return False
        try:
            enabled = bool(ask("nvmlDeviceGetMigMode", self._handle)[0])
        except DriverError as error:
            if error.error_class != "unsupported" or self._has_mig:
                raise
            self._has_mig = False
            return False
        self._has_mig = True
        return enabled

    def _all_lists(self) -> list[ListedProcess]:
        found: list[ListedProcess] = []
        refusals: list[DriverError] = []
        for kind, function in LISTS:
            try:
                found.extend((entry.pid, entry.usedGpuMemory, kind) for entry in self._one_list(function))
            except DriverError as error:
                if error.error_class != "unsupported":
                    raise
                refusals.append(error)
        if len(refusals) == len(LISTS):
            raise refusals[0]
        return found

    def _one_list(self, function: str) -> list[Any]:
        """One list, by the older name where the driver lacks the newer, again when it grew between NVML's two calls."""
        for _ in range(LIST_ATTEMPTS):
            try:
                entries: list[Any] = ask(self._list_functions[function], self._handle)
            except DriverError as error:
                failure = error
                if error.code == FUNCTION_NOT_FOUND and self._list_functions[function] == function:
                    self._list_functions[function] = f"{function}_v2"
                elif error.code != INSUFFICIENT_SIZE:
                    raise
            else:
                return entries
        raise failure

    def _utilization(self, now: int) -> Mapping[int, int | None] | None:
        if self._has_utilization is False:
            return None
        since = self._clock.realtime(now) - UTILIZATION_WINDOW
        try:
            samples = ask("nvmlDeviceGetProcessUtilization", self._handle, since)
        except DriverError as error:
            if error.code in NO_SAMPLES:
                return {}
            if error.is_fatal:
                raise
            if error.error_class == "unsupported" and self._has_utilization is None:
                self._has_utilization = False
            return None
        self._has_utilization = True
        return process_lists.latest_utilization((s.pid, s.timeStamp, s.smUtil) for s in samples)


def _count_processes_only(memory: GpuMemory, processes: tuple[GpuProcess, ...]) -> GpuMemory:
    """Of shared memory, what GPU processes hold is used; the rest that is taken is the host's, hence reserved."""
    taken = memory.total - memory.free
    used = min(taken, sum(process.used or 0 for process in processes))
    return replace(memory, used=used, reserved=taken - used)
