"""What a GPU lets us read and set, and why not."""

import pynvml
import pytest

from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import Capability
from gpusupervisor.simulation.nvml import Board, World


def test_a_desktop_card_has_everything(gpu: GpuHardware) -> None:
    found = gpu.capabilities()
    assert found.fans == Capability("supported", "", 30, 100)
    assert found.fan_count == 2
    assert found.power_limit == Capability("supported", "", 150_000, 480_000, 450_000)
    assert found.offsets["graphics"] == Capability("supported", "", -1000, 1000, 0)
    assert found.temperature.support == found.persistence.support == "supported"
    assert {clock.support for clock in found.locked_clocks.values()} == {"unverifiable"}


def test_a_laptop_has_no_fans_and_a_power_limit_to_look_at(gpu: GpuHardware, board: Board) -> None:
    board.fan_count, board.power_settable = 0, False
    found = gpu.capabilities()
    assert (found.fans.support, found.fan_count) == ("unsupported", 0)
    assert "laptop" in found.fans.reason
    assert (found.power_limit.support, found.power_limit.maximum) == ("read-only", 480_000)
    assert gpu.fans() == ()


def test_looking_changes_nothing(gpu: GpuHardware, world: World) -> None:
    settings = world.settings_of(world.gpus[0])
    settings.power_limit = 300_000
    gpu.capabilities()
    assert settings.power_limit == 300_000
    assert not settings.offsets
    assert not settings.locked_clocks
    assert [fan.manual for fan in settings.fans] == [False, False]


def test_it_is_probed_once(gpu: GpuHardware, world: World) -> None:
    gpu.capabilities()
    before = len(world.calls)
    gpu.capabilities()
    assert len(world.calls) == before


def test_what_failed_for_the_moment_is_probed_again(gpu: GpuHardware, world: World) -> None:
    world.errors["nvmlDeviceGetClockOffsets"] = pynvml.NVML_ERROR_UNKNOWN
    assert gpu.capabilities().offsets["memory"].support == "unsupported"
    world.errors.clear()
    assert gpu.capabilities().offsets["memory"].support == "supported"


def test_a_lost_gpu_is_no_answer(gpu: GpuHardware, world: World) -> None:
    world.gpus[0].lost = True
    with pytest.raises(DriverError) as caught:
        gpu.capabilities()
    assert caught.value.gpu_is_gone


def test_an_old_driver_lacks_what_came_later(world: World) -> None:
    world.driver = world.kernel_driver = "510.108.03"
    found = HardwareSession().gpu(world.gpus[0].uuid).capabilities()
    assert found.fans.support == "read-only"
    assert "515.43" in found.fans.reason
    assert "555.42" in found.offsets["graphics"].reason
    assert found.power_limit.support == "supported"


def test_an_old_card_cannot_lock_its_clocks(gpu: GpuHardware, board: Board) -> None:
    board.architecture = 6
    found = gpu.capabilities().locked_clocks
    assert found["memory"] == Capability("unsupported", "memory clocks can be locked on Ampere and later GPUs")
    assert found["graphics"].support == "unverifiable"


def test_cards_without_offsets_say_so(gpu: GpuHardware, board: Board) -> None:
    board.offset_ranges = {"graphics": (0, 0)}
    found = gpu.capabilities().offsets
    assert (found["graphics"].support, found["memory"].support) == ("unsupported", "unsupported")
    assert found["graphics"].reason == "the card takes no clock offset"


def test_without_privilege_the_power_limit_is_read_only(gpu: GpuHardware, world: World) -> None:
    world.privileged = False
    found = gpu.capabilities().power_limit
    assert found.support == "read-only"
    assert "ermission" in found.reason


def test_a_session_that_may_not_write_does_not_even_probe_by_writing(world: World) -> None:
    found = HardwareSession(may_write=False).gpu(world.gpus[0].uuid).capabilities()
    assert found.power_limit.support == "supported"
    assert not [call for call in world.calls if call.startswith("nvmlDeviceSet")]
