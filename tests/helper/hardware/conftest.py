"""One simulated GPU, opened for control."""

from collections.abc import Iterator

import pytest

from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.simulation.nvml import Board, SimulatedGpu, World, installed

GPU = "GPU-aaaaaaaa"


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu(GPU)])) as world:
        yield world


@pytest.fixture
def board(world: World) -> Board:
    return world.gpus[0].board


@pytest.fixture
def session(world: World) -> HardwareSession:
    return HardwareSession()


@pytest.fixture
def gpu(session: HardwareSession) -> GpuHardware:
    return session.gpu(GPU)
