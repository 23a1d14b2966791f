"""Temperatures, believed when they can be true."""

import pynvml
import pytest

from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.values import Temperatures
from gpusupervisor.simulation.nvml import Board, World


def test_the_card_tells_its_limits(gpu: GpuHardware) -> None:
    assert gpu.temperatures() == Temperatures(50, 92, 95)


@pytest.mark.parametrize("degrees", [0, -1, 130, 255, 65535])
def test_what_cannot_be_true_is_not_told(gpu: GpuHardware, board: Board, degrees: int) -> None:
    board.sensor_reads = degrees
    assert gpu.temperatures().gpu is None


@pytest.mark.parametrize("degrees", [1, 129])
def test_what_can_just_be_true_is(gpu: GpuHardware, board: Board, degrees: int) -> None:
    board.sensor_reads = degrees
    assert gpu.temperatures().gpu == degrees


def test_ada_tells_its_limits_as_margins(gpu: GpuHardware, board: Board) -> None:
    board.slowdown = board.shutdown = None
    assert gpu.temperatures() == Temperatures(50, 86, 91)
    board.temperature = 70
    assert gpu.temperatures() == Temperatures(70, 86, 91)


def test_an_older_driver_is_asked_by_the_older_name(gpu: GpuHardware, world: World) -> None:
    world.missing_symbols.add("nvmlDeviceGetTemperatureV")
    assert gpu.temperatures().gpu == 50


def test_limits_that_are_not_told_are_unknown(gpu: GpuHardware, board: Board, world: World) -> None:
    board.slowdown = board.shutdown = None
    world.missing_symbols.add("nvmlDeviceGetMarginTemperature")
    assert gpu.temperatures() == Temperatures(50, None, None)


def test_a_sensor_that_fails_hides_nothing_else(gpu: GpuHardware, world: World) -> None:
    for function in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
        world.errors[function] = pynvml.NVML_ERROR_UNKNOWN
    assert gpu.temperatures() == Temperatures(None, 92, 95)


def test_a_lost_gpu_has_no_temperature_but_an_error(gpu: GpuHardware, world: World) -> None:
    world.gpus[0].lost = True
    with pytest.raises(DriverError):
        gpu.temperatures()
