"""The memory of one GPU, from the best source that its driver has for it. NVML thread only."""

from gpusupervisor.gpu.calls import ask
from gpusupervisor.gpu.driver_access import files
from gpusupervisor.gpu.errors import FUNCTION_NOT_FOUND, IMPLAUSIBLE, DriverError
from gpusupervisor.gpu.sample import GpuMemory, MemorySource
from gpusupervisor.quantities import format_bytes

MEMORY_V2 = 0x02000028
"""nvmlMemory_v2: version and size of the structure."""
SLACK = 256 << 20
"""Bytes by which the parts may exceed the whole: the driver reads them one after the other."""


class MemoryReader:
    """Remembers what kind of card it is over every initialisation of NVML, so a handle is given at each reading.

    A card that once told a size is a discrete card for as long as the process lives, and the function that told it
    is the only one that is asked from then on: when that one fails, this sample fails. Shared memory is only assumed,
    and each sample asks again.
    """

    def __init__(self) -> None:
        self._established: MemorySource | None = None

    def read(self, handle: object) -> GpuMemory:
        """What the driver says; raises DriverError when a discrete card does not tell."""
        match self._established:
            case "nvml-v2":
                memory = _memory_v2(handle)
            case "nvml-v1":
                memory = _memory_v1(handle)
            case _:
                memory = _best(handle)
        if memory.source != "unified":
            self._established = memory.source
        return memory


def _best(handle: object) -> GpuMemory:
    for source in (_memory_v2, _memory_v1):
        try:
            return source(handle)
        except DriverError as error:
            if error.error_class != "unsupported":
                raise
    return _host_memory()


def _memory_v2(handle: object) -> GpuMemory:
    told = ask("nvmlDeviceGetMemoryInfo", handle, MEMORY_V2)
    if not told.total:
        raise NoSizeTold
    return _plausible(GpuMemory(told.total, told.used, told.free, told.reserved, "nvml-v2"))


def _memory_v1(handle: object) -> GpuMemory:
    told = ask("nvmlDeviceGetMemoryInfo", handle)
    if not told.total:
        raise NoSizeTold
    if told.used > told.total:
        raise DriverError("nvmlDeviceGetMemoryInfo", IMPLAUSIBLE, _impossible(told.used, told.total))
    return _plausible(GpuMemory(told.total, told.total - told.free, told.free, 0, "nvml-v1"))


def _plausible(memory: GpuMemory) -> GpuMemory:
    """The same; raises DriverError when it cannot be true: the parts are larger than the whole."""
    parts = memory.used + memory.free + memory.reserved
    largest = max(memory.used, memory.free, memory.reserved)
    if largest > memory.total or memory.used < 0 or parts > memory.total + SLACK:
        raise DriverError("nvmlDeviceGetMemoryInfo", IMPLAUSIBLE, _impossible(max(largest, parts), memory.total))
    return memory


def _impossible(size: int, total: int) -> str:
    return f"the driver reports {format_bytes(size)} of {format_bytes(total)}, which cannot be"


class NoSizeTold(DriverError):  # noqa: N818  (named as what happened)
    """Success, with a size of 0 bytes: some machines with unified memory answer so instead of NOT_SUPPORTED."""

    def __init__(self) -> None:
        super().__init__("nvmlDeviceGetMemoryInfo", FUNCTION_NOT_FOUND, "a size of 0 bytes")


def _host_memory() -> GpuMemory:
    """The memory that GPU and host share; what is taken of it is not known to be the GPU's."""
    total, available = files().host_memory()
    return GpuMemory(total, 0, available, total - available, "unified")
