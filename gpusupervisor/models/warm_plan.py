"""Which models are worth reading into RAM: those used most lately first, as many as stay there. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.models.residency import ModelResidency

_HOUR = 3_600_000_000

Verdict = Literal["worth-it", "warm", "would-not-stay", "unknown"]


@dataclass(frozen=True, slots=True)
class Usage:
    """How a model was used."""

    last_used: int
    """When it was last seen to be loaded or to go: realtime microseconds."""
    times: int = 1
    """How often it was seen to be loaded."""
    days: tuple[int, ...] = ()
    """An instant (realtime microseconds) of each day of the latest week of its use on which it was used."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model of an engine that could be warmed."""

    engine: str
    model: ModelResidency
    usage: Usage | None = None
    """None: not used as far as is known."""


@dataclass(frozen=True, slots=True)
class WarmStep:
    """What is said of one model."""

    engine: str
    model: ModelResidency
    verdict: Verdict
    reason: str


@dataclass(frozen=True, slots=True)
class WarmedUp:
    """A model that was read into RAM."""

    engine: str
    model: str
    size: int
    """Bytes of its files."""
    took: int
    """Microseconds."""


def plan_warming(candidates: Iterable[Candidate], spare: int | None, *, shared: bool = False) -> tuple[WarmStep, ...]:
    """A verdict on each, the worthiest first.

    spare: bytes that files may fill, those included that are there already; None = not known, so nothing is worth it.
    shared: the GPU uses the same memory, so that a model takes room twice once it is loaded.
    """
    left = spare or 0
    steps = []
    for candidate in sorted(candidates, key=worth):
        step = _judge(candidate, left, shared=shared)
        if step.verdict in ("worth-it", "warm"):
            left -= room_for(step.model.size, shared=shared)
        steps.append(step)
    return tuple(steps)


def room_for(size: int, *, shared: bool) -> int:
    """Bytes of RAM that a warm model of this size takes, its copy on the GPU included where that is in RAM too."""
    return 2 * size if shared else size


def _judge(candidate: Candidate, left: int, *, shared: bool) -> WarmStep:
    engine, model = candidate.engine, candidate.model
    if model.cached is None:
        return WarmStep(engine, model, "unknown", model.problem or "it is unknown how much of it is in RAM")
    if model.is_warm:
        return WarmStep(engine, model, "warm", "it is in RAM already")
    if room_for(model.size, shared=shared) > left:
        if shared:
            why = "too little memory is left for its files and for its copy on the GPU, which share it"
            return WarmStep(engine, model, "would-not-stay", why)
        return WarmStep(engine, model, "would-not-stay", "too little memory is left after the models before it")
    why = "it was used recently" if candidate.usage else "there is room, although it has not been seen in use"
    return WarmStep(engine, model, "worth-it", why)


def worth(candidate: Candidate) -> tuple[object, ...]:
    """Sorts the worthiest first: used in the latest hour, then often, then small ones, of which more fit."""
    usage = candidate.usage
    used = (0, -(usage.last_used // _HOUR), -usage.times) if usage else (1, 0, 0)
    return (*used, candidate.model.size, candidate.engine, candidate.model.name)
