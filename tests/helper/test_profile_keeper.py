"""The profile of a GPU over its life: applied, tried, lost, repaired, and never what may have crashed the machine."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpusupervisor.errors import Busy, GpuUnavailable, InvalidArgument
from gpusupervisor.helper.drift.keeper import DriftContested, DriftDetected, DriftRepaired
from gpusupervisor.helper.fans.controller import FanController
from gpusupervisor.helper.profile.access import NvmlAccess
from gpusupervisor.helper.profile.apply import apply_profile, capture, restore
from gpusupervisor.helper.profile.card import Access, Fans
from gpusupervisor.helper.profile.record import Record
from gpusupervisor.helper.profile.store import ProfileStore, StoreError
from gpusupervisor.helper.profile_state import TrialEnded
from gpusupervisor.helper.values import FanSetting, Profile
from gpusupervisor.simulation.nvml import SimulatedGpu, World, installed
from tests.helper.profile.station import GPU, Station

WHOLE = Profile(300_000, {"graphics": 120}, {"graphics": (210, 1800)}, True, {0: FanSetting("fixed", 50)})
TRIED = Profile(250_000, {"graphics": 200}, {"memory": (405, 5001)}, None, {0: FanSetting("fixed", 80)})
WITHIN = 20_000_000


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[Station]:
    tmp_path.chmod(0o755)
    with installed(World([SimulatedGpu()])) as world:
        station = Station(tmp_path, world)
        await station.keeper.start()
        yield station
        await station.close()


def kinds(station: Station) -> list[str]:
    return [type(event).__name__ for event in station.events]


def verdicts(station: Station) -> dict[str, str]:
    return {verdict.item: verdict.verdict for verdict in station.keeper.state().verdicts}


async def settled(station: Station) -> Station:
    """The whole profile in force and its probation over."""
    results = await station.keeper.apply(WHOLE)
    assert all(result.ok for result in results)
    await station.later(121)
    station.events.clear()
    return station


async def test_without_a_profile_nothing_is_set_and_nothing_is_due(station: Station) -> None:
    await station.later(600)
    assert station.keeper.state().record is None
    assert station.keeper.next_due() is None
    assert station.fans.calls == []
    assert await station.keeper.check_drift() == ()


async def test_what_was_asked_and_what_was_accepted_are_kept_apart(station: Station) -> None:
    station.board.offset_step = 2
    await station.keeper.apply(Profile(offsets={"memory": 465}))
    record = await station.stored()
    assert record is not None
    assert record.requested.offsets == {"memory": 465}
    assert record.accepted.offsets == {"memory": 464}
    assert record == station.keeper.state().record
    await station.keeper.check_drift()
    assert verdicts(station) == {"offset-memory": "ok"}


async def test_a_clean_reboot_applies_the_profile_again(station: Station) -> None:
    await settled(station)
    keeper = await station.rebooted(orderly=True)
    assert station.power == 300_000
    assert station.now_set.locked_clocks == {"graphics": (210, 1800)}
    assert station.fans.now[0] == FanSetting("fixed", 50)
    assert keeper.state().problem == ""


async def test_after_an_unclean_boot_it_is_not_applied_and_says_why(station: Station) -> None:
    await settled(station)
    keeper = await station.rebooted(orderly=False)
    await station.later(3600)
    assert station.power == 450_000
    record = keeper.state().record
    assert record is not None
    assert "not shut down in an orderly way" in record.distrust
    again = await station.killed_and_started()
    assert again.state().record == record
    assert station.power == 450_000
    await again.apply(WHOLE)
    assert station.power == 300_000
    trusted = again.state().record
    assert trusted is not None
    assert trusted.distrust == ""


async def test_a_helper_killed_while_applying_does_not_apply_again(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    async def die(_index: int, _setting: FanSetting) -> None:
        raise Killed

    monkeypatch.setattr(station.fans, "set_fan", die)
    with pytest.raises(Killed):
        await station.keeper.apply(WHOLE)
    keeper = await station.killed_and_started()
    record = keeper.state().record
    assert record is not None
    assert record.distrust == "the helper ended while the profile was being applied"


async def test_a_helper_killed_in_the_probation_does_not_apply_again(station: Station) -> None:
    await station.keeper.apply(WHOLE)
    keeper = await station.killed_and_started(down=30)
    record = keeper.state().record
    assert record is not None
    assert record.distrust == "the helper ended shortly after the profile was applied"


async def test_a_helper_killed_later_takes_over_what_is_set(station: Station) -> None:
    await settled(station)
    station.now_set.power_limit = None
    station.now_set.locked_clocks.clear()
    keeper = await station.killed_and_started()
    assert station.fans.now[0] == FanSetting("fixed", 50)
    assert station.power == 450_000
    await station.later(3)
    assert station.power == 300_000
    assert station.now_set.locked_clocks == {"graphics": (210, 1800)}
    assert keeper.state().problem == ""
    assert kinds(station) == ["DriftDetected", "DriftRepaired"]


async def test_a_profile_that_may_have_crashed_the_machine_is_not_applied_though_the_disk_is_full(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    await settled(station)

    def full(*_: object) -> None:
        raise StoreError("no space left on device")

    monkeypatch.setattr(ProfileStore, "save", full)
    keeper = await station.rebooted(orderly=False)
    await station.later(3600)
    assert station.power == 450_000
    record = keeper.state().record
    assert record is not None
    assert "not shut down in an orderly way" in record.distrust
    assert "no space left" in keeper.state().problem


async def test_an_xid_right_after_applying_ends_the_trust_and_the_repairs(station: Station) -> None:
    await station.keeper.apply(WHOLE)
    await station.keeper.xid(62)
    station.now_set.power_limit = None
    await station.later(3)
    assert station.power == 450_000
    assert verdicts(station)["power-limit"] == "drifted"
    assert kinds(station) == ["DriftDetected"]
    stored = await station.stored()
    assert stored is not None
    assert "Xid 62" in stored.distrust


async def test_an_xid_much_later_is_not_laid_to_the_profile(station: Station) -> None:
    await settled(station)
    await station.keeper.xid(13)
    record = station.keeper.state().record
    assert record is not None
    assert record.distrust == ""


async def test_a_confirmed_trial_becomes_the_profile(station: Station) -> None:
    results = await station.keeper.try_(TRIED, WITHIN)
    assert all(result.ok for result in results)
    assert await station.stored() is None
    assert station.keeper.next_due() == station.clock.now() + WITHIN
    station.clock.advance(19)
    await station.keeper.confirm()
    await station.later(10)
    assert station.power == 250_000
    record = await station.stored()
    assert record is not None
    assert record.requested == TRIED
    assert await station.stored_trial() is None
    assert kinds(station) == ["TrialEnded"]


async def revert(station: Station) -> None:
    await station.keeper.revert()


async def wait(station: Station) -> None:
    await station.later(21)


async def xid(station: Station) -> None:
    await station.keeper.xid(62)


async def kill(station: Station) -> None:
    await station.killed_and_started()


async def stop(station: Station) -> None:
    await station.keeper.close()


@pytest.mark.parametrize("end", [revert, wait, xid, kill, stop])
async def test_a_trial_that_is_not_confirmed_leaves_exactly_what_was(station: Station, end: object) -> None:
    assert callable(end)
    await settled(station)
    await station.keeper.try_(TRIED, WITHIN)
    assert station.power == 250_000
    assert station.now_set.locked_clocks == {"graphics": (210, 1800), "memory": (405, 5001)}
    await end(station)
    assert station.power == 300_000
    assert station.now_set.offsets["graphics/0"] == 120
    assert station.now_set.locked_clocks == {"graphics": (210, 1800)}
    assert station.fans.now[0] == FanSetting("fixed", 50)
    assert station.keeper.state().trial is None
    assert await station.stored_trial() is None
    assert kinds(station) == ["TrialEnded"]
    record = await station.stored()
    assert record is not None
    assert record.requested == WHOLE


async def test_a_reboot_in_a_trial_drops_it(station: Station) -> None:
    await station.keeper.try_(TRIED, WITHIN)
    keeper = await station.rebooted(orderly=False)
    assert station.power == 450_000
    last = keeper.state().last_trial
    assert last is not None
    assert last.end == "rebooted"
    assert keeper.state().trial is None


async def test_confirming_too_late_reverts_and_says_so(station: Station) -> None:
    await station.keeper.try_(TRIED, WITHIN)
    station.clock.advance(21)
    with pytest.raises(InvalidArgument, match="too late"):
        await station.keeper.confirm()
    assert station.power == 450_000
    with pytest.raises(InvalidArgument, match="No profile is on trial"):
        await station.keeper.confirm()
    with pytest.raises(InvalidArgument, match="No profile is on trial"):
        await station.keeper.revert()


async def test_only_one_thing_at_a_time_is_tried(station: Station) -> None:
    await station.keeper.try_(TRIED, WITHIN)
    with pytest.raises(Busy, match="on trial"):
        await station.keeper.try_(WHOLE, WITHIN)
    with pytest.raises(Busy, match="on trial"):
        await station.keeper.apply(WHOLE)
    with pytest.raises(Busy, match="on trial"):
        await station.keeper.check_drift()


async def test_a_trial_of_which_nothing_is_taken_is_over_at_once(station: Station) -> None:
    results = await station.keeper.try_(Profile(power_limit=900_000), WITHIN)
    assert [result.ok for result in results] == [False]
    assert station.keeper.state().trial is None
    assert await station.stored_trial() is None


async def test_a_trial_is_taken_back_later_when_the_driver_is_away(station: Station) -> None:
    await station.keeper.try_(TRIED, WITHIN)
    station.world.driver_loaded = False
    station.world.reload_driver()
    await station.later(21)
    assert "could not be set again yet" in station.keeper.state().problem
    assert station.keeper.next_due() == station.clock.now() + 10_000_000
    with pytest.raises(GpuUnavailable, match="tried again by itself"):
        await station.keeper.revert()
    station.world.driver_loaded = True
    await station.later(11)
    assert station.keeper.state().trial is None
    assert station.keeper.state().problem == ""
    assert station.power == 450_000


async def test_a_profile_waits_for_a_driver_that_is_not_there_at_start(station: Station) -> None:
    await settled(station)
    station.world.driver_loaded = False
    keeper = await station.rebooted(orderly=True)
    assert "could not be applied yet" in keeper.state().problem
    station.world.driver_loaded = True
    await station.later(11)
    assert station.power == 300_000
    assert keeper.state().problem == ""
    record = await station.stored()
    assert record is not None
    assert record.distrust == ""


async def test_without_a_driver_a_caller_is_told_and_nothing_is_stored(station: Station) -> None:
    station.world.driver_loaded = False
    with pytest.raises(GpuUnavailable, match="Driver not loaded"):
        await station.keeper.apply(WHOLE)
    with pytest.raises(GpuUnavailable, match="Driver not loaded"):
        await station.keeper.try_(WHOLE, WITHIN)
    assert list(station.folder.iterdir()) == []


async def test_what_cannot_be_stored_is_not_applied(station: Station) -> None:
    station.folder.chmod(0o777)
    with pytest.raises(StoreError, match="written by others"):
        await station.keeper.apply(WHOLE)
    with pytest.raises(StoreError, match="written by others"):
        await station.keeper.try_(WHOLE, WITHIN)
    assert station.power == 450_000


async def test_a_file_that_another_could_have_written_is_not_applied(station: Station) -> None:
    await settled(station)
    await station.keeper.close()
    path = station.folder / f"profile-{GPU}.json"
    table = json.loads(path.read_text())
    table["requested"]["power-limit"] = "480W"
    path.write_text(json.dumps(table))
    path.chmod(0o666)
    keeper = await station.rebooted(orderly=False)
    assert station.power == 450_000
    assert "can be written by others" in keeper.state().problem
    os.unlink(path)


async def test_what_was_reset_on_resume_is_found_after_the_settle_time_and_repaired(station: Station) -> None:
    await settled(station)
    await station.keeper.freeze()
    with pytest.raises(Busy, match="going to sleep"):
        await station.keeper.apply(WHOLE)
    assert station.keeper.next_due() is None
    station.world.resume()
    await station.later(3600)
    assert station.power == 450_000, "frozen"
    station.keeper.thaw()
    await station.later(2)
    assert station.power == 450_000, "settling"
    await station.later(1)
    now = station.now_set
    assert (now.power_limit, now.offsets["graphics/0"]) == (300_000, 120)
    assert now.locked_clocks == {"graphics": (210, 1800)}
    causes = {event.verdict.item: event.verdict.cause for event in station.events if isinstance(event, DriftDetected)}
    assert causes == {"power-limit": "reset-to-default", "offset-graphics": "reset-to-default"}
    repaired = [event.result.item for event in station.events if isinstance(event, DriftRepaired)]
    assert repaired == ["power-limit", "offset-graphics"]
    await station.keeper.check_drift()
    assert verdicts(station) == {
        "persistence": "ok", "power-limit": "ok", "offset-graphics": "ok", "locked-clocks-graphics": "unverifiable",
    }  # fmt: skip


async def test_another_tool_that_insists_wins_and_is_named(station: Station) -> None:
    await settled(station)
    for _ in range(20):
        station.now_set.power_limit = 200_000
        await station.later(61)
    assert station.power == 200_000
    assert verdicts(station)["power-limit"] == "contested"
    repairs = [event for event in station.events if isinstance(event, DriftRepaired)]
    contests = [event for event in station.events if isinstance(event, DriftContested)]
    assert len(repairs) == 3
    assert len(contests) == 1
    await station.keeper.apply(WHOLE)
    assert station.power == 300_000
    await station.keeper.check_drift()
    assert verdicts(station)["power-limit"] == "ok"


async def test_what_stands_is_read_and_never_written(station: Station) -> None:
    await settled(station)
    station.world.calls.clear()
    await station.later(61)
    await station.later(61)
    assert verdicts(station)["power-limit"] == "ok"
    assert not [name for name in station.world.calls if "Set" in name and not name.startswith("nvmlEventSet")]
    assert station.events == []


async def test_a_driver_loaded_anew_is_noticed_by_its_generation(station: Station) -> None:
    await settled(station)
    await station.keeper.check_drift()
    station.world.reload_driver()
    await station.later(61)
    await station.later(61)
    assert station.power == 300_000
    assert station.now_set.locked_clocks == {"graphics": (210, 1800)}


async def test_lost_persistence_sets_again_what_cannot_be_read(station: Station) -> None:
    await settled(station)
    await station.keeper.check_drift()
    station.now_set.persistence = False
    station.now_set.locked_clocks.clear()
    await station.later(61)
    assert station.now_set.persistence
    assert station.now_set.locked_clocks == {"graphics": (210, 1800)}


async def test_a_driver_that_is_away_is_a_problem_and_no_drift(station: Station) -> None:
    await settled(station)
    station.world.driver_loaded = False
    station.world.reload_driver()
    await station.later(61)
    await station.later(61)
    assert "Drift could not be looked for" in station.keeper.state().problem
    assert station.events == []
    station.world.driver_loaded = True
    await station.later(61)
    assert station.power == 300_000
    assert station.keeper.state().problem == ""


async def test_a_reset_leaves_the_defaults_and_no_profile(station: Station) -> None:
    await settled(station)
    results = await station.keeper.reset()
    assert all(result.ok for result in results)
    now = station.now_set
    assert (now.power_limit, now.offsets["graphics/0"], now.locked_clocks) == (450_000, 0, {})
    assert station.fans.now[0] == FanSetting()
    assert await station.stored() is None
    assert station.keeper.next_due() is None
    assert await station.keeper.reset() == ()


async def test_a_reset_reports_nothing_about_settings_that_the_card_never_took(station: Station) -> None:
    station.board.power_settable = False
    applied = {result.item: result.ok for result in await station.keeper.apply(TRIED)}
    assert applied["power-limit"] is False
    results = await station.keeper.reset()
    assert results
    assert all(result.ok for result in results)
    assert "power-limit" not in {result.item for result in results}


async def test_a_trial_outlasts_a_sleep_and_is_then_taken_back(station: Station) -> None:
    await station.keeper.try_(TRIED, WITHIN)
    await station.keeper.freeze()
    await station.keeper.xid(62)
    await station.later(3600)
    assert station.power == 250_000
    with pytest.raises(Busy, match="going to sleep"):
        await station.keeper.confirm()
    station.keeper.thaw()
    await station.keeper.tick()
    assert station.power == 450_000
    (event,) = station.events
    assert isinstance(event, TrialEnded)
    assert "Xid 62" in event.ended.reason


async def test_a_driver_that_goes_away_right_before_applying_leaves_the_profile_as_it_was(station: Station) -> None:
    await settled(station)
    before = await station.stored()
    station.world.fail_next("nvmlDeviceGetCurrentClocksEventReasons", None, 15, 15)
    with pytest.raises(GpuUnavailable, match="GPU is lost"):
        await station.keeper.apply(TRIED)
    assert await station.stored() == before
    assert station.keeper.state().record == before


async def test_what_is_held_keeps_the_helper_running(station: Station) -> None:
    assert station.keeper.held == ""
    await station.keeper.try_(TRIED, WITHIN)
    assert station.keeper.held == "a profile on trial"
    await station.keeper.confirm()
    assert station.keeper.held == "a profile"
    await station.keeper.xid(62)
    assert station.keeper.held == ""


async def test_the_fan_loop_and_the_profile_fit_each_other(station: Station, tmp_path: Path) -> None:
    loop: Fans = FanController(GPU, station.session, station.thread, tmp_path)
    profile = Profile(fans={0: FanSetting("fixed", 70), 1: FanSetting("fixed", 101)})
    access: Access = NvmlAccess(station.thread, station.session, GPU)
    assert loop.settings() == {}
    before, _ = await capture(access, loop, profile, Profile())
    assert before.profile.fans == {0: FanSetting()}
    applied = await apply_profile(access, loop, profile)
    assert [result.ok for result in applied.results] == [True, False]
    assert loop.settings() == {0: FanSetting("fixed", 70), 1: FanSetting()}
    await restore(access, loop, before)
    assert loop.settings() == {0: FanSetting(), 1: FanSetting()}


async def test_what_fails_when_a_trial_is_taken_back_is_tried_again(station: Station) -> None:
    await station.keeper.try_(TRIED, WITHIN)
    station.world.fail_next("nvmlDeviceSetPowerManagementLimit", 999)
    await station.later(21)
    assert station.power == 250_000
    assert "power-limit: setting the power management limit: Unknown error" in station.keeper.state().problem
    await station.later(11)
    assert station.power == 450_000
    assert station.keeper.state().trial is None
    assert station.keeper.state().problem == ""


async def test_what_fails_for_good_when_a_trial_is_taken_back_is_told(station: Station) -> None:
    await station.keeper.try_(TRIED, WITHIN)
    station.world.privileged = False
    for _ in range(3):
        await station.later(21)
    assert station.keeper.state().trial is None
    (event,) = station.events
    assert isinstance(event, TrialEnded)
    assert "power-limit" in {result.item for result in event.results if not result.ok}


async def test_what_the_card_does_not_take_is_no_part_of_the_state_before(station: Station) -> None:
    station.board.power_settable = False
    results = await station.keeper.try_(TRIED, WITHIN)
    assert [result.item for result in results if not result.ok] == ["power-limit"]
    restored = await station.keeper.revert()
    assert all(result.ok for result in restored)


async def test_a_disk_that_fails_after_applying_leaves_the_profile_in_force_and_says_so(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, phases = ProfileStore.save, []

    def full(store: ProfileStore, gpu: str, record: Record) -> None:
        phases.append(record.phase)
        if record.phase != "applying":
            raise StoreError("no space")
        save(store, gpu, record)

    monkeypatch.setattr(ProfileStore, "save", full)
    results = await station.keeper.apply(WHOLE)
    assert all(result.ok for result in results)
    assert phases == ["applying", "probation"]
    assert station.keeper.state().problem == "no space"
    await station.keeper.check_drift()
    assert verdicts(station)["power-limit"] == "ok"


async def test_looking_for_drift_without_a_driver_is_an_error_to_the_caller(station: Station) -> None:
    await settled(station)
    station.world.driver_loaded = False
    station.world.reload_driver()
    with pytest.raises(GpuUnavailable, match="Drift could not be looked for"):
        await station.keeper.check_drift()


async def test_a_reset_without_a_known_default_says_what_it_leaves(station: Station) -> None:
    station.gpu.errors["nvmlDeviceGetPowerManagementDefaultLimit"] = 3
    await settled(station)
    results = {result.item: result for result in await station.keeper.reset()}
    assert not results["power-limit"].ok
    assert "does not tell the default" in results["power-limit"].detail
    assert station.power == 300_000


async def test_an_orderly_stop_does_not_excuse_a_later_crash(station: Station) -> None:
    await settled(station)
    await station.keeper.close()
    await station.killed_and_started()
    keeper = await station.rebooted(orderly=False)
    record = keeper.state().record
    assert record is not None
    assert "not shut down in an orderly way" in record.distrust


async def test_persistence_that_another_switched_on_and_that_is_lost_counts_too(station: Station) -> None:
    station.now_set.persistence = True
    await station.keeper.apply(Profile(locked_clocks={"graphics": (210, 1800)}))
    await station.later(61)
    station.now_set.locked_clocks.clear()
    await station.later(61)
    assert station.now_set.locked_clocks == {}, "nothing tells that it is lost"
    station.now_set.persistence = False
    await station.later(61)
    assert station.now_set.locked_clocks == {"graphics": (210, 1800)}
    assert not station.now_set.persistence
