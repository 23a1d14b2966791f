"""NVML opened for control."""

import pynvml
import pytest

from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.hardware.session import HardwareSession, Xid
from gpusupervisor.simulation.nvml import SimulatedGpu, World
from tests.helper.hardware.conftest import GPU

B = "GPU-bbbbbbbb"


@pytest.fixture
def world_of_two(world: World) -> World:
    world.gpus.insert(0, SimulatedGpu(B, pci="00000000:02:00.0"))
    return world


def test_gpus_are_found_by_uuid(session: HardwareSession, world_of_two: World) -> None:
    session.open()
    assert [identity.uuid for identity in session.identities()] == [GPU, B]
    session.gpu(B).set_fan(0, 70)
    assert world_of_two.settings[B].fans[0].target == 70
    with pytest.raises(NoSuchGpu):
        session.gpu("GPU-cccccccc")


def test_it_opens_when_it_is_needed_and_closes_as_a_whole(session: HardwareSession, world: World) -> None:
    session.gpu(GPU)
    session.open()
    assert (session.is_open, session.generation, world.references) == (True, 1, 1)
    session.close()
    session.close()
    assert (session.is_open, world.references) == (False, 0)
    session.gpu(GPU)
    assert session.generation == 2


def test_without_a_driver_it_stays_closed(session: HardwareSession, world: World) -> None:
    world.driver_loaded = False
    with pytest.raises(DriverError):
        session.gpu(GPU)
    assert not session.is_open


def test_a_failure_while_opening_leaves_nothing_open(session: HardwareSession, world: World) -> None:
    world.errors["nvmlDeviceGetCount_v2"] = pynvml.NVML_ERROR_UNKNOWN
    with pytest.raises(DriverError):
        session.open()
    assert (session.is_open, world.references) == (False, 0)


def test_a_gpu_that_cannot_be_opened_does_not_hide_the_other(session: HardwareSession, world_of_two: World) -> None:
    world_of_two.gpus[0].lost = True
    assert session.gpu(GPU).capabilities().fan_count == 2
    assert len(session.identities()) == 1


def test_xids_are_told_once_with_their_gpu(session: HardwareSession, world_of_two: World) -> None:
    world_of_two.gpus[1].xids.append(13)
    session.open()
    assert session.xids() == ()
    world_of_two.gpus[1].xids += [31, 79]
    world_of_two.gpus[0].xids.append(8)
    assert set(session.xids()) == {Xid(GPU, 31), Xid(GPU, 79), Xid(B, 8)}
    assert session.xids() == ()


@pytest.mark.parametrize("function", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
def test_a_driver_without_events_is_controlled_all_the_same(
    session: HardwareSession, world: World, function: str
) -> None:
    world.errors[function] = pynvml.NVML_ERROR_NOT_SUPPORTED
    session.open()
    world.gpus[0].xids.append(79)
    assert session.xids() == ()
    assert session.gpu(GPU).set_fan(0, 50) == 50


def test_a_closed_session_has_no_xids(session: HardwareSession) -> None:
    assert session.xids() == ()
