"""Measured loads teach how fast an engine loads from RAM and from disk."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpusupervisor.clock import SystemClock
from gpusupervisor.keepers.load_books import LoadBooks
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.load_speed import LoadSpeeds
from gpusupervisor.models.model import Model
from gpusupervisor.models.residency import ModelResidency
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.service import Telemetry
from tests.bus.builders import FakeClock

GIB = 1 << 30
MONTH = 30 * 86_400_000_000
RESULT = LoadResult("ollama", "m", "GPU-1", 13 * GIB, 4_000_000, spilled=False, retried=False)


def books_of(telemetry: Telemetry) -> LoadBooks:
    return LoadBooks(ResidencyKeeper(FakeClock(), ModelFacts(telemetry)), telemetry)


@pytest.mark.parametrize(("cached", "kind"), [(0, "load-cold"), (12 * GIB, "load-warm")])
def test_a_load_from_disk_or_ram_is_learned_as_such(cached: int, kind: str) -> None:
    telemetry = Telemetry(None, Limits(0, 0), FakeClock())
    books_of(telemetry).note(RESULT, ModelResidency("m", 12 * GIB, cached))
    [fact] = telemetry.facts.all()
    assert (fact.kind, fact.value) == (kind, 3 * GIB)
    speeds = books_of(telemetry).speeds("ollama")
    assert (speeds.warm, speeds.cold) == (((3 * GIB,), ()) if cached else ((), (3 * GIB,)))


@pytest.mark.parametrize(
    "files",
    [None, ModelResidency("m", 12 * GIB, None), ModelResidency("m", 12 * GIB, 6 * GIB), ModelResidency("m", 0, 0)],
)
def test_where_it_came_from_is_not_guessed(files: ModelResidency | None) -> None:
    telemetry = Telemetry(None, Limits(0, 0), FakeClock())
    books_of(telemetry).note(RESULT, files)
    assert telemetry.facts.all() == ()


async def test_without_model_directories_nobody_is_asked() -> None:
    books = books_of(Telemetry(None, Limits(0, 0), FakeClock()))
    assert await books.before("ollama", "m") is None


async def test_what_loads_have_taught_is_known_after_a_restart(tmp_path: Path) -> None:
    telemetry = Telemetry(tmp_path, Limits(MONTH, GIB), SystemClock())
    telemetry.start()
    books = books_of(telemetry)
    books.note(RESULT, ModelResidency("m", 12 * GIB, 12 * GIB))
    books.note(replace(RESULT, duration=10_000_000), ModelResidency("m", 12 * GIB, 6 * GIB))
    books.measured("ollama", Model("m"), 13 * GIB)
    books.measured("ollama", Model("m"), 14 * GIB)
    books.measured("ollama", Model("with a \ud800"), GIB)
    await telemetry.close()
    again = Telemetry(tmp_path, Limits(MONTH, GIB), SystemClock())
    again.start()
    await again.recalled.wait()
    books = books_of(again)
    assert books.speeds("ollama") == LoadSpeeds(cold=(6 * GIB // 8,), warm=(3 * GIB,))
    assert (books.need("ollama", "m"), books.need("ollama", "with a \ud800")) == (14 * GIB, GIB)
    assert (books.need("ollama", "n"), books.need("other", "m")) == (None, None)
    await again.forget("ollama", "model-need")
    assert books.need("ollama", "m") is None
    await again.close()
