from typing import Any

import pytest

from gpusupervisor.arbitration.plan import Request, idle_releases, make_plan, make_release
from gpusupervisor.arbitration.situation import ReleasePlan, Situation, UnmanagedHolder
from tests.arbitration.builders import CARD, GIB, MINUTE, NOW, situation, starving, tenant


def plan_for(now: Situation, need: float, beneficiary: str = "asker") -> ReleasePlan:
    return make_plan(now, Request("starved", CARD, beneficiary, round(need * GIB)), "plan-1")


def asked(plan: ReleasePlan) -> list[str]:
    return [step.tenant for step in plan.steps]


def test_the_lowest_priority_is_asked_first() -> None:
    now = situation(starving(need=4), tenant("dear", 8, priority=40), tenant("cheap", 8, priority=10), free=0)
    assert asked(plan_for(now, 4)) == ["cheap"]


def test_among_equals_the_longest_idle_is_asked_first() -> None:
    now = situation(
        starving(need=4),
        tenant("fresh", 8, idle_since=NOW - 5 * MINUTE),
        tenant("old", 8, idle_since=NOW - 50 * MINUTE),
    )
    assert asked(plan_for(now, 4)) == ["old"]


def test_a_plan_stops_when_it_is_enough() -> None:
    now = situation(starving(need=6), *(tenant(name, 4, priority=p) for p, name in enumerate("abc")))
    assert asked(plan_for(now, 6)) == ["a", "b"]


def test_a_step_that_a_later_one_makes_unnecessary_is_dropped() -> None:
    now = situation(starving(need=8), tenant("small", 2, priority=1), tenant("large", 9, priority=2))
    plan = plan_for(now, 8)
    assert asked(plan) == ["large"]
    assert plan.sufficient


def test_the_more_important_of_two_redundant_steps_is_spared() -> None:
    now = situation(
        starving(need=13),
        tenant("a", 2, priority=1),
        tenant("b", 2, priority=2),
        tenant("c", 12, priority=3),
    )
    assert asked(plan_for(now, 13)) == ["a", "c"]


def test_what_stays_at_the_floor_does_not_count() -> None:
    now = situation(starving(need=4), tenant("lazy", 4, floors={CARD: GIB}))
    plan = plan_for(now, 4)
    assert not plan.sufficient
    assert plan.reclaimable == 3 * GIB


def test_an_impossible_plan_does_nothing_and_names_who_is_in_the_way() -> None:
    stranger = UnmanagedHolder(4711, "blender", 9 * GIB)
    now = situation(starving(need=20), tenant("lazy", 4), unmanaged=(stranger,))
    plan = plan_for(now, 20)
    assert plan.steps == ()
    assert not plan.sufficient
    assert plan.blockers[0].holder == "blender (pid 4711)"
    assert plan.blockers[0].reason == "unmanaged"
    assert "blender (pid 4711)" in plan.summary
    assert "Nothing is done" in plan.summary


def test_a_beneficiary_whom_less_helps_gets_what_there_is() -> None:
    now = situation(starving(need=20, less_helps=True), tenant("lazy", 4))
    plan = plan_for(now, 20)
    assert asked(plan) == ["lazy"]
    assert not plan.sufficient


