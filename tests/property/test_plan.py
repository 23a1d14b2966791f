"""The invariants of a release plan, for any situation."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.arbitration.assess import shortfall_of
from gpusupervisor.arbitration.plan import Request, make_plan
from gpusupervisor.arbitration.situation import GpuSituation, ReleasePlan, Situation, TenantSituation
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from tests.arbitration.builders import CARD, GIB, MINUTE, NOW, situation, starving, tenant

sizes = st.integers(0, 12 * GIB)
activities = st.sampled_from(["idle", "idle", "idle", "busy", "unknown", "stuck", "absent"])


@st.composite
def tenants(draw: st.DrawFn, name: str) -> TenantSituation:
    activity = draw(activities)
    return tenant(
        name,
        activity=activity,
        priority=draw(st.integers(0, 70)),
        holdings={CARD: draw(sizes)},
        floors=draw(st.one_of(st.just({}), st.builds(lambda size: {CARD: size}, st.integers(0, GIB)))),
        idle_since=NOW - draw(st.integers(0, 100)) * MINUTE if activity == "idle" else None,
        protected=draw(st.sampled_from([False, False, False, True])),
        has_release=draw(st.sampled_from([True, True, True, False])),
        pinned=draw(st.sampled_from([False, False, True])),
        unknown_on=draw(st.sampled_from([frozenset[str](), frozenset({CARD})])),
        cooldown_until=draw(st.sampled_from([0, 0, NOW + 1])),
        releases_left=draw(st.sampled_from([3, 3, 0])),
    )


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    others = [draw(tenants(f"t{n}")) for n in range(draw(st.integers(0, 7)))]
    asker = starving(held=draw(st.integers(0, 3)), need=draw(st.integers(1, 24)), less_helps=draw(st.booleans()))
    return situation(asker, *others, free=draw(st.integers(0, 6)), total=200, reserve=draw(st.integers(0, 1)))


def plan(now: Situation) -> ReleasePlan:
    need = now.tenants["asker"].need
    assert need is not None
    return make_plan(now, Request("starved", CARD, "asker", need.low), "plan-1")


def promised(made: ReleasePlan) -> int:
    return sum(step.expected or 0 for step in made.steps)


def with_more_free(now: Situation, more: int) -> Situation:
    card = now.gpus[CARD]
    return replace(now, gpus={CARD: GpuSituation(CARD, card.name, card.total, card.free + more)})


def disturbance(now: Situation, made: ReleasePlan) -> list[tuple[int, int, str]]:
    """Who is asked, the most important first: what a plan costs, compared as text is, letter by letter."""
    ranks = [
        (now.tenants[step.tenant].priority, now.tenants[step.tenant].idle_since or 0, step.tenant)
        for step in made.steps
    ]
    return sorted(ranks, reverse=True)


@given(situations())
def test_nobody_is_asked_who_is_busy_unknown_protected_or_not_lower_in_priority(now: Situation) -> None:
    rank = now.tenants["asker"].priority
    for step in plan(now).steps:
        asked = now.tenants[step.tenant]
        assert asked.activity == "idle"
        assert not asked.protected
        assert not asked.pinned
        assert asked.has_release
        assert asked.priority < rank
        assert asked.cooldown_until <= now.now
        assert asked.releases_left > 0
        assert step.tenant != "asker"


@given(situations())
def test_a_sufficient_plan_suffices(now: Situation) -> None:
    made = plan(now)
    if made.sufficient:
        assert promised(made) >= made.shortfall


@given(situations())
def test_an_insufficient_plan_could_not_have_sufficed_and_does_nothing_unless_less_helps(now: Situation) -> None:
    made = plan(now)
    if not made.sufficient:
        assert made.reclaimable < made.shortfall
        assert made.steps == () or now.tenants["asker"].less_helps


@given(situations())
def test_no_step_of_a_sufficient_plan_can_be_left_out(now: Situation) -> None:
    made = plan(now)
    if made.sufficient:
        total = promised(made)
        assert all(total - (step.expected or 0) < made.shortfall for step in made.steps)


@given(situations())
def test_the_same_situation_makes_the_same_plan_in_whatever_order_tenants_come(now: Situation) -> None:
    turned = replace(now, tenants=dict(reversed(list(now.tenants.items()))))
    assert plan(now) == plan(turned)


@given(situations(), st.integers(0, 8 * GIB))
def test_more_free_memory_never_makes_a_plan_worse(now: Situation, more: int) -> None:
    """It never reaches further up the ranking, and never turns a possible plan into an impossible one."""
    tight, roomy = plan(now), plan(with_more_free(now, more))
    if tight.sufficient:
        assert roomy.sufficient
        assert disturbance(now, roomy) <= disturbance(now, tight)


@given(st.lists(st.integers(1, 12), max_size=6), st.integers(1, 40), st.integers(0, 12))
def test_more_free_memory_never_asks_more_of_equally_large_tenants(idle: list[int], need: int, more: int) -> None:
    now = situation(starving(need=need), *(tenant(f"t{n}", 3, priority=p) for n, p in enumerate(idle)), total=200)
    tight, roomy = plan(now), plan(with_more_free(now, more * GIB))
    if tight.sufficient:
        assert len(roomy.steps) <= len(tight.steps)


def test_lowest_priority_first_outweighs_the_number_of_steps() -> None:
    """With less missing, three unimportant tenants are asked rather than the important one that a larger shortfall
    could not do without: lowest priority first, no step too many, and never more steps with more free memory cannot
    all three hold, and the first two are what priorities are for."""
    holders = [tenant(name, 1, priority=1) for name in "abc"] + [tenant("dear", 5, priority=40)]
    tight = situation(starving(need=6), *holders, total=200)
    assert [step.tenant for step in plan(tight).steps] == ["a", "dear"]
    assert [step.tenant for step in plan(with_more_free(tight, 3 * GIB)).steps] == ["a", "b", "c"]


@given(situations())
def test_everybody_in_the_way_is_asked_or_named(now: Situation) -> None:
    made = plan(now)
    named = {blocker.holder for blocker in made.blockers}
    candidates_total = made.reclaimable
    held = {t.id: t.above_floor(CARD) for t in now.tenants_on[CARD] if t.id != "asker"}
    askable = sum(size for name, size in held.items() if name not in named and size >= 64 * 1024 * 1024)
    assert askable == candidates_total


@given(situations())
def test_a_plan_never_promises_more_than_a_tenant_holds_above_its_floor(now: Situation) -> None:
    for step in plan(now).steps:
        size = now.tenants[step.tenant].above_floor(CARD)
        assert step.expected == size or (step.expected is None and size < WORTHWHILE)
    asker = now.tenants["asker"]
    assert asker.need is not None
    assert plan(now).shortfall == max(0, shortfall_of(now, asker, (CARD,), asker.need.low))
