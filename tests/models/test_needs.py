"""Where a need comes from, the best source first."""

import pytest

from gpusupervisor.engines.model_apis.listing import Listed
from gpusupervisor.models import needs as needs_module
from gpusupervisor.models.needs import OVERHEAD, Needs, estimate

GIB = 1 << 30


def test_measured_beats_reported_beats_estimated() -> None:
    measured: dict[tuple[str, str], int] = {}
    needs = Needs(lambda engine, model: measured.get((engine, model)))
    on_disk = Listed("m", "not-loaded", 10 * GIB)
    assert needs.of("ollama", on_disk) == (11 * GIB + OVERHEAD, "estimated from its size")
    assert needs.of("ollama", Listed("m", "loaded", 10 * GIB, wants=12 * GIB, held=12 * GIB)) == (12 * GIB, "reported")
    assert needs.of("ollama", on_disk) == (12 * GIB, "reported"), "what was reported once is remembered"
    measured["ollama", "m"] = 13 * GIB
    assert needs.of("ollama", on_disk) == (13 * GIB, "measured")


def test_what_was_measured_is_of_one_model_of_one_engine() -> None:
    needs = Needs(lambda engine, model: 7 * GIB if (engine, model) == ("ollama", "m") else None)
    assert needs.of("ollama", Listed("m", size=GIB)) == (7 * GIB, "measured")
    assert needs.of("ollama@2", Listed("m", size=GIB)) == (estimate(GIB), "estimated from its size")


def test_nobody_knows_what_has_no_size_and_nothing_is_needed_for_what_runs_elsewhere() -> None:
    assert Needs().of("comfyui", Listed("checkpoints/a")) == (None, "")
    assert Needs().of("ollama", Listed("gpt:cloud", size=384, remote=True)) == (None, "")


def test_an_engine_that_makes_up_names_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs_module, "REMEMBERED", 3)
    needs = Needs()
    for number in range(10):
        needs.of("ollama", Listed(f"m{number}", wants=GIB))
    assert needs.of("ollama", Listed("m9")) == (GIB, "reported")
    assert needs.of("ollama", Listed("m1")) == (None, "")
