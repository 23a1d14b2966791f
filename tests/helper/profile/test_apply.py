"""Applying a profile through NVML: item by item, read back."""

import asyncio

import pytest

from gpusupervisor.helper.profile import access as access_module
from gpusupervisor.helper.profile.access import NvmlAccess
from gpusupervisor.helper.profile.apply import Applied, Before, apply_profile, capture, restore
from gpusupervisor.helper.values import Capability, FanSetting, ItemResult, Profile
from tests.helper.profile.station import GPU, RecordingCard, RecordingFans, Station, capabilities

WHOLE = Profile(
    power_limit=300_000,
    offsets={"memory": 1000, "graphics": 120},
    locked_clocks={"memory": (405, 5001), "graphics": (210, 1800)},
    persistence=True,
    fans={1: FanSetting("fixed", 60), 0: FanSetting("fixed", 50)},
)


def access(station: Station) -> NvmlAccess:
    return NvmlAccess(station.thread, station.session, GPU)


async def apply(station: Station, profile: Profile) -> Applied:
    return await apply_profile(access(station), station.fans, profile)


def by_item(results: tuple[ItemResult, ...]) -> dict[str, ItemResult]:
    return {result.item: result for result in results}


async def test_the_order_is_safe() -> None:
    card, fans = RecordingCard(capabilities(locked=Capability("unverifiable", "", 210, 10_000))), RecordingFans()
    log: list[tuple[object, ...]] = []
    card.calls = fans.calls = log
    profile = Profile(WHOLE.power_limit, {"memory": 500, "graphics": 120}, WHOLE.locked_clocks, True, WHOLE.fans)
    applied = await apply_profile(card, fans, profile)
    order = [
        "persistence", "power-limit", "locked-clocks-graphics", "locked-clocks-memory", "offset-graphics",
        "offset-memory", "fan-0", "fan-1",
    ]  # fmt: skip
    assert [call[0] for call in log] == order
    assert [result.item for result in applied.results] == order
    assert all(result.ok for result in applied.results)


async def test_a_whole_profile_is_set_and_read_back(station: Station) -> None:
    applied = await apply(station, WHOLE)
    now = station.now_set
    assert (now.power_limit, now.persistence) == (300_000, True)
    assert (now.offsets["graphics/0"], now.offsets["memory/0"]) == (120, 1000)
    assert now.locked_clocks == {"graphics": (210, 1800), "memory": (405, 5001)}
    assert station.fans.now[1] == FanSetting("fixed", 60)
    results = by_item(applied.results)
    assert results["power-limit"] == ItemResult("power-limit", True, "300 W", "300 W")
    assert results["locked-clocks-graphics"].ok
    assert results["locked-clocks-graphics"].accepted == ""
    assert "no getter" in results["locked-clocks-graphics"].detail
    assert applied.accepted == Profile(300_000, WHOLE.offsets, {}, True, WHOLE.fans)
    assert applied.unreadable == Profile(locked_clocks=WHOLE.locked_clocks)


async def test_a_snapped_offset_is_accepted_as_the_driver_made_it(station: Station) -> None:
    station.board.offset_step = 2
    applied = await apply(station, Profile(offsets={"memory": 465}))
    assert applied.accepted.offsets == {"memory": 464}
    assert applied.results == (
        ItemResult("offset-memory", True, "+465 MHz", "+464 MHz", "the driver made +464 MHz of +465 MHz"),
    )
    again = await apply(station, Profile(offsets={"memory": 465}))
    assert again == applied


async def test_an_offset_that_is_not_reported_cannot_be_read_back(station: Station) -> None:
    station.board.offsets_reported = False
    applied = await apply(station, Profile(offsets={"graphics": 150}))
    assert station.now_set.offsets["graphics/0"] == 150
    assert applied.unreadable.offsets == {"graphics": 150}
    assert not applied.accepted.offsets
    (result,) = applied.results
    assert result.ok
    assert result.accepted == ""
    assert "does not report" in result.detail


async def test_a_laptop_refuses_power_and_takes_the_rest(station: Station) -> None:
    station.board.power_settable = False
    applied = await apply(station, Profile(power_limit=300_000, persistence=True))
    results = by_item(applied.results)
    assert not results["power-limit"].ok
    assert "can be read but not set" in results["power-limit"].detail
    assert results["persistence"].ok
    assert station.now_set.persistence


async def test_without_permission_every_item_says_so_and_nothing_is_set(station: Station) -> None:
    await access(station).ask(lambda card: card.capabilities())
    station.world.privileged = False
    applied = await apply(station, Profile(300_000, {"graphics": 120}, {"graphics": (210, 1800)}, True))
    assert not any(result.ok for result in applied.results)
    assert all("CAP_SYS_ADMIN" in result.detail for result in applied.results)
    assert applied.in_force == Profile()


