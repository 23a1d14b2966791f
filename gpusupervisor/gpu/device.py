"""One GPU read through its NVML handle. NVML thread only."""

import re
from collections.abc import Mapping
from dataclasses import replace

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.gpu import process_lists
from gpusupervisor.gpu.calls import ask
from gpusupervisor.gpu.errors import (
    MIG_HIDES,
    NO_PERMISSION,
    NOT_FOUND,
    DriverError,
    plain,
)
from gpusupervisor.gpu.memory import MemoryReader
from gpusupervisor.gpu.process_lists import ProcessList
from gpusupervisor.gpu.process_reader import DriverFacts, ProcessReader
from gpusupervisor.gpu.sample import (
    GpuIdentity,
    GpuMemory,
    GpuProcess,
    GpuSample,
    GpuSensors,
)
from gpusupervisor.gpu.sensors import SensorReader

NO_SAMPLES = frozenset({0, NOT_FOUND})
"""How pynvml says that nothing ran: NVML's NOT_FOUND, or success of the size query raised as an error."""
ADDRESSING_ATS = 2
"""NVML_DEVICE_ADDRESSING_MODE_ATS."""
COHERENT_NAMES = re.compile(r"\bG[HB]\d00\b")
"""Superchips: the GPU beside a Grace CPU."""
UTILIZATION_WINDOW = 1 * MICROSECONDS


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
    return GpuIdentity(uuid, name, pci, _is_coherent(handle, name))


def _is_coherent(handle: object, name: str) -> bool:
    """Whether the CPU addresses its memory as its own; drivers before 580.65 cannot tell, so its name does."""
    try:
        return int(ask("nvmlDeviceGetAddressingMode", handle)) == ADDRESSING_ATS
    except DriverError as error:
        if error.is_fatal:
            raise
        return COHERENT_NAMES.search(name) is not None


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
        self._clock = clock
        self._memory = memory
        self._reader = ProcessReader(handle, facts)
        self._has_utilization: bool | None = None
        """Whether the driver can tell; None while it has not answered. What it could once is not given up."""
        self._last: ProcessList | None = None
        self._sensors = SensorReader(handle)

    def sample(self, *, fresh_processes: bool, utilization: bool, sensors: bool) -> GpuSample:
        """Read it; raises DriverError when the memory cannot be read or the GPU is gone."""
        sampled_at = self._clock.now()
        memory = self._read_memory()
        listed = self._processes(memory, sampled_at, fresh=fresh_processes)
        processes = listed.processes
        if utilization and processes:
            processes = process_lists.with_utilization(processes, self._utilization(sampled_at))
        if memory.shared:
            memory = _count_processes_only(memory, processes)
        return GpuSample(
            self.identity,
            "ok",
            sampled_at,
            memory,
            processes,
            attribution_problem=listed.doubt.text if listed.doubt else "",
            attribution_gap=listed.gap.text if listed.gap else "",
            attribution_remedy=doubt.remedy if (doubt := listed.doubt or listed.gap) else "",
            sensors=self._sensors.read() if sensors else GpuSensors(),
        )

    def forget_processes(self) -> None:
        """The last process list no longer stands (the GPU slept, or failed)."""
        self._last = None

    def _read_memory(self) -> GpuMemory:
        try:
            return self._memory.read(self._handle)
        except DriverError as error:
            if error.code == NO_PERMISSION and self._reader.mig_enabled():
                raise DriverError(error.function, MIG_HIDES) from None
            raise

    def _processes(self, memory: GpuMemory, now: int, *, fresh: bool) -> ProcessList:
        last, self._last = self._last, None  # should reading fail, the old list does not stand in for the new one
        if last is None or process_lists.must_read(last, memory=memory, now=now, fresh=fresh):
            listed = self._reader.read(memory)
            occupied = process_lists.occupied(memory)
            last = ProcessList(listed.processes, self._clock.now(), occupied, listed.doubt, listed.gap)
            if listed.passing:
                return last
        self._last = last
        return last

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
