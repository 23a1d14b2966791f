"""Fits are reckoned anew only when something that matters has changed."""

from dataclasses import replace

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.models.catalogue import EngineModels
from gpusupervisor.models.fit import Manners, ceiling_of, fit_of
from gpusupervisor.models.fit_book import BAND, FitBook
from gpusupervisor.models.model import Model
from tests.arbitration.builders import CARD, GIB, NOW, situation, tenant
from tests.models.builders import model

MODELS = EngineModels((model("a", 4), model("b", 40), model("c", 4)))


def update(book: FitBook, now: Situation, known: EngineModels = MODELS) -> tuple[object, ...]:
    book.update(now, {"ollama": (known, Manners())})
    return book.fits("ollama")


def scene(free: int = 10 * GIB, **changes: object) -> Situation:
    comfyui = replace(tenant("comfyui", 8), **changes)  # type: ignore[arg-type]
    now = situation(tenant("ollama"), comfyui)
    return replace(now, gpus={CARD: replace(now.gpus[CARD], free=free)})


def test_a_steady_tick_gives_the_very_same_values() -> None:
    book = FitBook()
    first, cards = update(book, scene()), book.cards
    later = replace(scene(free=10 * GIB + BAND - 1), now=NOW + 1)
    assert update(book, later) is first
    assert book.cards is cards
    assert [fit.verdict for fit in book.fits("ollama")] == ["now", "never", "now"]


def test_slow_drift_adds_up() -> None:
    book = FitBook()
    free = 4 * GIB + BAND // 2
    first = update(book, scene(free=free))
    for step in range(1, 5):
        last = update(book, scene(free=free - step * BAND // 4))
    assert last != first


def test_who_may_be_asked_matters_at_once() -> None:
    book = FitBook()
    assert update(book, scene(free=GIB))[0].verdict == "after-release"  # type: ignore[attr-defined]
    assert update(book, scene(free=GIB, activity="busy", priority=50))[0].verdict == "blocked"  # type: ignore[attr-defined]
    assert update(book, scene(free=GIB, cooldown_until=NOW + 1))[0].verdict == "blocked"  # type: ignore[attr-defined]


def test_another_list_is_another_page() -> None:
    book = FitBook()
    update(book, scene())
    known = EngineModels((Model("d"),))
    assert [fit.verdict for fit in update(book, scene(), known)] == ["unknown"]  # type: ignore[attr-defined]
    book.update(scene(), {})
    assert book.fits("ollama") == ()


def test_a_card_shows_its_ceiling_and_what_it_keeps_from_models() -> None:
    book = FitBook(lambda tenant, _gpu: 2 * GIB if tenant == "comfyui" else None)
    update(book, scene(), EngineModels((model("a", 23), model("b", 30))))
    assert book.cards[CARD].ceiling == 22 * GIB
    assert book.cards[CARD].summary.startswith("1 model fits within 24.0 GiB but not the 22.0 GiB")


def test_each_of_many_models_has_the_fit_that_it_has_alone() -> None:
    comfyui, other = tenant("comfyui", 8), tenant("other", 3, priority=10)
    now = situation(tenant("ollama"), comfyui, other, free=4)
    known = EngineModels(tuple(model(f"m{n}", n / 10) for n in range(1, 300)))
    book = FitBook()
    found = update(book, now, known)
    ceilings = [ceiling_of(now, CARD)]
    assert found == tuple(fit_of(now, "ollama", each, Manners(), ceilings) for each in known.models)
    assert len({fit.detail for fit in found if fit.verdict == "after-release"}) >= 2  # type: ignore[attr-defined]


def test_what_telemetry_says_of_the_least_held_matters_without_anything_having_moved() -> None:
    watched: dict[tuple[str, str], int] = {}
    book = FitBook(lambda tenant, gpu: watched.get((tenant, gpu)))
    now = scene()
    update(book, now)
    before = book.cards[CARD].ceiling
    watched["comfyui", CARD] = 3 * GIB
    update(book, now)
    assert before - book.cards[CARD].ceiling == 3 * GIB - now.tenants["comfyui"].floor(CARD)
