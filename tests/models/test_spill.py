"""Which spilled models are worth loading anew."""

from dataclasses import replace

import pytest

from gpusupervisor.arbitration.situation import Reservation
from gpusupervisor.models.spill import AGAIN_AFTER, spilled_part, to_reload
from tests.arbitration.builders import CARD, GIB, NOW, situation, tenant
from tests.models.builders import model

OLLAMA = tenant("ollama", 5)
SPILLED = model(needs=13, state="loaded", held=5 * GIB, spilled=True)


def test_one_that_would_fit_whole_now_is() -> None:
    assert to_reload(situation(OLLAMA, free=8), "ollama", [SPILLED], {}) == (SPILLED,)
    assert spilled_part(SPILLED) == 8 * GIB


@pytest.mark.parametrize("activity", ["busy", "unknown", "stuck", "absent"])
def test_none_of_an_engine_that_is_not_idle_is(activity: str) -> None:
    assert to_reload(situation(replace(OLLAMA, activity=activity), free=20), "ollama", [SPILLED], {}) == ()  # type: ignore[arg-type]


def test_none_is_without_room_for_all_of_it_and_for_what_is_kept_for_others() -> None:
    assert to_reload(situation(OLLAMA, free=7.9), "ollama", [SPILLED], {}) == ()
    kept = (Reservation(CARD, "comfyui", GIB, NOW + 1),)
    assert to_reload(situation(OLLAMA, free=8, reservations=kept), "ollama", [SPILLED], {}) == ()
    other = model("other", 3, "loaded", held=3 * GIB)
    both = situation(replace(OLLAMA, holdings={CARD: 8 * GIB}), free=7)
    assert to_reload(both, "ollama", [SPILLED, other], {}) == ()


def test_one_that_was_tried_only_just_now_is_left_alone() -> None:
    now = situation(OLLAMA, free=8)
    assert to_reload(now, "ollama", [SPILLED], {"m": NOW - AGAIN_AFTER + 1}) == ()
    assert to_reload(now, "ollama", [SPILLED], {"m": NOW - AGAIN_AFTER}) == (SPILLED,)


def test_a_pinned_or_remote_engine_is_left_alone() -> None:
    for engine in (replace(OLLAMA, pinned=True), replace(OLLAMA, remote=True)):
        assert to_reload(situation(engine, free=8), "ollama", [SPILLED], {}) == ()
    allowed = replace(OLLAMA, pinned=True, release_pinned=True)
    assert to_reload(situation(allowed, free=8), "ollama", [SPILLED], {}) == (SPILLED,)
