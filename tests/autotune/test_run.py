"""A sweep from its first look to the state before."""

import asyncio

import pytest

from gpusupervisor.autotune.curve import Tuning
from gpusupervisor.autotune.points import Point, subsample, sweep
from gpusupervisor.autotune.run import Rules, Stopped
from gpusupervisor.errors import GpuUnavailable, InvalidArgument, NotSupported
from tests.autotune.rig import BEFORE, RULES, Rig

POINTS = sweep(subsample(range(150_000, 450_001, 5_000), 7))
LIMITS = [point.power_limit for point in POINTS]


@pytest.fixture
def rig() -> Rig:
    return Rig()


def reported_curve(rig: Rig) -> tuple[int, ...]:
    result = rig.reported[-1][2]
    assert isinstance(result, Tuning)
    assert result.proposal is None
    return tuple(each.point.power_limit for each in result.curve)


async def test_the_whole_curve_is_measured_and_the_efficient_point_proposed(rig: Rig) -> None:
    tuning = await rig.tune(*POINTS)
    assert [each.point for each in tuning.curve] == list(POINTS)
    assert [each.power for each in tuning.curve] == [min(limit, 400_000) for limit in LIMITS]
    speeds = [each.throughput for each in tuning.curve]
    assert speeds == sorted(speeds)
    assert tuning.proposal is not None
    assert tuning.proposal.point == Point(350_000)  # 300 W is 9 % slower than the best
    assert (tuning.unit, tuning.tolerance) == ("token", 5)


async def test_what_the_user_gives_up_decides(rig: Rig) -> None:
    strict = await rig.tune(*POINTS, rules=Rules(settle=0, period=0, tolerance=0))
    lax = await rig.tune(*POINTS, rules=Rules(settle=0, period=0, tolerance=50))
    assert strict.proposal is not None
    assert strict.proposal.point.power_limit == 400_000  # 450 W is no faster
    assert lax.proposal is not None
    assert lax.proposal.point.power_limit == 150_000


async def test_the_counter_gives_the_same_curve(rig: Rig) -> None:
    counted = await Rig(counter=True).tune(*POINTS)
    told = await rig.tune(*POINTS)
    for one, other in zip(counted.curve, told.curve, strict=True):
        assert abs(one.power - other.power) <= other.power // 20


async def test_everything_is_set_back_once_and_nothing_is_applied(rig: Rig) -> None:
    await rig.tune(*POINTS)
    assert rig.done == ["prepare", *(f"set {limit}" for limit in LIMITS), "restore"]
    assert rig.now_set == BEFORE


async def test_one_point_is_a_sweep(rig: Rig) -> None:
    tuning = await rig.tune(Point(200_000, 45))
    assert tuning.proposal == tuning.curve[0]
    assert tuning.curve[0].point == Point(200_000, 45)


async def test_progress_is_told_with_what_there_is(rig: Rig) -> None:
    await rig.tune(*POINTS)
    progress = [percent for percent, *_ in rig.reported]
    assert progress == sorted(progress)
    assert rig.reported[3][1] == "point 3 of 7"
    results = [len(result.curve) for *_, result in rig.reported if isinstance(result, Tuning)]
    assert results == [0, 1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("xid", "Xid 31"),
        ("hot", "87 °C"),
        ("blind", "temperature"),
        ("throttle", "hw-thermal-slowdown"),
        ("gone", "is lost"),
    ],
)
async def test_whatever_goes_wrong_on_the_card_stops_it(rig: Rig, what: str, why: str) -> None:
    rig.at_look = {90: what}
    with pytest.raises((Stopped, GpuUnavailable), match=why):
        await rig.tune(*POINTS)
    assert rig.done[-1] == "restore"
    assert rig.done.count("restore") == 1
    assert rig.now_set == BEFORE
    assert not rig.working
    assert reported_curve(rig) == tuple(LIMITS[: len(reported_curve(rig))])
    assert len(reported_curve(rig)) < len(LIMITS)


async def test_a_limit_that_is_not_taken_stops_it(rig: Rig) -> None:
    rig.refused = frozenset({LIMITS[2]})
    with pytest.raises(GpuUnavailable, match="does not take"):
        await rig.tune(*POINTS)
    assert rig.done.count("restore") == 1
    assert reported_curve(rig) == (LIMITS[0], LIMITS[1])


async def test_an_engine_that_fails_stops_it(rig: Rig) -> None:
    rig.load_fails_at = 3
    with pytest.raises(GpuUnavailable, match="crashed"):
        await rig.tune(*POINTS)
    assert rig.done[-1] == "restore"
    assert reported_curve(rig) == (LIMITS[0],)


async def test_power_that_is_not_told_any_more_stops_it(rig: Rig) -> None:
    rig.at_look = dict.fromkeys(range(30, 400), "no-power")
    with pytest.raises(Stopped, match="no power"):
        await rig.tune(*POINTS)
    assert rig.now_set == BEFORE


async def test_cancelled_it_puts_everything_back_first(rig: Rig) -> None:
    rig.at_look = {90: "cancel"}
    rig.restoring = asyncio.Event()
    tuning = asyncio.ensure_future(rig.tune(*POINTS))
    async with asyncio.timeout(5):
        while "restore" not in rig.done:
            await asyncio.sleep(0)
    assert rig.task is not None
    rig.task.cancel()  # impatience changes nothing
    for _ in range(5):
        await asyncio.sleep(0)
    assert not rig.task.done()
    rig.restoring.set()
    with pytest.raises(asyncio.CancelledError):
        await tuning
    assert rig.done.count("restore") == 1
    assert rig.now_set == BEFORE
    assert not rig.working


async def test_a_state_that_cannot_be_set_back_is_what_is_told(rig: Rig) -> None:
    rig.restore_fails = True
    back = "The previous state could not be restored: no answer. The helper does so automatically, within "
    with pytest.raises(Stopped, match=f"^{back}"):
        await rig.tune(*POINTS)
    rig.load_fails_at = rig.runs + 3
    with pytest.raises(Stopped, match=f"^the engine has crashed. {back}"):
        await rig.tune(*POINTS)


async def test_a_card_without_power_is_not_supported_and_left_alone(rig: Rig) -> None:
    rig.tells_power = False
    with pytest.raises(NotSupported, match="neither its power nor its energy"):
        await rig.tune(*POINTS)
    assert rig.done == []


async def test_a_card_that_is_hot_already_is_left_alone(rig: Rig) -> None:
    rig.temperature = 90
    with pytest.raises(Stopped, match="Nothing was tried"):
        await rig.tune(*POINTS)
    assert rig.done == []


async def test_a_load_that_is_too_short_is_refused_before_anything_is_set(rig: Rig) -> None:
    rig.tokens = 20
    with pytest.raises(NotSupported, match="too soon"):
        await rig.tune(*POINTS)
    assert rig.done == ["prepare"]


@pytest.mark.parametrize("tolerance", [-1, 100])
async def test_a_tolerance_that_means_nothing_is_refused(rig: Rig, tolerance: int) -> None:
    with pytest.raises(InvalidArgument):
        await rig.tune(*POINTS, rules=Rules(tolerance=tolerance))
    with pytest.raises(InvalidArgument):
        await rig.tune()
    assert rig.done == []


def test_a_point_stays_set_for_as_long_as_all_of_it_may_take() -> None:
    assert RULES.settle + RULES.longest_run < Rules().within <= 600_000_000
