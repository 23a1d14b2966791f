"""What a model took that its engine loaded by itself, at a request for example: how much the engine grew. Pure.

Between two moments of rest one model has come and none has gone: what the engine holds more is that model's. While it
loads, an engine may hold part of it before its list names it. So a growth counts only where the engine says itself
how much it placed, and grew by that much (Ollama), or where its list named the model from the beginning of its load
(llama.cpp's router, llama-swap). The lists of the others name a model when it is loaded, or not at all: nothing is
learned from those.
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass

from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.models.model import Model

REST = 5 * MICROSECONDS
"""So long nothing moves in a moment of rest."""
BAND = 64 << 20
"""Bytes within which nothing has moved."""
PLACED = 90
"""Percent of what the engine says it placed that it must have grown by at the least."""
ROOMY = 2 << 30
"""Bytes that must be left free where the engine does not say how much it placed: with less, it may have placed only a
part (llama.cpp leaves 1 GiB free then)."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A model, whole in VRAM, and the bytes that its load took."""

    model: Model
    size: int


@dataclass(slots=True)
class _Watch:
    """One engine."""

    models: Sequence[Model]
    loaded: frozenset[str]
    held: int
    since: int
    """Neither has moved since then."""
    loading: frozenset[str]
    named_early: frozenset[str] = frozenset()
    """Models that were seen loading since the moment of rest."""
    rest: tuple[frozenset[str], int] | None = None
    """What was loaded and what was held at the last moment of rest."""


class GrowthWatch:
    """Of every engine."""

    def __init__(self) -> None:
        self._engines: dict[str, _Watch] = {}

    def observe(self, engine: str, models: Sequence[Model], held: int | None, free: int, now: int) -> Growth | None:
        """One look; returns what a model has taken, once.

        held: bytes on all GPUs; None when that is not known, or not the engine's own doing. free: bytes where it is.
        """
        watch = self._engines.get(engine)
        loaded = watch.loaded if watch and watch.models is models else _loaded(models)
        if held is None or loaded is None:
            self._engines.pop(engine, None)
            return None
        if watch is None:
            self._engines[engine] = _Watch(models, loaded, held, now, _loading(models))
            return None
        if watch.models is not models:
            watch.loading = _loading(models)
            watch.named_early |= watch.loading
        moved = loaded != watch.loaded or abs(held - watch.held) >= BAND
        watch.models, watch.loaded = models, loaded
        if moved:
            watch.held, watch.since = held, now
            if watch.rest and not watch.rest[0] <= loaded:
                watch.rest = None  # one has gone, and perhaps come back as another
        elif now - watch.since >= REST and not watch.loading:
            return _at_rest(watch, free)
        return None

    def keep_only(self, engines: Set[str]) -> None:
        """Know of these engines and no others."""
        for gone in self._engines.keys() - engines:
            del self._engines[gone]


def _loaded(models: Sequence[Model]) -> frozenset[str] | None:
    """What is in VRAM, a model that sleeps there too; None when nobody knows."""
    if any(model.state == "unknown" and not model.remote for model in models):
        return None
    return frozenset(model.name for model in models if model.state != "not-loaded" and not model.remote)


def _loading(models: Sequence[Model]) -> frozenset[str]:
    return frozenset(model.name for model in models if model.state == "loading")


def _at_rest(watch: _Watch, free: int) -> Growth | None:
    before, early = watch.rest, watch.named_early
    watch.rest, watch.named_early = (watch.loaded, watch.held), frozenset()
    if before is None or len(new := watch.loaded - before[0]) != 1:
        return None
    model = next(each for each in watch.models if each.name in new)
    size = watch.held - before[1]
    if model.held is not None:
        whole = not model.spilled and size * 100 >= model.held * PLACED
    else:
        whole = model.name in early and free >= ROOMY
    return Growth(model, size) if whole and size >= WORTHWHILE else None
