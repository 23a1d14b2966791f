"""What a failed release teaches, and how long that holds."""

from dataclasses import replace

from gpusupervisor.arbitration.compose import compose
from gpusupervisor.arbitration.eligibility import objection
from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.plan import Request, make_plan, make_release
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import Situation, StepResult, TenantSituation
from gpusupervisor.arbitration.trust import PAUSES, Failure, failed, still_holds
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.models.fit import ceiling_of
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from tests.arbitration.builders import CARD, GIB, MINUTE, NOW, situation, starving, tenant
from tests.arbitration.seen import definition, doing, process, seen

SECOND = 1_000_000
KEYS = frozenset({ProcessKey(7, 1)})
STAYED = {CARD: 12 * GIB}
NOTHING = StepResult("app", "failed", 12 * GIB, 0, SECOND, "it answered: yes, but nothing came back")


def after(times: int, now: int = NOW) -> Failure:
    failure: Failure | None = None
    for _ in range(times):
        failure = failed(failure, NOTHING, STAYED, KEYS, now, "plan-1")
    assert failure is not None
    return failure


def test_pauses_grow_and_in_the_end_it_is_not_asked_again() -> None:
    pauses = [after(times).until - NOW for times in range(1, len(PAUSES) + 1)]
    assert pauses == list(PAUSES)
    assert pauses == sorted(pauses)
    assert after(len(PAUSES) + 1).until == INFINITY


def test_a_release_that_succeeds_clears_it_and_one_that_says_nothing_changes_nothing() -> None:
    before = after(2)
    assert failed(before, replace(NOTHING, outcome="freed"), {}, KEYS, NOW, "p") is None
    for silent in (
        replace(NOTHING, outcome="skipped"),
        replace(NOTHING, outcome="pending"),
        replace(NOTHING, is_conclusive=False),
    ):
        assert failed(before, silent, {}, KEYS, NOW, "p") is before


def test_other_processes_begin_with_a_clean_record() -> None:
    again = failed(after(3), NOTHING, STAYED, frozenset({ProcessKey(8, 1)}), NOW, "p")
    assert again is not None
    assert again.count == 1
    assert not still_holds(after(3), STAYED, frozenset({ProcessKey(8, 1)}))


def test_it_holds_until_the_memory_has_come_after_all() -> None:
    assert still_holds(after(1), STAYED, KEYS)
    assert not still_holds(after(1), {CARD: 3 * GIB}, KEYS)


def distrusted(until: int) -> TenantSituation:
    return tenant("app", 12.5, stayed={CARD: round(12.5 * GIB)}, distrusted_until=until, distrust="it kept it")


def test_nothing_is_promised_of_what_stayed_and_the_reason_stands_in_the_plan() -> None:
    now = situation(starving(need=8), distrusted(NOW + MINUTE), free=4)
    plan = make_plan(now, Request("starved", CARD, "asker", 8 * GIB), "p")
    assert (plan.steps, plan.reclaimable, plan.sufficient) == ((), 0, False)
    (blocker,) = plan.blockers
    assert (blocker.reason, blocker.held, blocker.until) == ("does-not-give-back", round(12.5 * GIB), NOW + MINUTE)
    assert blocker.detail == "it kept it; asked again in 1min"
    assert "app (12.5 GiB, does-not-give-back: it kept it; asked again in 1min)" in plan.summary
    assert ceiling_of(now, CARD).size == 24 * GIB - round(12.5 * GIB), "the same floor in what could ever fit"


def test_after_the_pause_it_is_tried_again_only_where_nothing_else_suffices_and_without_a_promise() -> None:
    forgiven = distrusted(NOW)
    alone = make_plan(situation(starving(need=8), forgiven), Request("starved", CARD, "asker", 8 * GIB), "p")
    assert [(step.tenant, step.expected) for step in alone.steps] == [("app", None)]
    assert alone.reclaimable == 0
    other = situation(starving(need=8), forgiven, tenant("other", 9, priority=40))
    plan = make_plan(other, Request("starved", CARD, "asker", 8 * GIB), "p")
    assert [step.tenant for step in plan.steps] == ["other"]
    assert objection(distrusted(INFINITY), CARD, NOW, 50) is not None


