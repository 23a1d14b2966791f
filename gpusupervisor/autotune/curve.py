"""What was measured at each point, and which of them is the efficient one. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpusupervisor.autotune.points import Point
from gpusupervisor.clock import MICROSECONDS

AVERAGED = 1 * MICROSECONDS
"""The power that most cards tell is the mean of the last second."""


@dataclass(frozen=True, slots=True)
class Look:
    """The card at one moment; None = not told."""

    at: int
    """Microseconds of the domain clock."""
    power: int | None
    """mW."""
    temperature: int | None
    """Degrees Celsius."""
    reasons: frozenset[str] = frozenset()
    """What holds the clocks down, e.g. "sw-power-cap", "hw-thermal-slowdown"."""
    energy: int | None = None
    """mJ that the card has used since the driver was loaded."""
    xids: tuple[int, ...] = ()
    """Errors that the driver reported since the last look."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the load did in one run."""

    units: int
    """Tokens, images: at least one."""
    duration: int
    """Microseconds that it worked on them: at least one, loading not counted."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One point of the curve."""

    point: Point
    """As the card accepted it."""
    work: Work
    power: int
    """mW while it worked, the mean."""
    hottest: int
    """Degrees Celsius."""
    reasons: frozenset[str]
    """Everything that held the clocks down at some time."""

    @property
    def throughput(self) -> float:
        """Units a second."""
        return float(_throughput(self))

    @property
    def energy_per_unit(self) -> float:
        """mJ."""
        return float(_energy(self))


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a sweep found, so far or as a whole."""

    unit: str
    """What throughput counts, e.g. "token"."""
    tolerance: int
    """Percent of the best throughput that may be given up."""
    curve: tuple[Measured, ...] = ()
    """In the order of measuring."""
    proposal: Measured | None = None
    """The efficient point; None unless the whole curve was measured."""
    profile: str = ""
    """The profile to try, in JSON: the stored one with the proposal in it; empty without a proposal."""


def mean_power(looks: Sequence[Look], begin: int, end: int) -> int | None:
    """mW between two instants: by the energy counter where there is one, else by what power was told.

    None when neither was told.
    """
    within = [look for look in looks if begin <= look.at <= end]
    counted = [(look.at, look.energy) for look in within if look.energy is not None]
    if len(counted) > 1 and counted[-1][1] > counted[0][1]:
        return round((counted[-1][1] - counted[0][1]) * MICROSECONDS / (counted[-1][0] - counted[0][0]))
    told = [(look.at, look.power) for look in within if look.power is not None]
    powers = [power for at, power in told if at - begin >= AVERAGED] or [power for _, power in told]
    return round(sum(powers) / len(powers)) if powers else None


def measured(point: Point, work: Work, looks: Sequence[Look], end: int) -> Measured | None:
    """A point from the looks during a run that ended at `end`; None when power or temperature was not told."""
    power = mean_power(looks, end - work.duration, end)
    temperatures = [look.temperature for look in looks if look.temperature is not None]
    if power is None or not temperatures:
        return None
    reasons = frozenset[str]().union(*(look.reasons for look in looks))
    return Measured(point, work, power, max(temperatures), reasons)


def propose(curve: Sequence[Measured], tolerance: int) -> Measured | None:
    """The measured point with the least energy per unit, of those no more than `tolerance` percent below the fastest.

    Of equal ones the faster, then the one with the lower limit. None when nothing was measured.
    """
    if not curve:
        return None
    needed = max(_throughput(each) for each in curve) * Fraction(100 - tolerance, 100)
    fast_enough = [each for each in curve if _throughput(each) >= needed]
    return min(fast_enough, key=lambda each: (_energy(each), -_throughput(each), each.point.power_limit))


def _throughput(each: Measured) -> Fraction:
    return Fraction(each.work.units * MICROSECONDS, each.work.duration)


def _energy(each: Measured) -> Fraction:
    return Fraction(each.power * each.work.duration, MICROSECONDS * each.work.units)
