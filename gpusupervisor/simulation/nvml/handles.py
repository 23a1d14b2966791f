"""Device handles of the simulated library: what they stand for, and for how long."""

import pynvml

from gpusupervisor.simulation.nvml.library import SimulatedLibrary
from gpusupervisor.simulation.nvml.marshalling import Answer, Argument, read_handle, write_handle
from gpusupervisor.simulation.nvml.world import SimulatedGpu

GENERATION_STRIDE = 0x100000
HANDLE_STRIDE = 0x1000
HANDLE_BASE = 0x5100000000


def require_initialised(library: SimulatedLibrary) -> None:
    """Answer UNINITIALIZED when nvmlInit was not called."""
    if library.world.references <= 0:
        raise Answer(pynvml.NVML_ERROR_UNINITIALIZED)


def gpu_of(library: SimulatedLibrary, handle: Argument, function: str) -> SimulatedGpu:
    """The GPU of a handle; handles do not outlive their generation, and follow their GPU when indexes change."""
    require_initialised(library)
    generation, rest = divmod(read_handle(handle) - HANDLE_BASE, GENERATION_STRIDE)
    slots = library.slots
    slot = rest // HANDLE_STRIDE
    if generation != library.world.generation or not 0 <= slot < len(slots):
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    for gpu in library.world.gpus:
        if gpu.uuid == slots[slot]:
            return _reached(library, gpu, function)
    raise Answer(pynvml.NVML_ERROR_GPU_IS_LOST)


def give_handle(library: SimulatedLibrary, gpu: SimulatedGpu, function: str, out: Argument) -> None:
    """Write the handle of a GPU; looking it up wakes the GPU."""
    _reached(library, gpu, function)
    write_handle(out, address_of(library, gpu))


def address_of(library: SimulatedLibrary, gpu: SimulatedGpu) -> int:
    """The pointer value that is the handle of a GPU in this generation."""
    if gpu.uuid not in library.slots:
        library.slots.append(gpu.uuid)
    slot = library.slots.index(gpu.uuid)
    return HANDLE_BASE + library.world.generation * GENERATION_STRIDE + slot * HANDLE_STRIDE


def _reached(library: SimulatedLibrary, gpu: SimulatedGpu, function: str) -> SimulatedGpu:
    library.world.touched[gpu.uuid] += 1
    if gpu.lost:
        raise Answer(pynvml.NVML_ERROR_GPU_IS_LOST)
    if function in gpu.errors:
        raise Answer(gpu.errors[function])
    return gpu
