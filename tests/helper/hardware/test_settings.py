"""Setting and reading back."""

import pynvml
import pytest

from gpusupervisor.gpu.errors import DriverError, ValueRefused
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.values import ClockDomain
from gpusupervisor.simulation.nvml import Board, Settings, World


@pytest.fixture
def settings(world: World) -> Settings:
    return world.settings_of(world.gpus[0])


def test_fans_are_set_one_by_one_and_clamped(gpu: GpuHardware, settings: Settings) -> None:
    assert gpu.set_fan(1, 5) == 30
    assert gpu.set_fan(0, 250) == 100
    assert [(fan.manual, fan.target) for fan in settings.fans] == [(True, 100), (True, 30)]
    assert gpu.set_fan_automatic(1) == "automatic"
    readings = gpu.fans()
    assert [reading.policy for reading in readings] == ["manual", "automatic"]
    assert [reading.rpm for reading in readings] == [3400, 1190]


def test_a_value_that_is_refused_is_no_lost_session(gpu: GpuHardware, board: Board) -> None:
    gpu.capabilities()
    board.fan_range = (50, 100)
    with pytest.raises(ValueRefused) as caught:
        gpu.set_fan(0, 40)
    assert caught.value.error_class == "refused"
    assert not caught.value.ends_session
    assert "does not accept this value" in str(caught.value)


def test_a_stale_handle_is_not_taken_for_a_refused_value(gpu: GpuHardware, world: World) -> None:
    gpu.capabilities()
    world.reload_driver()
    pynvml.nvmlInit()
    with pytest.raises(DriverError) as caught:
        gpu.set_fan(0, 50)
    assert caught.value.ends_session


def test_the_power_limit_is_clamped_and_read_back(gpu: GpuHardware, settings: Settings) -> None:
    assert gpu.set_power_limit(300_000) == 300_000
    assert gpu.set_power_limit(1) == 150_000
    assert gpu.set_power_limit(10**9) == 480_000 == settings.power_limit
    assert gpu.enforced_power_limit() == 480_000


def test_energy_is_counted_where_the_card_counts_it(gpu: GpuHardware, board: Board, world: World) -> None:
    first = gpu.energy()
    board.architecture = 4
    assert gpu.energy() is None, "before Volta"
    board.architecture = 5
    later = gpu.energy()
    assert first is not None
    assert later is not None
    assert later >= first


def test_an_offset_is_told_as_the_driver_snapped_it(gpu: GpuHardware, board: Board) -> None:
    board.offset_step = 8
    assert gpu.set_offset("graphics", 465) == 464
    assert gpu.set_offset("graphics", -465) == -464
    assert gpu.set_offset("graphics", 5) == 0
    assert gpu.offset("memory") == 0
    assert gpu.set_offset("memory", 99_999) == 6000


def test_an_offset_that_the_driver_does_not_report_is_unverifiable(gpu: GpuHardware, world: World) -> None:
    world.gpus[0].board.offsets_reported = False
    assert gpu.set_offset("graphics", 150) is None
    assert world.settings_of(world.gpus[0]).offsets == {"graphics/0": 150}
    assert gpu.capabilities().offsets["graphics"].support == "unverifiable"
    assert gpu.set_offset("graphics", 0) is None


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN])
def test_an_offset_that_pynvml_would_call_set_is_known_to_have_failed(
    gpu: GpuHardware, world: World, code: int
) -> None:
    world.errors["nvmlDeviceSetClockOffsets"] = code
    with pytest.raises(DriverError) as caught:
        gpu.set_offset("graphics", 100)
    assert caught.value.code == code


def test_linked_performance_states_follow(gpu: GpuHardware, board: Board, settings: Settings) -> None:
    board.linked_pstates = True
    gpu.set_offset("graphics", 100)
    assert settings.offsets == {f"graphics/{state}": 100 for state in board.pstates}


@pytest.mark.parametrize("domain", ["graphics", "memory"])
def test_clocks_are_locked_within_the_cards_range_and_let_go(
    gpu: GpuHardware, settings: Settings, domain: ClockDomain
) -> None:
    highest = gpu.capabilities().locked_clocks[domain].maximum
    assert gpu.set_locked_clocks(domain, 210, 99_999) == (210, highest)
    assert settings.locked_clocks == {domain: (210, highest)}
    assert "locked-clocks" in gpu.clock_event_reasons()
    gpu.reset_locked_clocks(domain)
    assert settings.locked_clocks == {}


def test_a_clock_that_turns_out_not_to_be_lockable_is_unsupported(gpu: GpuHardware, board: Board) -> None:
    board.lockable = ["graphics"]
    with pytest.raises(DriverError):
        gpu.set_locked_clocks("memory", 405, 405)
    assert gpu.capabilities().locked_clocks["memory"].support == "unsupported"
    assert gpu.capabilities().locked_clocks["graphics"].support == "unverifiable"


def test_fans_that_turn_out_not_to_be_settable_are_read_only(gpu: GpuHardware, board: Board) -> None:
    board.fans_settable = False
    with pytest.raises(DriverError):
        gpu.set_fan(0, 50)
    assert gpu.capabilities().fans.support == "read-only"
    assert gpu.capabilities().fan_count == 2


def test_persistence_is_read_back(gpu: GpuHardware) -> None:
    assert gpu.persistence() is False
    assert gpu.set_persistence(True) is True


def test_without_privilege_a_setter_says_so(gpu: GpuHardware, world: World) -> None:
    world.privileged = False
    with pytest.raises(DriverError) as caught:
        gpu.set_persistence(True)
    assert caught.value.error_class == "permission"
    with pytest.raises(DriverError) as caught:
        gpu.set_offset("memory", 10)
    assert caught.value.error_class == "permission"
    assert gpu.capabilities().offsets["memory"].support == "read-only"


def test_what_holds_the_clocks_down_is_told_in_words(gpu: GpuHardware, board: Board) -> None:
    assert gpu.clock_event_reasons() == frozenset()
    board.power, board.temperature = 900_000, 93
    assert gpu.clock_event_reasons() == {"sw-power-cap", "hw-slowdown", "hw-thermal-slowdown"}
    assert gpu.power_usage() == 450_000
    assert (gpu.clock("graphics") or 0) < 2520
    assert gpu.performance_state() == 0
