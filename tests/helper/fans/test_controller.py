"""The fan control of one GPU over a simulated card."""

from pathlib import Path

import pynvml
import pytest

from gpusupervisor.errors import GpuUnavailable, InvalidArgument, NotSupported
from gpusupervisor.helper.values import FanSetting
from gpusupervisor.simulation.nvml import Board
from tests.helper.fans.bench import CURVE, SIXTY, bench

SET, DEFAULT = "nvmlDeviceSetFanSpeed_v2", "nvmlDeviceSetDefaultFanSpeed_v2"


async def test_each_fan_gets_its_own_setting(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY, 1: CURVE})
        report = await card.tick()
        assert report.state == "controlling"
        assert (card.manual, card.targets) == ([True, True], [60, 40])
        card.board.temperature = 70
        report = await card.tick()
        assert card.targets == [60, 75]
        assert [fan.wanted for fan in report.fans] == [60, 75]
        assert card.causes() == []


async def test_a_fan_without_a_setting_is_left_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({1: SIXTY})
        await card.tick(3)
        assert card.manual == [False, True]
        assert card.controller.settings() == {0: FanSetting(), 1: SIXTY}


async def test_the_mark_is_there_before_the_fan_is_manual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(tmp_path) as card:
        seen: list[tuple[list[list[int]], list[bool]]] = []
        monkeypatch.setattr(
            card.world, "failure", lambda name: seen.append((card.marked(), card.manual)) if name == SET else None
        )
        await card.controller.control({0: SIXTY, 1: SIXTY})
        await card.tick()
        assert seen == [([[0]], [False, False]), ([[0, 1]], [True, False])]


async def test_release_gives_back_what_is_held_and_removes_the_mark(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        assert card.marked() == [[0]]
        report = await card.controller.release(card.now)
        assert report.state == "idle"
        assert card.manual == [False, False]
        assert card.marked() == []


async def test_a_fan_set_to_automatic_again_is_given_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY, 1: SIXTY})
        await card.tick()
        await card.controller.set_fan(0, FanSetting())
        await card.tick()
        assert card.manual == [False, True]
        assert card.marked() == [[0, 1]]
        await card.controller.set_fan(1, FanSetting())
        await card.tick()
        assert card.marked() == []


async def test_without_a_place_for_the_mark_no_fan_is_taken(tmp_path: Path) -> None:
    async with bench(tmp_path / "absent") as card:
        await card.controller.control({0: SIXTY})
        report = await card.tick()
        assert report.state == "fail-safe"
        assert "mark" in report.reason
        assert card.manual == [False, False]
        assert SET not in card.writes()


async def test_nothing_is_written_while_nothing_changes_but_a_reminder(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.writes()
        await card.tick(29)
        assert card.writes() == []
        await card.tick()
        assert card.writes() == [SET]


async def test_zero_rpm_hands_the_fan_back_below_its_threshold(tmp_path: Path) -> None:
    quiet = FanSetting("curve", points=((40, 30), (80, 100)), spin_down_delay=0, zero_rpm_below=55)
    async with bench(tmp_path) as card:
        await card.controller.control({0: quiet})
        await card.tick()
        assert card.manual == [False, False]
        card.board.temperature = 60
        await card.tick()
        assert card.manual == [True, False]
        card.board.temperature = 45
        report = await card.tick()
        assert card.manual == [False, False]
        assert report.state == "controlling"
        assert card.marked() == []


@pytest.mark.parametrize("garbage", [0, 65535, 255])
async def test_an_implausible_temperature_ends_in_automatic_after_three_ticks(tmp_path: Path, garbage: int) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: CURVE, 1: SIXTY})
        await card.tick()
        card.board.sensor_reads = garbage
        await card.tick(2)
        assert card.manual == [True, True]
        report = await card.tick()
        assert report.state == "fail-safe"
        assert card.manual == [False, False]
        assert card.marked() == []
        assert card.causes() == ["temperature-missing"]
        card.board.sensor_reads = None
        await card.tick(30)
        assert card.manual == [False, False]
        await card.tick()
        assert card.manual == [True, True]
        assert card.causes() == ["recovered"]


