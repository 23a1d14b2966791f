"""From what was seen to the Situation."""

from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.compose import Seen, compose, measurement
from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.learned import Fact, LearnedFacts
from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import Situation, TenantSituation
from gpusupervisor.tenants.activity.verdict import Placement
from tests.arbitration.builders import CARD, GIB, MINUTE, NOW
from tests.arbitration.seen import RESERVED, card, definition, doing, process, seen

SECOND = 1_000_000
OTHER = "GPU-2"


def composed(
    what: Seen,
    releasing: frozenset[str] = frozenset(),
    history: History | None = None,
    reservations: ReservationBook | None = None,
) -> Situation:
    book = reservations or ReservationBook(45 * SECOND)
    return compose(what, releasing, history or History(), book, 600 << 20)


def only(activity: Any, *processes: Any, **definition_values: Any) -> TenantSituation:
    """The situation of one tenant called "app"."""
    described = {"app": definition("app", **definition_values)}
    return composed(seen(*processes, tenants={"app": activity}, definitions=described)).tenants["app"]


def test_a_gpu_is_shown_with_its_memory_and_who_is_not_described() -> None:
    what = seen(process(7, 3), process(8, None), tenants={}, free=5)
    gpu = composed(what).gpus[CARD]
    assert (gpu.name, gpu.total, gpu.free) == ("RTX 4090", 24 * GIB, 5 * GIB)
    assert [(u.pid, u.name, u.used) for u in gpu.unmanaged] == [(7, "stranger", 3 * GIB), (8, "stranger", None)]


def test_a_gpu_that_cannot_be_read_is_not_decided_about() -> None:
    asleep = replace(card(5, OTHER), state="asleep", memory=None)
    lost = replace(card(5, "GPU-3"), state="lost")
    assert composed(seen(cards=(card(1), asleep, lost))).gpus.keys() == {CARD}


def test_the_problem_of_a_process_list_is_passed_on() -> None:
    gpu = card(1, attribution_problem="attribution unavailable: PIDs that cannot exist")
    assert composed(seen(cards=(gpu,))).gpus[CARD].attribution_problem == gpu.attribution_problem


def test_holdings_of_several_processes_and_gpus_are_kept_apart_by_gpu() -> None:
    processes = (process(1, 2, "app"), process(2, 3, "app"), process(1, 4, "app", OTHER))
    assert only(doing("busy"), *processes).holdings == {CARD: 5 * GIB, OTHER: 4 * GIB}


def test_a_process_of_unknown_size_makes_the_holding_a_lower_bound() -> None:
    tenant = only(doing("idle"), process(1, 2, "app"), process(2, None, "app"))
    assert (tenant.holdings, tenant.unknown_on) == ({CARD: 2 * GIB}, frozenset({CARD}))


def test_the_idle_priority_counts_only_while_it_is_idle() -> None:
    assert only(doing("busy"), priority=60, idle_priority=10).priority == 60
    assert only(doing("unknown"), priority=60, idle_priority=10).priority == 60
    assert only(doing("stuck"), priority=60, idle_priority=10).priority == 60
    assert only(doing("idle"), priority=60, idle_priority=10).priority == 10
    assert only(doing("idle"), priority=60).priority == 30


def test_a_need_that_was_written_down_beats_what_the_engine_says() -> None:
    spilled = Placement(13 * GIB, 9 * GIB)
    told = only(doing("busy", placement=spilled), process(1, 9, "app"), needs_vram=12 * GIB)
    assert told.need == Need(12 * GIB, 12 * GIB, "needs-vram")
    reported = only(doing("busy", placement=spilled), process(1, 9, "app"))
    assert reported.need == Need(13 * GIB, 13 * GIB, "spilled")
    assert only(doing("busy"), process(1, 9, "app")).need is None


def test_a_need_that_was_written_down_is_no_more_than_the_card_could_ever_give() -> None:
    told = only(doing("busy"), process(1, 9, "app"), needs_vram=40 * GIB)
    assert told.need is not None
    assert told.need.low == 24 * GIB - RESERVED - (600 << 20)


def test_idle_since_is_told_only_of_an_idle_tenant() -> None:
    assert only(doing("idle")).idle_since == NOW - 30 * MINUTE
    assert only(doing("busy")).idle_since is None


def test_a_tenant_that_was_not_observed_yet_is_unknown() -> None:
    what = seen(process(1, 4, "app"), definitions={"app": definition("app")})
    tenant = composed(what).tenants["app"]
    assert tenant.activity == "unknown"
    assert tenant.activity_reason


def test_a_tenant_elsewhere_is_remote() -> None:
    what = seen(tenants={"app": doing("idle"), "near": doing("idle")}, remote=frozenset({"app"}))
    situation = composed(what)
    assert situation.tenants["app"].remote
    assert not situation.tenants["near"].remote


def test_a_process_that_outlived_its_server_marks_its_gpu() -> None:
    tenant = only(doing("idle"), process(1, 4, "app", orphan=True), process(2, 4, "app", OTHER))
    assert tenant.orphan_on == {CARD}


def test_what_is_being_released_is_marked() -> None:
    what = seen(tenants={"app": doing("idle"), "other": doing("idle")})
    situation = composed(what, frozenset({"app"}))
    assert situation.tenants["app"].releasing
    assert not situation.tenants["other"].releasing


def test_residency_begins_when_more_than_the_floor_is_held_and_ends_with_it() -> None:
    history = History()

    def resident_at(now: int, held: float) -> int | None:
        described = {"app": definition("app", floor=GIB)}
        what = seen(process(1, held, "app"), tenants={"app": doing("idle")}, definitions=described, now=now)
        return composed(what, history=history).tenants["app"].resident_since

    assert resident_at(NOW, 1) is None
    assert resident_at(NOW + SECOND, 9) == NOW + SECOND
    assert resident_at(NOW + 2 * SECOND, 8) == NOW + SECOND
    assert resident_at(NOW + 3 * SECOND, 1) is None


