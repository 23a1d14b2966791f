"""Fits of whole catalogues, reckoned anew only when something that matters has changed.

A thousand models cost a steady tick nothing: what decides is compared first, gauges with a dead band.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusupervisor.arbitration.eligibility import ANYBODY, objection
from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.foreign_text import harmless
from gpusupervisor.models.catalogue import EngineModels
from gpusupervisor.models.fit import (
    Ceiling,
    Fit,
    Least,
    Manners,
    Taken,
    ceiling_of,
    fit_of,
    fit_summary,
    nothing_watched,
)
from gpusupervisor.models.model import Model

BAND = 64 << 20
"""Bytes that a figure moves by before fits are reckoned anew."""


@dataclass(frozen=True, slots=True)
class CardFit:
    """What is shown of one GPU."""

    ceiling: int
    summary: str
    limit: int = 0
    """With nobody else on it: total, less what the driver keeps and the reserve."""
    kept: tuple[Taken, ...] = ()
    """What can never be reclaimed, the largest first."""


@dataclass(frozen=True, slots=True)
class _Basis:
    """What fits rest on."""

    words: tuple[object, ...]
    """Any difference matters."""
    bytes: tuple[int, ...]

    def moved(self, before: "_Basis | None") -> bool:
        """Whether it differs enough."""
        if before is None or self.words != before.words or len(self.bytes) != len(before.bytes):
            return True
        return any(abs(now - then) >= BAND for now, then in zip(self.bytes, before.bytes, strict=True))


@dataclass(frozen=True, slots=True)
class _Page:
    models: tuple[Model, ...]
    manners: Manners
    fits: tuple[Fit, ...]


class FitBook:
    """Fits by engine and card, as of the last `update`."""

    def __init__(self, least: Least = nothing_watched) -> None:
        self._least = least
        self._basis: _Basis | None = None
        self._pages: dict[str, _Page] = {}
        self._ceilings: tuple[Ceiling, ...] = ()
        self.cards: Mapping[str, CardFit] = {}
        """By GPU."""

    def fits(self, engine: str) -> tuple[Fit, ...]:
        """Of an engine's models, in their order; the very same value for as long as nothing changes."""
        page = self._pages.get(engine)
        return page.fits if page else ()

    def update(self, situation: Situation, engines: Mapping[str, tuple[EngineModels, Manners]]) -> None:
        """Reckon what has changed."""
        basis = _basis_of(situation, self._least)
        moved = basis.moved(self._basis)
        if moved:
            self._basis = basis
            self._ceilings = tuple(ceiling_of(situation, uuid, self._least) for uuid in situation.gpus)
        pages = {
            engine: self._page(situation, engine, known.models, manners, moved=moved)
            for engine, (known, manners) in engines.items()
        }
        changed = moved or any(pages[engine] is not self._pages.get(engine) for engine in pages)
        if changed or pages.keys() != self._pages.keys():
            needs = [
                (harmless(model.name, 60), model.needs)
                for page in pages.values()
                for model in page.models
                if model.needs is not None and not model.remote
            ]
            self.cards = {
                each.gpu: CardFit(each.size, fit_summary(each, needs), each.limit, each.taken)
                for each in self._ceilings
            }
        self._pages = pages

    def _page(
        self, situation: Situation, engine: str, models: tuple[Model, ...], manners: Manners, *, moved: bool
    ) -> _Page:
        before = self._pages.get(engine)
        if before is not None and not moved and before.models is models and before.manners == manners:
            return before
        by_need = self._by_need(situation, engine, [each.needs for each in models if _is_plain(each)], manners)
        fits = [
            by_need[model.needs]
            if _is_plain(model) and model.needs is not None
            else fit_of(situation, engine, model, manners, self._ceilings)
            for model in models
        ]
        found = tuple(fits)
        if before is not None and before.fits == found:
            found = before.fits
        return _Page(models, manners, found)

    def _by_need(
        self, situation: Situation, engine: str, needs: Sequence[int | None], manners: Manners
    ) -> dict[int, Fit]:
        """The fit of every need of a model that is not loaded.

        What is so at both ends of a span of needs is so all over it, for who is asked grows with the need alone: a
        thousand needs take as many plans as there are kinds of answers.
        """
        ordered = sorted({need for need in needs if need is not None})
        fits: dict[int, Fit] = {}

        def reckon(position: int) -> Fit:
            need = ordered[position]
            if need not in fits:
                fits[need] = fit_of(situation, engine, Model("", "not-loaded", needs=need), manners, self._ceilings)
            return fits[need]

        spans = [(0, len(ordered) - 1)] if ordered else []
        while spans:
            low, high = spans.pop()
            if reckon(low) == reckon(high):
                fits.update(dict.fromkeys(ordered[low + 1 : high], fits[ordered[low]]))
            elif high - low > 1:
                middle = (low + high) // 2
                spans += [(low, middle), (middle, high)]
        return fits


def _is_plain(model: Model) -> bool:
    """Whether its need alone decides."""
    return model.needs is not None and not model.remote and model.state not in ("loaded", "loading")


def _basis_of(situation: Situation, least: Least) -> _Basis:
    words: list[object] = [situation.reserve]
    figures: list[int] = []
    for gpu in situation.gpus.values():
        words += (gpu.uuid, gpu.total, gpu.reserved, gpu.attribution_problem, len(gpu.unmanaged))
        kept = {
            reservation.tenant: reservation.size
            for reservation in situation.reservations
            if reservation.gpu == gpu.uuid
        }
        words.append(tuple(kept))
        figures += (gpu.free, gpu.unattributed, *(holder.used or 0 for holder in gpu.unmanaged), *kept.values())
    for tenant in situation.tenants.values():
        words += (
            tenant.id,
            tenant.priority,
            tenant.working_priority,
            tenant.less_helps,
            tuple(tenant.holdings),
            tenant.unknown_on,
        )
        for gpu_id, held in tenant.holdings.items():
            against = objection(tenant, gpu_id, situation.now, ANYBODY)
            watched = least(tenant.id, gpu_id)
            words += (against.reason if against else "", watched is None)
            figures += (held, tenant.floor(gpu_id), watched or 0)
    return _Basis(tuple(words), tuple(figures))
