"""The table of evidence, row by row."""

from dataclasses import replace

import pytest

from gpusupervisor.arbitration.need import Evidence, Need, need_of
from gpusupervisor.arbitration.pressure import Pressure
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.tenants.activity.verdict import Placement
from tests.arbitration.builders import GIB, NOW

EMPTY = Evidence(held=0, available=0, most=23 * GIB)


def given(held: float = 0, available: float = 0, **more: object) -> Evidence:
    return replace(EMPTY, held=round(held * GIB), available=round(available * GIB), **more)  # type: ignore[arg-type]


def placed(wanted: float, there: float) -> Placement:
    return Placement(round(wanted * GIB), round(there * GIB))


def pressure(held: float, kind: str = "pressed") -> Pressure:
    return Pressure(kind, NOW, round(held * GIB), round(held * GIB))  # type: ignore[arg-type]


def test_without_evidence_nothing_is_known() -> None:
    assert need_of(given(held=3)) is None


@pytest.mark.parametrize(
    ("held", "placement"),
    [(15, placed(22, 22)), (22, placed(33, 33)), (10, placed(9, 9.2))],
    ids=["a card measures less than the engine says", "more than the card", "counted low"],
)
def test_what_is_placed_lacks_nothing_whatever_an_estimate_says(held: int, placement: Placement) -> None:
    assert need_of(given(held, placement=placement)) == Need(held * GIB, held * GIB, "placed")


def test_what_spilled_onto_a_full_card_lacks_at_most_the_difference() -> None:
    found = need_of(given(9, placement=placed(13, 9)))
    assert found == Need(13 * GIB, 13 * GIB, "spilled")


def test_what_spilled_although_there_was_room_lacks_nothing() -> None:
    mapped_file_counted_twice = given(10, available=13, placement=placed(18, 9.2))
    assert need_of(mapped_file_counted_twice) == Need(10 * GIB, 10 * GIB, "placed")
    crowded = given(10, available=3, placement=placed(18, 9.2), offered=9 * GIB)
    assert need_of(crowded) == Need(10 * GIB, 10 * GIB, "placed"), "it was offered, and not taken"


def test_what_room_was_offered_for_and_not_taken_is_lacked_no_more() -> None:
    assert need_of(given(9, placement=placed(13, 9), offered=GIB)) == Need(12 * GIB, 12 * GIB, "spilled")


def test_what_a_person_wrote_counts_and_is_capped_by_what_could_ever_be() -> None:
    assert need_of(given(1, written=13 * GIB)) == Need(13 * GIB, 13 * GIB, "needs-vram")
    assert need_of(given(1, written=40 * GIB)) == Need(23 * GIB, 23 * GIB, "needs-vram")


def test_a_pressed_tenant_needs_more_than_it_holds_nobody_knows_how_much() -> None:
    found = need_of(given(2, pressure=pressure(2)))
    assert found == Need(2 * GIB + WORTHWHILE, None, "pressed", is_open=True)


def test_what_was_learned_bounds_what_a_pressed_tenant_lacks_unless_it_is_refuted() -> None:
    bounded = need_of(given(2, pressure=pressure(2), peak=16 * GIB))
    assert bounded == Need(2 * GIB + WORTHWHILE, 16 * GIB, "pressed", is_open=True)
    refuted = need_of(given(17, pressure=pressure(17), peak=16 * GIB))
    assert refuted is not None
    assert refuted.high is None


def test_what_a_person_wrote_stands_until_it_is_filled_and_not_enough() -> None:
    assert need_of(given(2, written=9 * GIB, pressure=pressure(2))) == Need(9 * GIB, 9 * GIB, "needs-vram")
    filled = need_of(given(9, written=9 * GIB, pressure=pressure(9)))
    assert filled is not None
    assert filled.source == "pressed"


def test_what_is_placed_is_not_pressed() -> None:
    assert need_of(given(9, placement=placed(9, 9), pressure=pressure(9))) == Need(9 * GIB, 9 * GIB, "placed")


def test_out_of_memory_needs_more_than_it_had_grown_to() -> None:
    found = need_of(given(0.5, pressure=pressure(3, "out-of-memory")))
    assert found == Need(3 * GIB + WORTHWHILE, None, "out-of-memory", is_open=True)
    told = need_of(given(0.5, written=14 * GIB, pressure=pressure(3, "out-of-memory")))
    assert told is not None
    assert told.low >= 14 * GIB


def test_a_learned_peak_is_an_upper_bound_and_only_usual_sessions_a_lower_one() -> None:
    assert need_of(given(1, peak=16 * GIB)) == Need(0, 16 * GIB, "learned")
    assert need_of(given(1, peak=16 * GIB, usual=5 * GIB)) == Need(5 * GIB, 16 * GIB, "learned")
    assert need_of(given(1, peak=30 * GIB)) == Need(0, 23 * GIB, "learned")
