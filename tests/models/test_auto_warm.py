"""Models that are read into RAM by themselves: those used daily, within the budget, never against memory pressure."""

from pathlib import Path

import pytest

from gpusupervisor.arbitration.learned import Fact, LearnedFacts, Measured, by_day
from gpusupervisor.memory import Memory, read_memory
from gpusupervisor.models.auto_warm import next_to_warm
from gpusupervisor.models.residency import ModelResidency
from gpusupervisor.models.warm_plan import Candidate, Usage

GIB = 1 << 30
DAY = 86_400_000_000
NOW = 1000 * DAY
DAILY = tuple(NOW - day * DAY for day in range(6))
ROOMY = Memory(64 * GIB, 40 * GIB, 0.0)
QUIET = "some avg10={} avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def model(name: str = "m", size: int = 8, cached: int | None = 0, days: tuple[int, ...] = DAILY) -> Candidate:
    known = ModelResidency(name, size * GIB, None if cached is None else cached * GIB, "")
    return Candidate("app", known, Usage(days[0] if days else 0, 9, days))


def chosen(*models: Candidate, memory: Memory | None = ROOMY, budget: int | None = None, shared: bool = False) -> str:
    found = next_to_warm(models, memory, budget, NOW, shared=shared)
    return found.model.name if found else ""


@pytest.mark.parametrize(
    ("days", "is_daily"),
    [
        (DAILY, True),
        (DAILY[:5], True),
        (DAILY[:4], False),
        ((NOW, NOW + 1, NOW - 1, NOW - 2, NOW - 3, NOW - 4), False),
        (tuple(each - 30 * DAY for each in DAILY), False),
        ((), False),
    ],
)
def test_only_what_is_used_daily_is_warmed(days: tuple[int, ...], is_daily: bool) -> None:
    assert bool(chosen(model(days=days))) == is_daily


@pytest.mark.parametrize(
    ("pressure", "available", "is_warmed"),
    [("0.00", 40, True), ("0.40", 40, True), ("0.60", 40, False), ("50.00", 40, False), ("0.00", 10, False)],
)
def test_nothing_is_read_against_memory_pressure(
    tmp_path: Path, pressure: str, available: int, is_warmed: bool
) -> None:
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure/memory").write_text(QUIET.format(pressure))
    (tmp_path / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: {available << 20} kB\n")
    assert bool(chosen(model(), memory=read_memory(tmp_path))) == is_warmed


def test_where_the_kernel_does_not_say_whether_there_is_pressure_nothing_is_read(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: {64 << 20} kB\nMemAvailable: {40 << 20} kB\n")
    assert chosen(model(), memory=read_memory(tmp_path)) == ""
    assert chosen(model(), memory=None) == ""


def test_the_budget_counts_what_is_in_ram_already() -> None:
    assert chosen(model("a", 8, 8), model("b", 8)) == "b", "a quarter of 64 GiB is enough for both"
    assert chosen(model("a", 9, 9), model("b", 8)) == ""
    assert chosen(model("a", 9, 9), model("b", 8), budget=17 * GIB) == "b"
    assert chosen(model("a", 1), budget=0) == ""
    assert chosen(model("a", 30), model("b", 12)) == "b", "one that does not fit is in nobody's way"


def test_a_model_on_a_gpu_that_shares_the_memory_counts_twice() -> None:
    assert chosen(model(size=9)) == "m"
    assert chosen(model(size=9), shared=True) == ""


@pytest.mark.parametrize("cached", [None, 8])
def test_what_is_in_ram_or_not_known_is_left_alone(cached: int | None) -> None:
    assert chosen(model(cached=cached)) == ""


def test_of_each_day_of_the_latest_week_one_use_is_remembered() -> None:
    uses = [Measured(NOW - day * DAY + hour, hour) for day in range(30) for hour in (1, 2)]
    assert by_day(uses) == tuple(Measured(NOW - day * DAY + 2, 2) for day in range(6, -1, -1))
    assert by_day(()) == ()


def test_days_that_were_stored_count_beside_those_seen_before_they_were_read() -> None:
    facts = LearnedFacts()
    facts.learn(Fact("model-use", "app", "", 1, NOW, "seen", evidence=(Measured(NOW, 1),), model="m"))
    stored = (Measured(NOW - DAY, 8), Measured(NOW - 2 * DAY, 7))
    facts.recall([Fact("model-use", "app", "", 8, NOW - DAY, "seen", evidence=stored, model="m")])
    known = facts.get("model-use", "app", model="m")
    assert known is not None
    assert (known.value, [each.at for each in known.evidence]) == (9, [NOW - 2 * DAY, NOW - DAY, NOW])
