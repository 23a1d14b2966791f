"""Pressure and out-of-memory, from what a tenant's memory does look by look."""

from dataclasses import dataclass, field, replace

from gpusupervisor.arbitration.pressure import REMEMBERED, UNUSED_AFTER, Look, Pressure, PressureWatch, is_full
from gpusupervisor.tenants.activity.verdict import Placement
from tests.arbitration.builders import GIB, NOW

SECOND = 1_000_000
CARD_SIZE = 24 * GIB


@dataclass
class Bench:
    """One tenant on a card of 24 GiB, looked at once a second."""

    others: float = 0
    """GiB that others hold."""
    watch: PressureWatch = field(default_factory=PressureWatch)
    now: int = NOW

    def sees(
        self, held: float, activity: str = "busy", *, wait: int = SECOND, is_blind: bool = False, **more: object
    ) -> Pressure | None:
        self.now += wait
        size = round(held * GIB)
        free = max(0, CARD_SIZE - size - round(self.others * GIB))
        look = Look(
            now=self.now, measured_at=self.now, works=activity == "busy", rests=activity in ("idle", "absent"),
            held=None if is_blind else size, free=free, available=free, is_full=is_full(free, CARD_SIZE),
        )  # fmt: skip
        self.watch.observe("app", replace(look, **more))  # type: ignore[arg-type]
        return self.watch.of("app")


def test_growth_into_a_full_card_is_pressure_within_two_seconds_of_its_being_full() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    assert bench.sees(1.5) is None
    found = bench.sees(3)
    assert found is not None, "nothing is free, so that it is certain at once that it has stopped"
    assert (found.kind, found.held, found.grown) == ("pressed", 3 * GIB, round(2.5 * GIB))


def test_where_a_little_is_left_a_second_look_decides() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    assert bench.sees(2.7) is None
    assert bench.sees(2.7) is not None


def test_growth_that_leaves_room_is_no_pressure() -> None:
    bench = Bench(others=10)
    bench.sees(0.5, "idle")
    for _ in range(5):
        assert bench.sees(13) is None


def test_a_card_that_others_fill_afterwards_presses_nobody_who_had_stopped_before() -> None:
    bench = Bench(others=10)
    bench.sees(0.5, "idle")
    bench.sees(8)
    bench.sees(8)
    bench.others = 16
    for _ in range(5):
        assert bench.sees(8) is None


def test_who_only_rests_stirs_or_claims_is_not_pressed() -> None:
    for activity in ("idle", "stirring", "claimed", "unknown", "stuck"):
        bench = Bench(others=21)
        bench.sees(0.5, "idle")
        bench.sees(3, activity)
        assert bench.sees(3, activity) is None


def test_a_tenant_that_works_without_having_grown_is_not_pressed() -> None:
    bench = Bench(others=21)
    for _ in range(5):
        assert bench.sees(3) is None


def test_pressure_ends_when_there_is_room_and_comes_back_when_that_is_filled_too() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    assert bench.sees(3)
    bench.others = 10
    assert bench.sees(3) is None
    assert bench.sees(14)


def test_room_that_is_not_grown_into_ends_it_for_good() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    bench.sees(3)
    bench.others = 10
    for _ in range(UNUSED_AFTER // SECOND + 2):
        bench.sees(3)
    assert bench.watch.unused == 1
    bench.others = 21
    assert bench.sees(3) is None


def test_slow_growth_looked_at_often_adds_up() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    for step in range(1, 261):
        bench.sees(0.5 + step * 0.0096, wait=50_000)
    for _ in range(12):
        bench.sees(3, wait=50_000)
    assert bench.watch.of("app") is not None


def test_growth_until_the_card_is_full_and_a_fall_right_then_is_out_of_memory() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    bench.sees(3, "unknown")
    found = bench.sees(0.5, "idle")
    assert found is not None
    assert (found.kind, found.held, found.said) == ("out-of-memory", 3 * GIB, False)
    assert bench.sees(0.5, "idle") == found, "its client will try again"
    assert bench.sees(0.5, "idle", wait=REMEMBERED) is None


def test_a_fall_long_after_the_growth_or_at_our_request_is_none() -> None:
    later = Bench(others=21)
    later.sees(0.5, "idle")
    later.sees(3)
    for _ in range(4):
        later.sees(3)
    assert later.sees(0.5, "idle") is None
    asked = Bench(others=21)
    asked.sees(0.5, "idle")
    asked.sees(3)
    assert asked.sees(0.5, "idle", is_asked=True) is None


def test_a_fall_from_a_card_that_was_not_full_is_none() -> None:
    bench = Bench(others=10)
    bench.sees(0.5, "idle")
    bench.sees(10)
    assert bench.sees(0.5, "idle") is None


def test_the_engines_word_about_memory_counts_once() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    said_at = bench.now
    found = bench.sees(0.5, "idle", out_of_memory_at=said_at)
    assert found is not None
    assert (found.kind, found.said) == ("out-of-memory", True)
    assert bench.sees(0.5, "idle", wait=REMEMBERED, out_of_memory_at=said_at) is None


def test_a_word_from_before_the_service_was_there_is_old() -> None:
    bench = Bench()
    assert bench.sees(0.5, "idle", out_of_memory_at=NOW - REMEMBERED) is None


def test_a_second_try_that_goes_further_ends_it() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle")
    bench.sees(3, "unknown")
    assert bench.sees(0.5, "idle")
    bench.others = 5
    assert bench.sees(10, "busy") is None


def test_room_that_was_there_for_what_spilled_is_remembered_until_it_is_placed_anew() -> None:
    bench = Bench(others=10)
    spilled = Placement(18 * GIB, 9 * GIB)
    for _ in range(5):
        bench.sees(9, placement=spilled)
    assert bench.watch.offered("app") == 5 * GIB
    bench.sees(9, placement=Placement(20 * GIB, 9 * GIB))
    assert bench.watch.offered("app") == 0


def test_without_known_sizes_only_the_engines_word_counts() -> None:
    bench = Bench(others=21)
    bench.sees(0.5, "idle", is_blind=True)
    assert bench.sees(3, is_blind=True) is None
    assert bench.sees(3, is_blind=True, out_of_memory_at=bench.now) is not None


def test_a_small_card_is_full_with_little_left() -> None:
    assert is_full(511 << 20, 24 * GIB)
    assert not is_full(512 << 20, 24 * GIB)
    assert not is_full(200 << 20, 2 * GIB)
