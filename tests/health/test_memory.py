"""VRAM that nobody can ask for: who holds it, for how long, and what it costs."""

from typing import Any

import pytest

from gpusupervisor.health.facts import Key
from gpusupervisor.health.memory import LASTING, check_desktop, check_unattributed, check_unmanaged
from gpusupervisor.models.model import Model
from gpusupervisor.settings import Settings
from gpusupervisor.state import Check
from tests.arbitration.builders import CARD, GIB
from tests.arbitration.seen import doing, process
from tests.health.builders import complains, engine, facts

HOUR = 3_600_000_000
LONG: dict[Key, int] = {("unmanaged", CARD): LASTING, ("unattributed", CARD): LASTING, ("desktop", CARD): LASTING}


def unmanaged(held: float, lasted: dict[Key, int] | None = None, **more: Any) -> Check:
    (check,) = check_unmanaged(facts(process(7, held), lasted=LONG if lasted is None else lasted, **more))
    return check


def test_little_that_is_unmanaged_is_well() -> None:
    assert unmanaged(0.5).state == "ok"


def test_much_that_is_unmanaged_is_told_with_who_how_much_and_since_when() -> None:
    check = unmanaged(3, lasted={**LONG, ("held", CARD, "7"): 7 * HOUR})
    assert complains(check)
    assert check.summary == (
        "3.0 GiB of RTX 4090 is held by processes that match no tenant: stranger (PID 7, 3.0 GiB, for more than 6h)"
    )


def test_what_is_unmanaged_for_a_moment_only_is_no_trouble() -> None:
    assert unmanaged(3, lasted={("unmanaged", CARD): LASTING - 1}).state == "ok"


def test_the_models_that_do_not_fit_for_want_of_it_are_named() -> None:
    models = (
        Model("small", needs=8 * GIB),
        Model("large", needs=22 * GIB),
        Model("huge", needs=70 * GIB),
        Model("unknown"),
    )
    check = unmanaged(3, engines={"ollama": engine(models=models)})
    assert check.impact == "because of it, these models do not fit on RTX 4090: large of ollama"


def test_a_figure_at_the_threshold_does_not_flap() -> None:
    bad = frozenset({f"unmanaged-{CARD}"})
    assert unmanaged(0.95).state == "ok"
    assert unmanaged(0.95, bad=bad).state == "degraded"
    assert unmanaged(0.8, bad=bad).state == "ok"


def test_the_largest_are_named_first_and_the_rest_counted() -> None:
    many = [process(pid, size) for pid, size in enumerate((0.5, 4, 1, 1, 1, 1), start=10)]
    (check,) = check_unmanaged(facts(*many, lasted=LONG))
    assert "stranger (PID 11, 4.0 GiB)" in check.summary
    assert check.summary.endswith("and 2 more")


def test_a_process_of_unknown_size_is_named_so() -> None:
    (check,) = check_unmanaged(facts(process(7, 3), process(8, None), lasted=LONG))
    assert "stranger (PID 8, size unknown)" in check.summary


@pytest.mark.parametrize(("size", "state"), [(0.5, "ok"), (2, "degraded")])
def test_memory_that_is_used_and_nobodys_is_told(size: float, state: str) -> None:
    (check,) = check_unattributed(facts(unattributed=size, lasted=LONG))
    assert check.state == state
    assert state == "ok" or complains(check)


def test_memory_that_was_nobodys_for_a_moment_is_no_trouble() -> None:
    (check,) = check_unattributed(facts(unattributed=2))
    assert check.state == "ok"


def desktop(held: float, **more: Any) -> Check:
    everybody = facts(process(5, held, "desktop"), tenants={"desktop": doing("unknown")}, lasted=LONG, **more)
    (check,) = check_desktop(everybody)
    return check


def test_a_desktop_of_usual_size_is_well() -> None:
    assert desktop(1.2).state == "ok"


def test_an_unusually_large_desktop_is_told_with_the_largest_of_its_processes() -> None:
    check = desktop(4)
    assert complains(check)
    assert "desktop (PID 5, 4.0 GiB)" in check.summary
    assert "large-desktop" in check.remedy


def test_what_is_usual_is_a_setting() -> None:
    assert desktop(4, settings=Settings(large_desktop=5 * GIB)).state == "ok"


def test_without_a_desktop_there_is_nothing_to_tell() -> None:
    assert list(check_desktop(facts())) == []
