"""Measured loads teach how fast an engine loads from RAM and from disk."""

import pytest

from gpusupervisor.load_books import LoadBooks
from gpusupervisor.models.load import LoadResult
from gpusupervisor.models.residency import ModelResidency
from gpusupervisor.residency_keeper import ResidencyKeeper
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.service import Telemetry
from tests.bus.builders import FakeClock

GIB = 1 << 30
RESULT = LoadResult("ollama", "m", "GPU-1", 13 * GIB, 4_000_000, spilled=False, retried=False)


@pytest.mark.parametrize(("cached", "kind"), [(0, "load-cold"), (12 * GIB, "load-warm")])
def test_a_load_from_disk_or_ram_is_learned_as_such(cached: int, kind: str) -> None:
    residency, telemetry = ResidencyKeeper(FakeClock()), Telemetry(None, Limits(0, 0), FakeClock())
    LoadBooks(residency, telemetry).note(RESULT, ModelResidency("m", 12 * GIB, cached))
    [fact] = telemetry.facts.all()
    assert (fact.kind, fact.value) == (kind, 3 * GIB)
    speeds = residency.speeds["ollama"]
    assert (speeds.warm if cached else speeds.cold) == (3.0 * GIB,)


@pytest.mark.parametrize(
    "files",
    [None, ModelResidency("m", 12 * GIB, None), ModelResidency("m", 12 * GIB, 6 * GIB), ModelResidency("m", 0, 0)],
)
def test_where_it_came_from_is_not_guessed(files: ModelResidency | None) -> None:
    residency, telemetry = ResidencyKeeper(FakeClock()), Telemetry(None, Limits(0, 0), FakeClock())
    LoadBooks(residency, telemetry).note(RESULT, files)
    assert telemetry.facts.all() == ()


async def test_without_model_directories_nobody_is_asked() -> None:
    books = LoadBooks(ResidencyKeeper(FakeClock()), Telemetry(None, Limits(0, 0), FakeClock()))
    assert await books.before("ollama", "m") is None
