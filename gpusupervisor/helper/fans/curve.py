"""What a fan's setting asks for at a temperature. Pure; whole degrees and whole percent from end to end."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gpusupervisor.helper.values import FanSetting

Point = tuple[int, int]
"""(degrees, percent)."""


@dataclass(frozen=True, slots=True)
class CurveState:
    """Where on its curve a fan stands."""

    degrees: int
    """The temperature that its speed is for: the latest one, or a warmer one that it has not come down from yet."""
    cooler_since: int | None = None
    """Since when it has been cooler by the hysteresis, in microseconds of the domain clock."""


def percent_at(points: Sequence[Point], degrees: int) -> int:
    """The curve at a temperature: straight between its points (rounded up), level before the first, after the last."""
    if degrees <= points[0][0]:
        return points[0][1]
    for (left, low), (right, high) in pairwise(points):
        if degrees < right:
            return low - (-(degrees - left) * (high - low) // (right - left))
    return points[-1][1]


def follow(setting: FanSetting, state: CurveState | None, degrees: int, now: int) -> CurveState:
    """The state after a new temperature: up at once, down when it has been cooler enough for long enough."""
    if state is None or degrees >= state.degrees:
        return CurveState(degrees)
    if degrees > state.degrees - setting.hysteresis:
        return CurveState(state.degrees)
    since = now if state.cooler_since is None else state.cooler_since
    if now - since >= setting.spin_down_delay:
        return CurveState(degrees)
    return CurveState(state.degrees, since)


def wanted(setting: FanSetting, state: CurveState | None, low: int, high: int) -> int | None:
    """Percent within what the card takes; None: automatic.

    state: of a curve; None when no temperature is known yet, in which case a curve asks for automatic.
    """
    if setting.mode == "fixed":
        return min(max(setting.percent, low), high)
    if setting.mode == "automatic" or not setting.points or state is None or state.degrees < setting.zero_rpm_below:
        return None
    return min(max(percent_at(setting.points, state.degrees), low), high)