async def test_a_sensor_that_fails_is_a_missing_temperature(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        for function in ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV"):
            card.world.errors[function] = pynvml.NVML_ERROR_UNKNOWN
        await card.tick(3)
        assert card.manual == [False, False]


async def test_a_stuck_sensor_is_found_by_the_load(tmp_path: Path) -> None:
    async with bench(tmp_path, Board(temperature=27, power=20_000)) as card:
        await card.controller.control({0: CURVE})
        await card.tick(10)
        card.board.power = 380_000
        await card.tick(35)
        assert card.manual == [False, False]
        assert card.causes() == ["temperature-stuck"]


async def test_a_critical_temperature_ends_in_automatic_at_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.board.temperature = 92
        report = await card.tick()
        assert report.state == "fail-safe"
        assert card.manual == [False, False]
        assert card.causes() == ["critical"]


async def test_a_write_that_fails_gives_all_fans_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY, 1: SIXTY})
        await card.tick()
        card.world.fail_next(SET, None, pynvml.NVML_ERROR_UNKNOWN)
        await card.controller.control({0: CURVE, 1: CURVE})
        report = await card.tick()
        assert report.state == "fail-safe"
        assert "fan 1" in report.reason
        assert card.manual == [False, False]
        assert card.causes() == ["write-failed"]


async def test_a_fan_that_cannot_be_automatic_runs_at_full(tmp_path: Path) -> None:
    async with bench(tmp_path, Board(fan_range=(30, 90))) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.world.errors[DEFAULT] = pynvml.NVML_ERROR_UNKNOWN
        card.board.temperature = 95
        report = await card.tick()
        assert [(action.what, bool(action.error)) for action in report.done] == [("automatic", True), ("full", False)]
        assert (card.manual, card.targets) == ([True, False], [90, 35])
        assert card.marked() == [[0]]
        card.writes()
        await card.tick(20)
        assert card.writes() == []
        card.world.errors.clear()
        await card.tick(10)
        assert card.manual == [False, False]
        assert card.marked() == []