def test_a_person_may_always_try_again() -> None:
    plan = make_release(situation(distrusted(NOW + MINUTE)), "app", "p", "release")
    assert [step.expected for step in plan.steps] == [round(12.5 * GIB)]
    assert not make_release(situation(distrusted(NOW + MINUTE)), "app", "p", "idle").sufficient


def composed(history: History, held: float, pid: int = 7, now: int = NOW, **definition_values: object) -> Situation:
    running = replace(process(pid, held, "app"), identity=ProcessIdentity(ProcessKey(pid, 1), 1, 1, "x"))
    described = {"app": definition("app", **definition_values)}
    what = seen(running, tenants={"app": doing("idle")}, definitions=described, now=now)
    return compose(what, frozenset(), history, ReservationBook(0), 0)


def test_a_restart_is_neither_a_late_release_nor_a_reload_and_ends_the_record() -> None:
    history = History()
    composed(history, 12)
    history.asked("app", NOW, 30 * SECOND)
    history.judged(NOTHING, STAYED, NOW, "plan-1")
    kept = composed(history, 12, now=NOW + SECOND).tenants["app"]
    assert kept.floor(CARD) == 12 * GIB
    fresh = composed(history, 12, pid=9, now=NOW + 9 * MINUTE).tenants["app"]
    assert (fresh.floor(CARD), fresh.distrust) == (0, "")
    assert not history.was_reloaded("app", NOW + 9 * MINUTE)


def test_a_new_process_that_loads_right_after_a_release_was_not_made_to_reload() -> None:
    history = History()
    composed(history, 12)
    history.released("app", CARD, replace(NOTHING, outcome="freed", freed=12 * GIB), 0, NOW)
    composed(history, 12, pid=9, now=NOW + 5 * SECOND)
    assert not history.was_reloaded("app", NOW + 5 * SECOND)
    history.released("app", CARD, replace(NOTHING, outcome="freed", freed=12 * GIB), 0, NOW + 6 * SECOND)
    composed(history, 12, pid=9, now=NOW + 9 * SECOND)
    assert history.was_reloaded("app", NOW + 9 * SECOND)


def test_what_was_asked_is_no_beneficiary_before_it_has_rested() -> None:
    history = History()
    what = seen(process(1, 4, "app"), tenants={"app": doing("busy")}, free=0)

    def look(state: str) -> TenantSituation:
        now = replace(what, activities={"app": doing(state)})  # type: ignore[arg-type]
        return compose(now, frozenset(), history, ReservationBook(0), 0).tenants["app"]

    assert look("busy").may_claim
    history.asked("app", NOW, 0)
    assert not look("busy").may_claim
    assert not look("stirring").may_claim
    assert not look("busy").may_claim
    look("idle")
    assert look("busy").may_claim


def test_what_has_given_its_memory_back_may_begin_anew_at_once() -> None:
    history = History()
    history.asked("app", NOW, 0)
    history.judged(NOTHING, STAYED, NOW, "p")
    assert history.of("app").must_rest
    history.judged(replace(NOTHING, outcome="freed"), {}, NOW, "p")
    assert not history.of("app").must_rest


def test_a_release_that_its_version_check_would_refuse_is_not_promised() -> None:
    what = seen(process(1, 4, "app"), tenants={"app": doing("idle")}, free=0)
    what = replace(what, release_problems={"app": "its version 0.3.10 is too old"})
    now = compose(what, frozenset(), History(), ReservationBook(0), 0).tenants["app"]
    against = objection(replace(now, has_release=True), CARD, NOW, 101)
    assert against is not None
    assert against.detail == "its version 0.3.10 is too old"
