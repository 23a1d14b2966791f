"""The functions of libnvidia-ml for events: Xid errors, told to whoever registered before they happened."""

import ctypes

import pynvml

from gpusupervisor.simulation.nvml.handles import address_of, gpu_of, require_initialised
from gpusupervisor.simulation.nvml.library import SimulatedLibrary, nvml
from gpusupervisor.simulation.nvml.marshalling import Answer, Argument, read_handle, target, write_handle

SET_BASE = 0xE5E70000


def _set(library: SimulatedLibrary, event_set: Argument) -> dict[str, int]:
    """GPU UUID to the number of its Xids that the set has told."""
    require_initialised(library)
    found = library.event_sets.get(read_handle(event_set))
    if found is None:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return found


@nvml("nvmlEventSetCreate")
def _create(library: SimulatedLibrary, out: Argument) -> None:
    require_initialised(library)
    library.event_sets_made += 1
    address = SET_BASE + library.event_sets_made
    library.event_sets[address] = {}
    write_handle(out, address)


@nvml("nvmlEventSetFree")
def _free(library: SimulatedLibrary, event_set: Argument) -> None:
    _set(library, event_set)
    del library.event_sets[read_handle(event_set)]


@nvml("nvmlDeviceGetSupportedEventTypes")
def _supported(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    target(out).value = gpu_of(library, handle, "nvmlDeviceGetSupportedEventTypes").board.event_types


@nvml("nvmlDeviceRegisterEvents")
def _register(library: SimulatedLibrary, handle: Argument, types: Argument, event_set: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceRegisterEvents")
    if types.value & ~gpu.board.event_types:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    _set(library, event_set)[gpu.uuid] = len(gpu.xids)


@nvml("nvmlEventSetWait_v2", since=(450, 51), patient=True)
def _wait(library: SimulatedLibrary, event_set: Argument, out: Argument, _timeout: Argument) -> None:
    told = _set(library, event_set)
    for gpu in library.world.gpus:
        if gpu.uuid in told and told[gpu.uuid] < len(gpu.xids):
            data = target(out)
            data.device = ctypes.cast(ctypes.c_void_p(address_of(library, gpu)), pynvml.c_nvmlDevice_t)
            data.eventType = pynvml.nvmlEventTypeXidCriticalError
            data.eventData = gpu.xids[told[gpu.uuid]]
            told[gpu.uuid] += 1
            return
    raise Answer(pynvml.NVML_ERROR_TIMEOUT)
