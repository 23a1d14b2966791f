"""The functions of libnvidia-ml that read: lifecycle, identity, memory, processes, utilisation, MIG.

Which release has which symbol: the nvml.h that NVIDIA/nvidia-settings bundled with it.
"""

import ctypes

import pynvml

from gpusupervisor.simulation.nvml.handles import give_handle, gpu_of, require_initialised
from gpusupervisor.simulation.nvml.library import Handler, SimulatedLibrary, nvml
from gpusupervisor.simulation.nvml.marshalling import (
    Answer,
    Argument,
    number,
    target,
    text,
    write_text,
)
from gpusupervisor.simulation.nvml.world import SimulatedGpu, SimulatedProcess

NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF
NO_INSTANCE = 0xFFFFFFFF
V3_PROCESSES = (510, 39, 1)
VERSION_BEFORE_INIT = (535,)
"""Older libraries tell their own version only once they are initialised."""
SCRAMBLED = ((535, 43), (535, 98))
SCRAMBLED_STRIDE = 32
"""Bytes per entry that drivers in between write into 24-byte entries (they append usedGpuCcProtectedMemory)."""
SAMPLE_TIME = 1_000_000


@nvml("nvmlInitWithFlags", "nvmlInit_v2")
def _init(library: SimulatedLibrary, *_: object) -> None:
    world = library.world
    if not world.driver_loaded:
        raise Answer(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    if world.refusal:
        raise Answer(pynvml.NVML_ERROR_UNKNOWN)
    if world.kernel_driver != library.version:
        raise Answer(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    world.references += 1


@nvml("nvmlShutdown")
def _shutdown(library: SimulatedLibrary) -> None:
    require_initialised(library)
    library.world.references -= 1
    if not library.world.references:
        library.world.last_client_left()


@nvml("nvmlErrorString")
def _error_string(_: SimulatedLibrary, code: Argument) -> bytes:
    return f"simulated error {number(code)}".encode()


@nvml("nvmlSystemGetDriverVersion")
def _driver_version(library: SimulatedLibrary, buffer: Argument, size: Argument) -> None:
    require_initialised(library)
    write_text(buffer, size, library.world.kernel_driver)


@nvml("nvmlSystemGetNVMLVersion")
def _nvml_version(library: SimulatedLibrary, buffer: Argument, size: Argument) -> None:
    if library.release < VERSION_BEFORE_INIT:
        require_initialised(library)
    write_text(buffer, size, f"13.{library.version}")


@nvml("nvmlDeviceGetCount_v2")
def _count(library: SimulatedLibrary, out: Argument) -> None:
    require_initialised(library)
    target(out).value = len(library.world.gpus)


@nvml("nvmlDeviceGetHandleByIndex_v2")
def _by_index(library: SimulatedLibrary, index: Argument, out: Argument) -> None:
    require_initialised(library)
    if number(index) >= len(library.world.gpus):
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    give_handle(library, library.world.gpus[number(index)], "nvmlDeviceGetHandleByIndex_v2", out)


@nvml("nvmlDeviceGetHandleByUUID")
def _by_uuid(library: SimulatedLibrary, uuid: Argument, out: Argument) -> None:
    require_initialised(library)
    for gpu in library.world.gpus:
        if gpu.uuid == text(uuid):
            return give_handle(library, gpu, "nvmlDeviceGetHandleByUUID", out)
    raise Answer(pynvml.NVML_ERROR_NOT_FOUND)


@nvml("nvmlDeviceGetHandleByPciBusId_v2")
def _by_pci(library: SimulatedLibrary, pci: Argument, out: Argument) -> None:
    require_initialised(library)
    for gpu in library.world.gpus:
        if _same_bus_id(gpu.pci, text(pci)):
            return give_handle(library, gpu, "nvmlDeviceGetHandleByPciBusId_v2", out)
    raise Answer(pynvml.NVML_ERROR_NOT_FOUND)


def _same_bus_id(one: str, other: str) -> bool:
    """NVML accepts a domain of four and of eight digits."""
    left, right = one.lower().split(":", 1), other.lower().split(":", 1)
    return int(left[0], 16) == int(right[0], 16) and left[1] == right[1]


@nvml("nvmlDeviceGetName")
def _name(library: SimulatedLibrary, handle: Argument, buffer: Argument, size: Argument) -> None:
    write_text(buffer, size, gpu_of(library, handle, "nvmlDeviceGetName").name)


@nvml("nvmlDeviceGetUUID")
def _uuid(library: SimulatedLibrary, handle: Argument, buffer: Argument, size: Argument) -> None:
    write_text(buffer, size, gpu_of(library, handle, "nvmlDeviceGetUUID").uuid)


@nvml("nvmlDeviceGetPciInfo_v3")
def _pci_info(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, info = gpu_of(library, handle, "nvmlDeviceGetPciInfo_v3"), target(out)
    domain, bus, rest = gpu.pci.split(":")
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest.partition(".")[0], 16)
    info.busId = gpu.pci.encode()
    info.busIdLegacy = f"{int(domain, 16) & 0xFFFF:04X}:{bus}:{rest}".encode()


@nvml("nvmlDeviceGetAddressingMode", since=(580, 65, 6))
def _addressing(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, mode = gpu_of(library, handle, "nvmlDeviceGetAddressingMode"), target(out)
    if mode.version != pynvml.nvmlDeviceAddressingMode_v1:
        raise Answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    if gpu.addressing is None:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    mode.value = gpu.addressing


@nvml("nvmlDeviceGetMemoryInfo")
def _memory_v1(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, memory = gpu_of(library, handle, "nvmlDeviceGetMemoryInfo"), target(out)
    _refuse_stranger(library, gpu)
    if gpu.unified == "not-supported":
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    memory.total = 0 if gpu.unified else gpu.total
    memory.used = 0 if gpu.unified else gpu.used() + gpu.reserved
    memory.free = memory.total - memory.used


@nvml("nvmlDeviceGetMemoryInfo_v2", since=(510, 39, 1))
def _memory_v2(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, memory = gpu_of(library, handle, "nvmlDeviceGetMemoryInfo_v2"), target(out)
    if memory.version != pynvml.nvmlMemory_v2:
        raise Answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    _refuse_stranger(library, gpu)
    if gpu.unified == "not-supported":
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if gpu.unified:
        memory.total = memory.reserved = memory.used = memory.free = 0
        return
    memory.total, memory.reserved, memory.used = gpu.total, gpu.reserved, gpu.used()
    memory.free = gpu.total - gpu.reserved - memory.used


def _refuse_stranger(library: SimulatedLibrary, gpu: SimulatedGpu) -> None:
    """With MIG, what is of the whole GPU is told to privileged processes only."""
    if gpu.mig and not library.world.privileged:
        raise Answer(pynvml.NVML_ERROR_NO_PERMISSION)


def _list_handler(kind: str, function: str) -> Handler:
    def handler(library: SimulatedLibrary, handle: Argument, count: Argument, entries: Argument) -> None:
        gpu, size = gpu_of(library, handle, function), target(count)
        _refuse_stranger(library, gpu)
        listed = [process for process in gpu.listed() if kind in process.kinds]
        room, size.value = size.value, len(listed)
        if room < len(listed):
            raise Answer(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        for index, process in enumerate(listed):
            _write_entry(_entry(library, entries, index), process, known=gpu.sizes_told and not gpu.mig)

    return handler


def _entry(library: SimulatedLibrary, entries: Argument, index: int) -> Argument:
    """The place where this driver release writes its n-th entry."""
    if not SCRAMBLED[0] <= library.release < SCRAMBLED[1]:
        return entries[index]
    return entries._type_.from_address(ctypes.addressof(entries) + index * SCRAMBLED_STRIDE)


def _write_entry(entry: Argument, process: SimulatedProcess, *, known: bool) -> None:
    entry.pid = process.pid
    entry.usedGpuMemory = process.used if known and process.used is not None else NOT_AVAILABLE
    if hasattr(entry, "gpuInstanceId"):  # not in the structure of the oldest drivers
        entry.gpuInstanceId = entry.computeInstanceId = NO_INSTANCE


for _kind, _part in (("compute", "Compute"), ("graphics", "Graphics"), ("mps", "MPSCompute")):
    for _suffix, _since in (("_v3", V3_PROCESSES), ("_v2", (450, 66)), ("", (0,))):
        _function = f"nvmlDeviceGet{_part}RunningProcesses{_suffix}"
        nvml(_function, since=_since)(_list_handler(_kind, _function))


@nvml("nvmlDeviceGetProcessUtilization")
def _process_utilization(
    library: SimulatedLibrary, handle: Argument, samples: Argument, count: Argument, _since: Argument
) -> None:
    gpu, size = gpu_of(library, handle, "nvmlDeviceGetProcessUtilization"), target(count)
    if gpu.mig or not gpu.utilization_supported:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    working = [process for process in gpu.listed() if process.sm]
    if not working:
        raise Answer(pynvml.NVML_ERROR_NOT_FOUND)
    room, size.value = size.value, len(working)
    if samples is None or room < len(working):
        raise Answer(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for index, process in enumerate(working):
        samples[index].pid, samples[index].smUtil = process.pid, process.sm
        samples[index].timeStamp = SAMPLE_TIME + index


@nvml("nvmlDeviceGetUtilizationRates")
def _utilization_rates(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, rates = gpu_of(library, handle, "nvmlDeviceGetUtilizationRates"), target(out)
    if gpu.mig or not gpu.utilization_supported:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    rates.gpu = min(100, sum(process.sm for process in gpu.listed()))


@nvml("nvmlDeviceGetMigMode", since=(450, 51))
def _mig_mode(library: SimulatedLibrary, handle: Argument, current: Argument, pending: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetMigMode")
    if gpu.mig is None:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    target(current).value = target(pending).value = int(gpu.mig)
