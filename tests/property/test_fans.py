"""Curves and fail-safe, for any setting, temperature and history."""

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.helper.fans.curve import CurveState, follow, percent_at, wanted
from gpusupervisor.helper.fans.safety import Safety, judge
from gpusupervisor.helper.values import FanSetting, Temperatures

SECOND = 1_000_000
DEGREES = st.integers(1, 129)


@st.composite
def curves(draw: st.DrawFn) -> FanSetting:
    degrees = sorted(draw(st.sets(st.integers(0, 110), min_size=1, max_size=8)))
    percents = sorted(draw(st.lists(st.integers(0, 100), min_size=len(degrees), max_size=len(degrees))))
    return FanSetting(
        "curve",
        points=tuple(zip(degrees, percents, strict=True)),
        hysteresis=draw(st.integers(0, 15)),
        spin_down_delay=draw(st.integers(0, 20)) * SECOND,
        zero_rpm_below=draw(st.integers(0, 70)),
    )


@st.composite
def ranges(draw: st.DrawFn) -> tuple[int, int]:
    low = draw(st.integers(0, 99))
    return low, draw(st.integers(low + 1, 100))


@given(curves(), DEGREES, DEGREES)
def test_a_curve_never_falls_with_the_temperature_and_stays_within_its_points(
    setting: FanSetting, one: int, other: int
) -> None:
    cooler, warmer = sorted((one, other))
    low, high = percent_at(setting.points, cooler), percent_at(setting.points, warmer)
    assert setting.points[0][1] <= low <= high <= setting.points[-1][1]


@given(
    st.one_of(curves(), st.builds(FanSetting, mode=st.just("fixed"), percent=st.integers(-50, 300))), ranges(), DEGREES
)
def test_what_is_asked_of_a_fan_is_always_within_what_the_card_takes(
    setting: FanSetting, allowed: tuple[int, int], degrees: int
) -> None:
    asked = wanted(setting, CurveState(degrees), *allowed)
    assert asked is None or allowed[0] <= asked <= allowed[1]
    assert (asked is None) == (setting.mode == "curve" and degrees < setting.zero_rpm_below)


@given(curves(), st.lists(st.tuples(DEGREES, st.integers(0, 10)), min_size=1, max_size=40), ranges())
def test_a_fan_is_never_slower_than_its_curve_asks_for(
    setting: FanSetting, history: list[tuple[int, int]], allowed: tuple[int, int]
) -> None:
    state, now = None, 0
    for degrees, seconds in history:
        now += seconds * SECOND
        state = follow(setting, state, degrees, now)
        asked = wanted(setting, state, *allowed)
        least = wanted(setting, CurveState(degrees), *allowed)
        assert state.degrees >= degrees
        if least is not None:
            assert asked is not None
            assert asked >= least


@given(curves(), st.lists(DEGREES, max_size=20), DEGREES, ranges())
def test_a_steady_temperature_brings_every_fan_onto_its_curve(
    setting: FanSetting, history: list[int], steady: int, allowed: tuple[int, int]
) -> None:
    state = None
    for second, degrees in enumerate(history):
        state = follow(setting, state, degrees, second * SECOND)
    for second in range(len(history), len(history) + 30):
        state = follow(setting, state, steady, second * SECOND)
    assert state is not None
    assert state.degrees - max(setting.hysteresis, 1) < steady <= state.degrees


@given(st.lists(st.one_of(st.none(), DEGREES), max_size=60), st.integers(3, 10))
def test_a_missing_temperature_always_ends_in_safety(history: list[int | None], missing: int) -> None:
    safety = Safety()
    for second, degrees in enumerate([*history, *[None] * missing]):
        safety = judge(safety, Temperatures(degrees, 92, 95), 100_000, second * SECOND)
    assert safety.trip is not None


@given(st.lists(st.one_of(st.none(), DEGREES), max_size=60), st.integers(92, 129))
def test_a_critical_temperature_is_never_ours(history: list[int | None], hot: int) -> None:
    safety = Safety()
    for second, degrees in enumerate([*history, hot]):
        safety = judge(safety, Temperatures(degrees, 92, 95), 100_000, second * SECOND)
    assert safety.trip is not None