def test_the_budget_counts_down_with_each_request_and_comes_back_within_the_hour() -> None:
    history = History()
    for number in range(3):
        history.asked("app", NOW + number, 0)
    described = {"app": definition("app", release_budget=4)}
    now = seen(tenants={"app": doing("idle")}, definitions=described)
    assert composed(now, history=history).tenants["app"].releases_left == 1
    later = seen(tenants={"app": doing("idle")}, definitions=described, now=NOW + 61 * MINUTE)
    assert composed(later, history=history).tenants["app"].releases_left == 4


def test_the_past_of_a_tenant_that_vanished_is_forgotten() -> None:
    history = History()
    history.asked("app", NOW, MINUTE)
    composed(seen(tenants={"other": doing("idle")}), history=history)
    back = composed(seen(tenants={"app": doing("idle")}), history=history).tenants["app"]
    assert back.cooldown_until == 0


def test_a_reservation_shrinks_as_its_beneficiary_grows() -> None:
    book = ReservationBook(45 * SECOND)
    book.keep(CARD, "app", 8 * GIB, GIB, NOW)

    def kept(held: float, now: int = NOW) -> list[int]:
        what = seen(process(1, held, "app"), tenants={"app": doing("busy")}, now=now)
        return [r.size for r in composed(what, reservations=book).reservations]

    assert kept(1) == [8 * GIB]
    assert kept(4) == [5 * GIB]
    assert kept(2) == [5 * GIB], "room that was used once is not kept a second time"
    assert kept(5) == [4 * GIB]
    assert kept(5, NOW + 45 * SECOND) == []


def test_a_measurement_has_everybody_elses_memory_by_name() -> None:
    what = seen(
        process(1, 4, "app"), process(2, 3, "other"), process(9, 2), process(10, None),
        tenants={"app": doing("idle"), "other": doing("busy")}, free=5,
    )  # fmt: skip
    found = measurement(what, "app", CARD)
    assert found is not None
    assert (found.holding, found.free) == (4 * GIB, 5 * GIB)
    assert found.others == {"other": 3 * GIB, "pid 9": 2 * GIB, "pid 10": 0}


def test_a_tenant_that_holds_nothing_any_more_is_measured_as_zero() -> None:
    found = measurement(seen(tenants={"app": doing("idle")}, free=5), "app", CARD)
    assert found is not None
    assert found.holding == 0


def test_an_instance_that_has_ended_holds_nothing() -> None:
    found = measurement(seen(process(1, 3, "other"), tenants={"other": doing("idle")}, free=5), "app@8189", CARD)
    assert found is not None
    assert (found.holding, found.others) == (0, {"other": 3 * GIB})


def test_a_holding_of_unknown_size_is_not_measured_as_what_is_known_of_it() -> None:
    what = seen(process(1, 4, "app"), process(2, None, "app"), tenants={"app": doing("idle")}, free=5)
    found = measurement(what, "app", CARD)
    assert found is not None
    assert found.holding is None


def test_a_process_list_that_is_not_believed_measures_no_holding() -> None:
    gpu = card(5, attribution_problem="attribution unavailable")
    found = measurement(seen(tenants={"app": doing("idle")}, cards=(gpu,)), "app", CARD)
    assert found is not None
    assert (found.holding, found.free) == (None, 5 * GIB)


def test_a_gpu_that_cannot_be_read_has_no_measurement() -> None:
    what = seen(process(1, 4, "app"), tenants={"app": doing("idle")})
    assert measurement(what, "app", OTHER) is None
    for broken in (replace(card(5), state="lost"), replace(card(5), memory=None)):
        assert measurement(seen(tenants={"app": doing("idle")}, cards=(broken,)), "app", CARD) is None


def knowing(*facts: Fact) -> History:
    learned = LearnedFacts()
    learned.recall(facts)
    return History(learned)


def need(size: float) -> Fact:
    return Fact("need", "app", "", round(size * GIB), 1, "a test")


def usual(size: float) -> Fact:
    return Fact("need-usual", "app", "", round(size * GIB), 1, "a test")


def with_history(history: History, activity: Any = None, **definition_values: Any) -> TenantSituation:
    described = {"app": definition("app", **definition_values)}
    what = seen(tenants={"app": activity or doing("busy")}, definitions=described, free=5)
    return composed(what, history=history).tenants["app"]


def test_a_learned_need_is_an_upper_bound() -> None:
    assert with_history(knowing(need(14))).need == Need(0, 14 * GIB, "learned")
    assert with_history(knowing(need(14), usual(6))).need == Need(6 * GIB, 14 * GIB, "learned")
    told = with_history(knowing(need(14)), needs_vram=GIB)
    assert told.need == Need(GIB, GIB, "needs-vram")


def test_a_learned_need_is_never_more_than_a_card_can_give() -> None:
    found = with_history(knowing(need(30))).need
    assert found is not None
    assert found.high == 24 * GIB - RESERVED - (600 << 20)


def test_learned_floors_are_known_without_a_release() -> None:
    history = knowing(Fact("floor", "app", CARD, GIB, 1, ""), Fact("floor", "other", CARD, 2, 1, ""))
    assert with_history(history, floor=5).floors == {CARD: GIB}


def test_floors_outlive_a_tenant_that_vanishes() -> None:
    history = knowing(Fact("floor", "app", CARD, GIB, 1, ""))
    composed(seen(), history=history)
    assert with_history(history).floors == {CARD: GIB}
