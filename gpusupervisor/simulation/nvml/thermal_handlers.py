"""The functions of libnvidia-ml for fans and temperatures."""

import pynvml

from gpusupervisor.simulation.nvml.board import command_fan, fan_speed
from gpusupervisor.simulation.nvml.handles import gpu_of
from gpusupervisor.simulation.nvml.library import SimulatedLibrary, nvml
from gpusupervisor.simulation.nvml.marshalling import Answer, Argument, number, target
from gpusupervisor.simulation.nvml.world import SimulatedGpu

FAN_RANGE, FAN_POLICY = (515, 43, 4), (520, 56, 6)
RPM_AT_FULL = 3400
SENSOR_FAILED = 999


def _fan(gpu: SimulatedGpu, index: Argument) -> int:
    """The index of a fan that exists."""
    if not gpu.board.fan_count:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if number(index) >= gpu.board.fan_count:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return number(index)


def _settable(gpu: SimulatedGpu, index: Argument) -> int:
    fan = _fan(gpu, index)
    if not gpu.board.fans_settable:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return fan


def _speed(library: SimulatedLibrary, gpu: SimulatedGpu, index: Argument) -> int:
    fan = _fan(gpu, index)
    return fan_speed(gpu.board, library.world.settings_of(gpu), fan, library.world.time())


@nvml("nvmlDeviceGetNumFans", since=(510, 39, 1))
def _count(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetNumFans")
    _fan(gpu, 0)
    target(out).value = gpu.board.fan_count


@nvml("nvmlDeviceGetFanSpeed")
def _get_first_speed(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    target(out).value = _speed(library, gpu_of(library, handle, "nvmlDeviceGetFanSpeed"), 0)


@nvml("nvmlDeviceGetFanSpeed_v2", since=(418, 30))
def _get_speed(library: SimulatedLibrary, handle: Argument, index: Argument, out: Argument) -> None:
    target(out).value = _speed(library, gpu_of(library, handle, "nvmlDeviceGetFanSpeed_v2"), index)


@nvml("nvmlDeviceGetFanSpeedRPM", since=(565, 57, 1))
def _get_rpm(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, info = gpu_of(library, handle, "nvmlDeviceGetFanSpeedRPM"), target(out)
    if info.version != pynvml.nvmlFanSpeedInfo_v1:
        raise Answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    info.speed = RPM_AT_FULL * _speed(library, gpu, info.fan) // 100


@nvml("nvmlDeviceGetTargetFanSpeed", since=FAN_POLICY)
def _get_target(library: SimulatedLibrary, handle: Argument, index: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetTargetFanSpeed")
    target(out).value = library.world.settings_of(gpu).fans[_fan(gpu, index)].target


@nvml("nvmlDeviceGetMinMaxFanSpeed", since=FAN_RANGE)
def _get_range(library: SimulatedLibrary, handle: Argument, low: Argument, high: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetMinMaxFanSpeed")
    _fan(gpu, 0)
    target(low).value, target(high).value = gpu.board.fan_range


@nvml("nvmlDeviceGetFanControlPolicy_v2", since=FAN_POLICY)
def _get_policy(library: SimulatedLibrary, handle: Argument, index: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetFanControlPolicy_v2")
    target(out).value = int(library.world.settings_of(gpu).fans[_fan(gpu, index)].manual)


@nvml("nvmlDeviceSetFanSpeed_v2", since=FAN_RANGE, root=True)
def _set_speed(library: SimulatedLibrary, handle: Argument, index: Argument, speed: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceSetFanSpeed_v2")
    fan, percent = _settable(gpu, index), number(speed)
    low, high = gpu.board.fan_range
    if gpu.board.rejects_fan_range and not low <= percent <= high:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    with library.world.setting(gpu) as settings:
        command_fan(gpu.board, settings, fan, library.world.time(), percent)


@nvml("nvmlDeviceSetDefaultFanSpeed_v2", since=FAN_RANGE, root=True)
def _set_default(library: SimulatedLibrary, handle: Argument, index: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceSetDefaultFanSpeed_v2")
    fan = _settable(gpu, index)
    with library.world.setting(gpu) as settings:
        command_fan(gpu.board, settings, fan, library.world.time(), None)


def _sensor(gpu: SimulatedGpu) -> int:
    return gpu.board.temperature if gpu.board.sensor_reads is None else gpu.board.sensor_reads


@nvml("nvmlDeviceGetTemperature")
def _temperature(library: SimulatedLibrary, handle: Argument, sensor: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetTemperature")
    if number(sensor):
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    target(out).value = _sensor(gpu)


@nvml("nvmlDeviceGetTemperatureV", since=(565, 57, 1))
def _temperature_v(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, info = gpu_of(library, handle, "nvmlDeviceGetTemperatureV"), target(out)
    if info.version != pynvml.nvmlTemperature_v1:
        raise Answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    if info.sensorType:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    info.temperature = _sensor(gpu)


@nvml("nvmlDeviceGetTemperatureThreshold")
def _threshold(library: SimulatedLibrary, handle: Argument, which: Argument, out: Argument) -> None:
    board = gpu_of(library, handle, "nvmlDeviceGetTemperatureThreshold").board
    told = {0: board.shutdown, 1: board.slowdown}.get(number(which))
    if told is None:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    target(out).value = told


@nvml("nvmlDeviceGetMarginTemperature", since=(570, 86))
def _margin(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, info = gpu_of(library, handle, "nvmlDeviceGetMarginTemperature"), target(out)
    if info.version != pynvml.nvmlMarginTemperature_v1:
        raise Answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    info.marginTemperature = gpu.board.limit - _sensor(gpu)


@nvml("nvmlDeviceGetFieldValues")
def _fields(library: SimulatedLibrary, handle: Argument, count: Argument, out: Argument) -> None:
    gpu_of(library, handle, "nvmlDeviceGetFieldValues")
    margins = {pynvml.NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT: -7, pynvml.NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT: -2}
    values = target(out)
    for index in range(number(count)):
        value = values[index]
        if value.fieldId in margins:
            value.nvmlReturn, value.valueType = 0, pynvml.NVML_VALUE_TYPE_SIGNED_INT
            value.value.siVal = margins[value.fieldId]
        else:
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED
