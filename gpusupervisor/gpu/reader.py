"""NVML opened, its GPUs found and read. Synchronous, and for the NVML thread alone."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.clock import Clock
from gpusupervisor.gpu.calls import ask, initialise
from gpusupervisor.gpu.device import Device, identify
from gpusupervisor.gpu.driver_access import files
from gpusupervisor.gpu.driver_status import remedy_of
from gpusupervisor.gpu.errors import DriverError, plain
from gpusupervisor.gpu.memory import MemoryReader
from gpusupervisor.gpu.process_reader import DriverFacts
from gpusupervisor.gpu.sample import GpuSample, GpuState

PID_MAX = Path("/proc/sys/kernel/pid_max")
LARGEST_PID_MAX = 4 * 1024 * 1024
"""PID_MAX_LIMIT of 64-bit kernels."""


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What one pass over the GPUs reads."""

    fresh_processes: bool = False
    """The process lists even when the last ones still stand."""
    utilization: bool = False
    """Per-process utilisation too."""
    sensors: bool = False
    """Power, temperature and utilisation of the whole GPU too."""
    present: tuple[str, ...] = ()
    """PCI bus ids of the GPUs that sysfs shows; may be empty."""
    asleep: frozenset[str] = frozenset()
    """PCI bus ids among them that must not be touched."""
    only: str = ""
    """UUID of the one GPU to read, of those that were found before; empty for all."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One GPU as it was read, or why it could not be."""

    gpu: GpuSample
    error: DriverError | None = None


class NvmlReader:
    """Reads all GPUs, keyed by UUID; one that fails does not hide the others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._facts = DriverFacts("", LARGEST_PID_MAX)
        self._devices: dict[str, Device] = {}
        self._memories: dict[str, MemoryReader] = {}
        """By UUID; they outlive the handles."""
        self._searched = False
        self._looked_up: set[str] = set()
        self.is_open = False
        self.unreachable: tuple[DriverError, ...] = ()
        """Why GPUs that NVML counts have no handle."""

    @property
    def driver_version(self) -> str:
        """E.g. "580.95.05"; empty before the first open."""
        return self._facts.version

    def open(self) -> None:
        """Initialise NVML; raises DriverError."""
        initialise()
        self.is_open = True
        self._facts = DriverFacts(_driver_version(), _pid_max(), files().access().windows)

    def close(self) -> None:
        """Shut NVML down, so that its GPUs can sleep; handles are dropped. Never raises."""
        self._devices = {}
        self._looked_up = set()
        self._searched = False
        self.unreachable = ()
        if self.is_open:
            self.is_open = False
            with contextlib.suppress(DriverError):
                ask("nvmlShutdown")

    def read(self, request: ReadRequest) -> tuple[Reading, ...]:
        """Every GPU that is awake, ordered by PCI bus id. Raises DriverError when NVML as a whole has ended."""
        if not request.only:
            self._find(request)
        readings = []
        for device in list(self._devices.values()):
            if device.identity.pci_bus_id in request.asleep:
                device.forget_processes()
            elif request.only in ("", device.identity.uuid):
                readings.append(self._read_one(device, request))
        return tuple(sorted(readings, key=lambda reading: pci_order(reading.gpu)))

    def library_version(self) -> str:
        """Version of the loaded libnvidia-ml, e.g. "580.95.05"; works without initialisation. Empty when unknown.

        Libraries before 535 tell it only once they are initialised; the name of their file tells it, too.
        """
        try:
            return plain(ask("nvmlSystemGetNVMLVersion"), 32).partition(".")[2]
        except DriverError:
            return files().loaded_library()

    def _read_one(self, device: Device, request: ReadRequest) -> Reading:
        try:
            sample = device.sample(
                fresh_processes=request.fresh_processes, utilization=request.utilization, sensors=request.sensors
            )
        except DriverError as error:
            if error.ends_session:
                raise
            device.forget_processes()
            state: GpuState = "lost" if error.gpu_is_gone else "failing"
            detail, remedy = str(error), remedy_of(error)
            return Reading(GpuSample(device.identity, state, self._clock.now(), detail=detail, remedy=remedy), error)
        return Reading(sample)

    def _find(self, request: ReadRequest) -> None:
        """Handles, once per initialisation. A lookup wakes the GPU, so beside sleeping ones it goes by PCI id."""
        if not self._searched and not request.asleep:
            self._searched = True
            self._looked_up.update(request.present)
            for index in range(ask("nvmlDeviceGetCount")):
                self._add("nvmlDeviceGetHandleByIndex", index)
        for pci in request.present:
            if pci not in request.asleep and pci not in self._looked_up:
                self._looked_up.add(pci)
                self._add("nvmlDeviceGetHandleByPciBusId", pci)

    def _add(self, lookup: str, which: int | str) -> None:
        try:
            handle = ask(lookup, which)
            identity = identify(handle)
        except DriverError as error:
            if error.ends_session:
                raise
            self.unreachable += (error,)
        else:
            memory = self._memories.setdefault(identity.uuid, MemoryReader())
            self._devices.setdefault(identity.uuid, Device(identity, handle, self._facts, self._clock, memory))


def pci_order(gpu: GpuSample) -> tuple[int, str, str]:
    """Sort key: PCI domains have four digits or more."""
    pci = gpu.identity.pci_bus_id
    return (len(pci), pci, gpu.identity.uuid)


def _driver_version() -> str:
    try:
        return plain(ask("nvmlSystemGetDriverVersion"), 32)
    except DriverError as error:
        if error.ends_session:
            raise
        return ""


def _pid_max() -> int:
    try:
        return int(PID_MAX.read_text("ascii"))
    except (OSError, ValueError):
        return LARGEST_PID_MAX
