"""A figure is noted when it has moved, and once a minute."""

from dataclasses import replace

from gpusupervisor.gpu.sample import GpuSensors
from gpusupervisor.state import State
from gpusupervisor.telemetry.gather import BAND, Gatherer
from gpusupervisor.telemetry.records import ACTIVITIES, HEARTBEAT, Point, Series
from tests.arbitration.builders import GIB
from tests.telemetry.builders import EPOCH, SECOND
from tests.telemetry.states import CARD, running, state

HOLDING = Series("holding", CARD, "app")
ACTIVITY = Series("activity", "", "app")


def noted(points: list[Point], series: Series) -> list[int | None]:
    return [point.value for point in points if point.series == series]


def test_everything_is_noted_at_first() -> None:
    now = state(needs_vram=20 * GIB)
    points = {point.series: point.value for point in Gatherer().points(now, EPOCH)}
    assert points == {
        Series("used", CARD): 24 * GIB - GIB // 2 - 10 * GIB,
        Series("free", CARD): 10 * GIB,
        Series("unattributed", CARD): 0,
        HOLDING: 8 * GIB,
        ACTIVITY: ACTIVITIES.index("busy"),
        Series("need", "", "app"): 20 * GIB,
        Series("shortfall", CARD, "app"): 2 * GIB,
    }


def test_what_stands_still_is_noted_once_a_minute() -> None:
    gatherer = Gatherer()
    counts = [len(gatherer.points(state("idle"), EPOCH + n * SECOND)) for n in range(121)]
    assert [number for number, count in enumerate(counts) if count] == [0, 60, 120]
    assert counts[60] == counts[0]


def test_little_moves_are_not_noted_until_they_add_up() -> None:
    gatherer, sizes = Gatherer(), [8 * GIB + n * (BAND // 4) for n in range(9)]
    found = [noted(gatherer.points(state("idle", size / GIB), EPOCH + n), HOLDING) for n, size in enumerate(sizes)]
    assert [number for number, each in enumerate(found) if each] == [0, 4, 8]


def test_a_change_of_activity_is_noted_at_once_and_absence_is_not_repeated() -> None:
    gatherer = Gatherer()
    gatherer.points(state("busy"), EPOCH)
    points = gatherer.points(state("absent"), EPOCH + SECOND)
    assert noted(points, ACTIVITY) == [0]
    assert noted(points, HOLDING) == [0]
    later = gatherer.points(state("absent"), EPOCH + HEARTBEAT + SECOND)
    assert {point.series.tenant for point in later} == {""}


def test_what_is_not_known_any_more_is_noted_once() -> None:
    gatherer = Gatherer()
    gatherer.points(state("idle"), EPOCH)
    asleep = gatherer.points(state("idle", asleep=True), EPOCH + SECOND)
    assert noted(asleep, Series("used", CARD)) == [None]
    assert noted(gatherer.points(state("idle", asleep=True), EPOCH + HEARTBEAT + SECOND), Series("used", CARD)) == []
    awake = gatherer.points(state("idle"), EPOCH + HEARTBEAT + 2 * SECOND)
    assert noted(awake, Series("free", CARD)) == [10 * GIB]
    blind = gatherer.points(state("idle", holders=(running(8), running(None))), EPOCH + HEARTBEAT + 3 * SECOND)
    assert noted(blind, HOLDING) == [None]


def test_sensors_are_noted_where_there_are_any_and_their_flicker_is_not() -> None:
    gatherer = Gatherer()
    told = [GpuSensors(60_000, 50, 0), GpuSensors(60_400, 51, 1), GpuSensors(61_000, 52, 0), GpuSensors(90_000, 53, 40)]
    found = [gatherer.points(sensed(each), EPOCH + n * SECOND) for n, each in enumerate(told)]
    of = {name: [noted(points, Series(name, CARD)) for points in found] for name in ("power", "temperature")}
    assert of == {"power": [[60_000], [], [], [90_000]], "temperature": [[50], [], [], [53]]}
    assert [noted(points, Series("utilization", CARD)) for points in found] == [[0], [], [], [40]]
    assert noted(gatherer.points(sensed(GpuSensors()), EPOCH + 4 * SECOND), Series("power", CARD)) == [None]


def sensed(sensors: GpuSensors) -> State:
    """An idle card of which the sensors tell this."""
    idle = state("idle")
    (gpu,) = idle.sample.gpus
    return replace(idle, sample=replace(idle.sample, gpus=(replace(gpu, sensors=sensors),)))


def test_a_clock_that_was_set_back_does_not_stop_it() -> None:
    gatherer = Gatherer()
    gatherer.points(state("idle"), EPOCH)
    assert gatherer.points(state("idle"), EPOCH - 1000 * SECOND)
