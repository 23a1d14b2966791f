"""Where a need comes from, the best source first."""

import pytest

from gpusupervisor.models import needs as needs_module
from gpusupervisor.models.needs import OVERHEAD, Needs, estimate
from tests.models.builders import NoEvidence

GIB = 1 << 30


class Loads(NoEvidence):
    def __init__(self) -> None:
        self.measured: dict[tuple[str, str], int] = {}

    def need(self, engine: str, model: str) -> int | None:
        return self.measured.get((engine, model))


def test_measured_beats_reported_beats_estimated() -> None:
    loads = Loads()
    needs = Needs(loads)
    assert needs.of("ollama", "m", 10 * GIB) == (11 * GIB + OVERHEAD, "estimated from its size")
    needs.note("ollama", "m", 12 * GIB)
    needs.note("ollama", "m", None)
    assert needs.of("ollama", "m", 10 * GIB) == (12 * GIB, "reported"), "what was reported once is remembered"
    loads.measured["ollama", "m"] = 13 * GIB
    assert needs.of("ollama", "m", 10 * GIB) == (13 * GIB, "measured")


def test_what_was_measured_is_of_one_model_of_one_engine() -> None:
    loads = Loads()
    loads.measured["ollama", "m"] = 7 * GIB
    assert Needs(loads).of("ollama", "m", GIB) == (7 * GIB, "measured")
    assert Needs(loads).of("ollama@2", "m", GIB) == (estimate(GIB), "estimated from its size")


def test_nobody_knows_what_has_no_size() -> None:
    assert Needs(NoEvidence()).of("comfyui", "checkpoints/a", None) == (None, "")


def test_an_engine_that_makes_up_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs_module, "REMEMBERED", 3)
    needs = Needs(NoEvidence())
    for number in range(10):
        needs.note("ollama", f"m{number}", GIB)
    assert needs.of("ollama", "m9", None) == (GIB, "reported")
    assert needs.of("ollama", "m1", None) == (None, "")
