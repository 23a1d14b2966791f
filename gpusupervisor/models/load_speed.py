"""How fast an engine loads models from RAM and from disk, learned from loads that were measured. Pure."""

from dataclasses import dataclass
from statistics import median
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.quantities import format_duration

SMALLEST = 64 * 1024 * 1024
"""Bytes of a load that says something of speed: below it, all is what the engine does anyway."""
COLD = 5
"""Percent in RAM up to which a load was one from disk."""
WARM = 95
"""Percent in RAM from which on it was one from RAM."""

LoadSource = Literal["RAM", "disk", "RAM and disk"]
SpeedKind = Literal["cold", "warm"]
"""From disk, from RAM."""


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """One load, from the request until the engine was ready."""

    size: int
    """Bytes of the model's files."""
    cached: int
    """Bytes of them that were in RAM when it began."""
    took: int
    """Microseconds."""


@dataclass(frozen=True, slots=True)
class LoadSpeeds:
    """What was learned of one engine: bytes a second of its latest loads, of which the median counts."""

    cold: tuple[int, ...] = ()
    warm: tuple[int, ...] = ()


NOTHING_LEARNED = LoadSpeeds()
"""Of an engine whose loads were never measured."""


@dataclass(frozen=True, slots=True)
class LoadEstimate:
    """How long a load would take."""

    took: int
    """Microseconds."""
    source: LoadSource

    def __str__(self) -> str:
        """For people: "from RAM, about 3s"."""
        seconds = max(1, round(self.took / MICROSECONDS))
        return f"from {self.source}, about {format_duration(seconds * MICROSECONDS)}"


def measured_speed(speeds: LoadSpeeds, load: MeasuredLoad) -> tuple[SpeedKind, int] | None:
    """What a load teaches, in bytes a second; None when nothing.

    One partly from RAM tells of the disk, once the speed from RAM is known.
    """
    if load.size < SMALLEST or load.took <= 0 or not 0 <= load.cached <= load.size:
        return None
    percent = load.cached * 100 / load.size
    if percent >= WARM:
        return "warm", _speed(load.size, load.took)
    if percent <= COLD:
        return "cold", _speed(load.size, load.took)
    rest = load.took - _time(load.cached, speeds.warm) if speeds.warm else 0
    return ("cold", _speed(load.size - load.cached, rest)) if rest > 0 else None


def estimate(speeds: LoadSpeeds, size: int, cached: int) -> LoadEstimate | None:
    """How long a load would take with so much of its files in RAM; None when no such load was measured yet."""
    cached = min(cached, size)
    source = _source(size, cached)
    if (source != "disk" and not speeds.warm) or (source != "RAM" and not speeds.cold):
        return None
    parts = {"RAM": (size, 0), "disk": (0, size), "RAM and disk": (cached, size - cached)}
    warm, cold = parts[source]
    return LoadEstimate(_time(warm, speeds.warm) + _time(cold, speeds.cold), source)


def _source(size: int, cached: int) -> LoadSource:
    if cached * 100 >= size * WARM:
        return "RAM"
    return "disk" if cached * 100 <= size * COLD else "RAM and disk"


def _speed(size: int, took: int) -> int:
    return max(1, size * MICROSECONDS // took)


def _time(size: int, speeds: tuple[int, ...]) -> int:
    return round(size / median(speeds) * MICROSECONDS) if size else 0