def test_a_need_beyond_the_card_is_blamed_on_nobody() -> None:
    now = situation(starving(need=30, less_helps=True), tenant("lazy", 4), tenant("important", 4, protected=True))
    plan = plan_for(now, 30)
    assert not plan.fits
    assert plan.steps == ()
    assert plan.blockers == ()
    assert "can never fit" in plan.summary


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"activity": "busy", "idle_since": None}, "busy"),
        ({"activity": "unknown", "idle_since": None}, "unknown"),
        ({"activity": "absent", "idle_since": None}, "unknown"),
        ({"activity": "stuck", "idle_since": None}, "stuck"),
        ({"protected": True}, "protected"),
        ({"priority": 50}, "higher-priority"),
        ({"has_release": False}, "no-release-method"),
        ({"cooldown_until": NOW + 1}, "cooldown"),
        ({"distrusted_until": NOW + 1, "distrust": "it gave nothing"}, "does-not-give-back"),
        ({"release_problem": "its version is too old"}, "no-release-method"),
        ({"releases_left": 0}, "cooldown"),
        ({"releasing": True}, "cooldown"),
        ({"pinned": True}, "pinned"),
        ({"orphan_on": frozenset({CARD})}, "orphan"),
        ({"remote": True}, "remote"),
    ],
)
def test_a_holder_that_cannot_be_asked_is_a_blocker_with_its_reason(more: dict[str, Any], reason: str) -> None:
    plan = plan_for(situation(starving(need=4), tenant("holder", 8, **more)), 4)
    assert plan.steps == ()
    assert [(b.holder, b.reason) for b in plan.blockers] == [("holder", reason)]
    assert plan.blockers[0].detail


def test_pinned_memory_is_asked_for_when_the_definition_allows_it() -> None:
    now = situation(starving(need=4), tenant("holder", 8, pinned=True, release_pinned=True))
    assert asked(plan_for(now, 4)) == ["holder"]


def test_memory_of_unknown_size_is_a_blocker_but_its_known_part_can_be_asked_for() -> None:
    blind = tenant("blind", 0, unknown_on=frozenset({CARD}), activity="busy", idle_since=None)
    plan = plan_for(situation(starving(need=4), blind), 4)
    assert [(b.holder, b.held) for b in plan.blockers] == [("blind", None)]
    half = tenant("half", 5, unknown_on=frozenset({CARD}))
    assert asked(plan_for(situation(starving(need=4), half), 4)) == ["half"]


def test_a_person_may_ask_for_room_for_nobody_in_particular() -> None:
    now = situation(tenant("dear", 8, priority=100), free=1)
    plan = make_plan(now, Request("make-room", CARD, "", 6 * GIB), "plan-1")
    assert asked(plan) == ["dear"]
    assert plan.shortfall == 5 * GIB


def test_nothing_is_asked_when_there_is_room() -> None:
    plan = plan_for(situation(starving(need=4), tenant("lazy", 8), free=5), 4)
    assert plan.sufficient
    assert plan.steps == ()
    assert plan.summary == "Nothing needs to be released: there is room for asker already."


def test_a_release_on_request_passes_over_cooldown_and_pin_but_never_over_work() -> None:
    cooling = tenant("t", 4, cooldown_until=NOW + 1, pinned=True, resident_since=NOW)
    assert make_release(situation(cooling), "t", "p", "release").sufficient
    assert not make_release(situation(cooling), "t", "p", "idle").sufficient
    busy = tenant("t", 4, "busy")
    plan = make_release(situation(busy), "t", "p", "release")
    assert plan.steps == ()
    assert plan.blockers[0].reason == "busy"


def test_a_second_release_right_after_the_first_says_that_nothing_is_left() -> None:
    plan = make_release(situation(tenant("t", activity="stirring")), "t", "p", "release")
    assert not plan.blockers
    assert "nothing to give back" in plan.summary


def test_a_release_of_a_tenant_that_holds_nothing_says_so() -> None:
    plan = make_release(situation(tenant("t")), "t", "p", "release")
    assert not plan.sufficient
    assert "nothing to give back" in plan.summary


def test_a_tenant_is_due_for_idle_release_only_after_its_time() -> None:
    due = tenant("due", 4, idle_release_after=20 * MINUTE)
    early = tenant("early", 4, idle_release_after=40 * MINUTE)
    never = tenant("never", 4)
    held = tenant("pinned", 4, idle_release_after=20 * MINUTE, pinned=True)
    empty = tenant("empty", 0, idle_release_after=20 * MINUTE)
    assert idle_releases(situation(due, early, never, held, empty)) == ("due",)
