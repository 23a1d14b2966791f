"""What a catalogue of a thousand models costs a tick."""

import time

import pytest

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.bus.model_views import models_view
from gpusupervisor.models.catalogue import EngineModels
from gpusupervisor.models.fit import Manners
from gpusupervisor.models.fit_book import FitBook
from gpusupervisor.models.model import Model
from gpusupervisor.state import EngineStatus
from tests.arbitration.builders import CARD, GIB, situation, tenant
from tests.benchmarks.conftest import Report

pytestmark = pytest.mark.benchmark_suite

ROUNDS = 200


def scene() -> Situation:
    return situation(tenant("ollama"), *(tenant(f"t{number}", 2) for number in range(8)), free=6)


def catalogue(count: int) -> EngineModels:
    return EngineModels(
        tuple(Model(f"model-{n}", "not-loaded", needs=(n * 23 * GIB) // 1000 + 1) for n in range(count))
    )


def tick(book: FitBook, known: EngineModels, now: Situation) -> None:
    book.update(now, {"ollama": (known, Manners(evicts=True))})
    status = EngineStatus("ollama", "ollama", "Ollama", "", True, "", "", models=known.models, fits=book.fits("ollama"))
    models_view(status)


def test_a_thousand_models_at_a_steady_tick(figure: Report) -> None:
    spent = {}
    for count in (0, 1000):
        book, known, now = FitBook(), catalogue(count), scene()
        tick(book, known, now)
        fits = book.fits("ollama")
        before = time.process_time()
        for _ in range(ROUNDS):
            tick(book, known, now)
        spent[count] = (time.process_time() - before) / ROUNDS * 1000
        assert book.fits("ollama") is fits
        assert len(fits) == count
    figure("1,000 models add to a steady tick", max(0.0, spent[1000] - spent[0]), "ms", 0.05)


def test_a_thousand_models_when_memory_has_moved(figure: Report) -> None:
    book, known, now = FitBook(), catalogue(1000), scene()
    tick(book, known, now)
    moved = situation(*now.tenants.values(), free=7)
    before = time.process_time()
    tick(book, known, moved)
    figure("1,000 models reckoned anew", (time.process_time() - before) * 1000, "ms", 100)
    assert {fit.verdict for fit in book.fits("ollama")} == {"now", "after-release"}
    assert book.cards[CARD].ceiling > 0
