"""How fast an engine loads models from RAM and from disk, learned from loads that were measured. Pure."""

from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.quantities import format_duration

REMEMBERED = 8
"""Loads of each kind; the median of them counts, so that one odd load changes little."""
SMALLEST = 64 * 1024 * 1024
"""Bytes of a load that says something of speed: below it, all is what the engine does anyway."""
COLD = 5
"""Percent in RAM up to which a load was one from disk."""
WARM = 95
"""Percent in RAM from which on it was one from RAM."""

LoadSource = Literal["RAM", "disk", "RAM and disk"]


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
    """What was learned of one engine: bytes a second of the latest loads, the oldest first. To be kept as it is."""

    cold: tuple[float, ...] = ()
    warm: tuple[float, ...] = ()


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


def learn(speeds: LoadSpeeds, load: MeasuredLoad) -> LoadSpeeds:
    """The speeds with one more load. One partly from RAM tells of the disk, once the speed from RAM is known."""
    if load.size < SMALLEST or load.took <= 0 or not 0 <= load.cached <= load.size:
        return speeds
    percent = load.cached * 100 / load.size
    if percent >= WARM:
        return replace(speeds, warm=_latest(speeds.warm, load.size, load.took))
    if percent <= COLD:
        return replace(speeds, cold=_latest(speeds.cold, load.size, load.took))
    if not speeds.warm:
        return speeds
    rest = load.took - round(load.cached / median(speeds.warm) * MICROSECONDS)
    return replace(speeds, cold=_latest(speeds.cold, load.size - load.cached, rest)) if rest > 0 else speeds


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


def _latest(known: tuple[float, ...], size: int, took: int) -> tuple[float, ...]:
    return (*known, size / took * MICROSECONDS)[-REMEMBERED:]


def _time(size: int, speeds: tuple[float, ...]) -> int:
    return round(size / median(speeds) * MICROSECONDS) if size else 0