async def test_one_setter_that_fails_does_not_stop_the_rest(station: Station) -> None:
    await access(station).ask(lambda card: card.capabilities())
    station.world.fail_next("nvmlDeviceSetPowerManagementLimit", 999)
    applied = await apply(station, Profile(300_000, {"graphics": 120}))
    results = by_item(applied.results)
    assert results["power-limit"].detail == "setting the power management limit: Unknown error"
    assert results["offset-graphics"].ok
    assert applied.accepted == Profile(offsets={"graphics": 120})


async def test_a_driver_that_takes_a_value_without_effect_did_not_accept_it() -> None:
    class Deaf(RecordingCard):
        def set_power_limit(self, milliwatts: int) -> int:
            return self.power

    applied = await apply_profile(Deaf(capabilities()), RecordingFans(), Profile(300_000))
    assert applied.results == (
        ItemResult("power-limit", False, "300 W", "450 W", "the driver took it without effect: still 450 W"),
    )
    assert applied.accepted == Profile()


async def test_what_can_be_read_no_more_after_setting_is_set_but_unverified(station: Station) -> None:
    await access(station).ask(lambda card: card.capabilities())
    station.world.fail_next("nvmlDeviceGetPersistenceMode", None, None, 999)
    applied = await apply(station, Profile(persistence=True))
    assert applied.results == (
        ItemResult(
            "persistence", True, "on", "", "set, but not read back: reading the persistence mode: Unknown error"
        ),
    )
    assert applied.unreadable == Profile(persistence=True)


async def test_the_state_before_is_restored_exactly(station: Station) -> None:
    await apply(station, Profile(400_000, {"graphics": 60}, {}, False, {0: FanSetting("fixed", 44)}))
    known = Profile(locked_clocks={"memory": (405, 5001)})
    before, refused = await capture(access(station), station.fans, WHOLE, known)
    assert refused == ()
    assert before == Before(
        Profile(
            400_000,
            {"graphics": 60, "memory": 0},
            {"memory": (405, 5001)},
            False,
            {0: FanSetting("fixed", 44), 1: FanSetting()},
        ),
        ("graphics",),
    )
    await apply(station, WHOLE)
    restored = await restore(access(station), station.fans, before)
    assert all(result.ok for result in restored.results)
    now = station.now_set
    assert (now.power_limit, now.persistence) == (400_000, False)
    assert (now.offsets["graphics/0"], now.offsets["memory/0"]) == (60, 0)
    assert now.locked_clocks == {"memory": (405, 5001)}
    assert station.fans.now == {0: FanSetting("fixed", 44), 1: FanSetting()}


async def test_an_unreported_offset_before_is_what_was_set_last(station: Station) -> None:
    station.board.offsets_reported = False
    first = await apply(station, Profile(offsets={"graphics": 150}))
    before, _ = await capture(access(station), station.fans, Profile(offsets={"graphics": 90}), first.unreadable)
    assert before.profile.offsets == {"graphics": 150}
    unknown, _ = await capture(access(station), station.fans, Profile(offsets={"graphics": 90}), Profile())
    assert unknown.profile.offsets == {"graphics": 0}


async def test_what_cannot_be_read_before_is_not_tried(station: Station) -> None:
    await access(station).ask(lambda card: card.capabilities())
    station.world.fail_next("nvmlDeviceGetPowerManagementLimit", 999)
    _, refused = await capture(access(station), station.fans, Profile(300_000, persistence=True), Profile())
    assert [(result.item, result.ok) for result in refused] == [("power-limit", False)]
    assert "could not be set again" in refused[0].detail


async def test_a_lost_driver_is_opened_again_at_the_next_call(station: Station) -> None:
    await apply(station, Profile(persistence=True))
    generation = access(station).generation
    station.world.reload_driver()
    applied = await apply(station, Profile(power_limit=310_000))
    assert applied.results[0].ok
    assert station.now_set.power_limit == 310_000
    assert access(station).generation == generation + 1


async def test_a_driver_that_hangs_fails_the_items_behind_it_and_the_fans_are_set(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    await access(station).ask(lambda card: card.capabilities())
    monkeypatch.setattr(access_module, "DEADLINE", 0.2)
    station.world.hang("nvmlDeviceSetPowerManagementLimit")
    applied = await apply(station, Profile(300_000, {"graphics": 120}, fans={0: FanSetting("fixed", 60)}))
    results = by_item(applied.results)
    assert "did not answer within 0.2 s" in results["power-limit"].detail
    assert "has not returned yet" in results["offset-graphics"].detail
    assert results["fan-0"].ok
    station.world.release_hanging()
    async with asyncio.timeout(10):
        while station.thread.wedged_since is not None:
            await asyncio.sleep(0.01)
