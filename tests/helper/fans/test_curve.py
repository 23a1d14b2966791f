"""What a setting asks for at a temperature."""

import pytest

from gpusupervisor.helper.fans.curve import CurveState, follow, percent_at, wanted
from gpusupervisor.helper.values import FanSetting

SECOND = 1_000_000
POINTS = ((40, 30), (60, 50), (80, 100))
CURVE = FanSetting("curve", points=POINTS)


@pytest.mark.parametrize(
    ("degrees", "percent"), [(10, 30), (40, 30), (41, 31), (50, 40), (60, 50), (61, 53), (79, 98), (80, 100), (99, 100)]
)
def test_a_curve_is_straight_between_its_points_and_level_beyond(degrees: int, percent: int) -> None:
    assert percent_at(POINTS, degrees) == percent


def test_a_fraction_is_rounded_to_the_faster_side() -> None:
    assert percent_at(((40, 30), (70, 40)), 41) == 31


def test_a_curve_of_one_point_is_level() -> None:
    assert [percent_at(((50, 44),), degrees) for degrees in (20, 50, 90)] == [44, 44, 44]


def test_it_speeds_up_at_once_and_slows_down_after_hysteresis_and_delay() -> None:
    state = follow(CURVE, None, 60, 0)
    assert state == CurveState(60)
    state = follow(CURVE, state, 70, SECOND)
    assert state == CurveState(70)
    state = follow(CURVE, state, 68, 2 * SECOND)  # within the hysteresis
    assert state == CurveState(70)
    state = follow(CURVE, state, 67, 3 * SECOND)
    assert state == CurveState(70, 3 * SECOND)
    state = follow(CURVE, state, 60, 7 * SECOND)
    assert state.degrees == 70
    state = follow(CURVE, state, 61, 8 * SECOND)
    assert state == CurveState(61)


def test_a_warm_moment_starts_the_delay_over() -> None:
    state = follow(CURVE, CurveState(70, 0), 69, 4 * SECOND)
    state = follow(CURVE, state, 60, 5 * SECOND)
    assert state == CurveState(70, 5 * SECOND)


def test_below_the_zero_rpm_threshold_the_fan_is_automatic() -> None:
    setting = FanSetting("curve", points=POINTS, zero_rpm_below=50, hysteresis=5, spin_down_delay=0)
    state = follow(setting, None, 49, 0)
    assert wanted(setting, state, 30, 100) is None
    state = follow(setting, state, 50, 1)
    assert wanted(setting, state, 30, 100) == 40
    state = follow(setting, state, 46, 2)
    assert wanted(setting, state, 30, 100) == 40
    state = follow(setting, state, 45, 3)
    assert wanted(setting, state, 30, 100) is None


def test_what_the_card_does_not_take_is_clamped() -> None:
    assert wanted(FanSetting("fixed", percent=5), None, 30, 100) == 30
    assert wanted(FanSetting("fixed", percent=100), None, 30, 90) == 90
    assert wanted(FanSetting("curve", points=((40, 0),)), CurveState(40), 30, 100) == 30


def test_a_curve_without_a_temperature_or_without_points_is_automatic() -> None:
    assert wanted(CURVE, None, 30, 100) is None
    assert wanted(FanSetting("curve"), CurveState(50), 30, 100) is None
    assert wanted(FanSetting(), CurveState(50), 30, 100) is None