async def test_a_fan_that_cannot_be_made_safe_is_tried_at_every_tick_and_told_once(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.world.errors.update({DEFAULT: pynvml.NVML_ERROR_UNKNOWN, SET: pynvml.NVML_ERROR_UNKNOWN})
        card.board.temperature = 95
        await card.tick(3)
        assert card.causes() == ["critical", "stranded"]
        assert card.writes()[-2:] == [DEFAULT, SET]
        card.world.errors.clear()
        await card.tick()
        assert card.manual == [False, False]


async def test_fans_that_cannot_be_counted_for_the_moment_are_still_given_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.world.errors["nvmlDeviceGetNumFans"] = pynvml.NVML_ERROR_TIMEOUT
        await card.reopen()
        card.board.sensor_reads = 255
        report = await card.tick(3)
        assert (report.state, card.causes(), card.manual) == ("fail-safe", ["temperature-missing"], [False, False])


async def test_the_drivers_override_when_hot_is_no_failure(tmp_path: Path) -> None:
    async with bench(tmp_path, Board(override_above=80)) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.board.temperature = 85
        report = await card.tick(60)
        assert report.state == "controlling"
        assert report.fans[0].verdict == "overridden"
        assert report.fans[0].reading.percent == 118
        assert card.causes() == []


async def test_a_slow_fan_is_no_failure_and_a_deaf_one_is(tmp_path: Path) -> None:
    async with bench(tmp_path, Board(fan_ramp=2.0)) as card:
        await card.controller.control({0: FanSetting("fixed", percent=65), 1: SIXTY})
        report = await card.tick(5)
        assert [fan.verdict for fan in report.fans] == ["settling", "settling"]
        report = await card.tick(30)
        assert [fan.verdict for fan in report.fans] == ["ok", "ok"]
        card.board.deaf_fans = [1]
        card.fans[1].began_from = 30.0
        await card.tick(25)
        assert card.causes() == ["not-following"]
        assert card.manual == [False, False]


async def test_what_a_resume_reset_is_set_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.world.resume()
        assert card.manual == [False, False]
        report = await card.tick()
        assert report.fans[0].verdict == "changed"
        assert (card.manual, card.targets[0]) == ([True, False], 60)
        assert card.causes() == []


async def test_we_give_way_to_another_program_that_sets_the_fans(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        for _ in range(4):
            card.fans[0].target = 80
            await card.tick()
        assert card.causes() == ["contested"]
        assert card.manual == [False, False]
        card.fans[0].manual = True
        await card.tick(60)
        assert card.manual == [True, False]


async def test_a_reloaded_driver_is_opened_anew_and_the_fans_set_again(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.world.reload_driver()
        assert (await card.tick()).state == "unavailable"
        report = await card.tick(2)
        assert report.state == "controlling"
        assert card.manual == [True, False]


async def test_a_lost_gpu_is_tried_ever_more_rarely(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.world.gpus[0].lost = True
        card.world.calls.clear()
        report = await card.tick(60)
        assert report.state == "unavailable"
        assert card.world.calls.count("nvmlInitWithFlags") < 8
        card.world.gpus[0].lost = False
        await card.tick(60)
        assert card.manual == [True, False]


async def test_a_driver_that_hangs_is_told_once(tmp_path: Path) -> None:
    async with bench(tmp_path, deadline=0.05) as card:
        await card.controller.control({0: SIXTY})
        await card.tick()
        card.world.hang("nvmlDeviceGetTemperatureV")
        report = await card.tick(3)
        assert report.state == "unavailable"
        assert card.causes() == ["unresponsive"]
        with pytest.raises(GpuUnavailable):
            await card.controller.control({})


async def test_a_laptop_is_not_supported_with_the_reason(tmp_path: Path) -> None:
    async with bench(tmp_path, Board(fan_count=0)) as card:
        with pytest.raises(NotSupported, match="laptop"):
            await card.controller.control({0: SIXTY})
        report = await card.tick(3)
        assert report.state == "unsupported"
        assert "laptop" in report.reason
        assert card.causes() == []
        assert card.writes() == []


async def test_fans_that_turn_out_to_be_read_only_are_told_once(tmp_path: Path) -> None:
    async with bench(tmp_path, Board(fans_settable=False)) as card:
        await card.controller.control({0: SIXTY})
        report = await card.tick(10)
        assert report.state == "unsupported"
        assert card.causes() == ["write-failed", "unsupported"]
        assert card.marked() == []
        with pytest.raises(NotSupported):
            await card.controller.control({0: SIXTY})


async def test_without_privilege_nothing_is_left_behind(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        card.world.privileged = False
        await card.controller.control({0: SIXTY})
        await card.tick(5)
        assert card.causes()[0] == "write-failed"
        assert card.marked() == []


async def test_a_fan_that_there_is_not_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        await card.controller.control({0: SIXTY})
        with pytest.raises(InvalidArgument, match="no fan 5"):
            await card.controller.set_fan(5, SIXTY)
        await card.tick()
        assert card.manual == [True, False]


async def test_settings_wait_for_a_driver_that_is_not_there_yet(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        card.world.driver_loaded = False
        await card.controller.control({0: SIXTY})
        assert (await card.tick()).state == "unavailable"
        card.world.driver_loaded = True
        await card.tick(2)
        assert card.manual == [True, False]


async def test_an_older_driver_without_getters_is_controlled_all_the_same(tmp_path: Path) -> None:
    async with bench(tmp_path) as card:
        card.world.driver = card.world.kernel_driver = "515.65.01"
        pynvml.nvmlLib = None
        await card.controller.control({0: SIXTY})
        report = await card.tick()
        assert report.fans[0].reading.policy == "unknown"
        assert card.manual == [True, False]
        card.board.temperature = 93
        await card.tick()
        assert card.manual == [False, False]
        assert card.marked() == []
