"""When fans are taken out of our hands: a pure state machine. Safe is automatic, never "as it was"."""

from dataclasses import dataclass, replace
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.helper.values import Temperatures

Cause = Literal["temperature-missing", "temperature-stuck", "critical", "write-failed", "not-following", "contested"]

BAD_TICKS = 3
"""Readings in a row that cannot be used before the fans are given back."""
RECOVERED_AFTER = 30 * MICROSECONDS
"""All must have been well for so long before the fans are taken again."""
COOLED_BY = 10
"""Degrees below critical that count as cool again."""
CRITICAL = 90
"""Where the card tells no threshold."""
BEFORE_SHUTDOWN = 3
STUCK_AFTER = 30 * MICROSECONDS
STUCK_POWER = 40_000
"""mW: a change of power by this, and by half, that lasts moves a temperature that is really measured."""
FAILURES_KEPT = 600 * MICROSECONDS
FAILURES_ALLOWED = 3
"""Within FAILURES_KEPT; with one more we stop for good."""
_RECOVERS: frozenset[Cause] = frozenset({"temperature-missing", "temperature-stuck", "critical", "write-failed"})


@dataclass(frozen=True, slots=True)
class Trip:
    """Why the fans are not in our hands."""

    cause: Cause
    reason: str
    for_good: bool = False
    """Until they are set anew."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A temperature that has read the same, and the power at which it began to."""

    degrees: int
    power: int
    differs_since: int | None = None
    """Since when the power has been far from that."""


@dataclass(frozen=True, slots=True)
class Safety:
    """All that is remembered from tick to tick."""

    trip: Trip | None = None
    bad_ticks: int = 0
    well_since: int | None = None
    """While tripped: since when nothing has been wrong."""
    unchanged: Unchanged | None = None
    failures: tuple[int, ...] = ()
    """When writes failed lately."""


def critical(temperatures: Temperatures) -> int:
    """Degrees from which on the fans are not ours: where the hardware throttles."""
    if temperatures.slowdown is not None:
        return temperatures.slowdown
    return CRITICAL if temperatures.shutdown is None else temperatures.shutdown - BEFORE_SHUTDOWN


def judge(safety: Safety, temperatures: Temperatures, power: int | None, now: int) -> Safety:
    """The state after a reading. power: mW, None when it is not told (a stuck sensor cannot be found out then)."""
    unchanged = _watch(safety.unchanged, temperatures.gpu, power, now)
    since_when = None if unchanged is None else unchanged.differs_since
    stuck = since_when is not None and now - since_when >= STUCK_AFTER
    bad = temperatures.gpu is None or stuck
    safety = replace(safety, unchanged=unchanged, bad_ticks=safety.bad_ticks + 1 if bad else 0)
    found = _trouble(safety, temperatures, stuck=stuck)
    if safety.trip is None:
        return safety if found is None else replace(safety, trip=found, well_since=None)
    cool = temperatures.gpu is not None and temperatures.gpu <= critical(temperatures) - COOLED_BY
    if bad or not cool or safety.trip.for_good:
        return replace(safety, well_since=None)
    since = now if safety.well_since is None else safety.well_since
    if now - since >= RECOVERED_AFTER:
        return replace(safety, trip=None, well_since=None)
    return replace(safety, well_since=since)


def failed(safety: Safety, cause: Cause, reason: str, now: int, *, hopeless: bool = False) -> Safety:
    """The state after something that we did came to nothing. hopeless: it will not go better another time."""
    if safety.trip is not None and safety.trip.for_good:
        return safety
    failures = (*(at for at in safety.failures if now - at < FAILURES_KEPT), now)
    for_good = hopeless or cause not in _RECOVERS or len(failures) > FAILURES_ALLOWED
    return replace(safety, trip=Trip(cause, reason, for_good), well_since=None, failures=failures)


def _trouble(safety: Safety, temperatures: Temperatures, *, stuck: bool) -> Trip | None:
    if temperatures.gpu is not None and temperatures.gpu >= critical(temperatures):
        return Trip("critical", "the GPU has reached its critical temperature")
    if safety.bad_ticks < BAD_TICKS:
        return None
    if stuck:
        return Trip("temperature-stuck", "the temperature has stayed the same although the power changed a lot")
    return Trip("temperature-missing", "the temperature cannot be read, or what is read cannot be true")


def _watch(before: Unchanged | None, degrees: int | None, power: int | None, now: int) -> Unchanged | None:
    if degrees is None or power is None:
        return None
    if before is None or before.degrees != degrees:
        return Unchanged(degrees, power)
    if abs(power - before.power) < max(STUCK_POWER, before.power // 2):
        return replace(before, differs_since=None)
    return before if before.differs_since is not None else replace(before, differs_since=now)
