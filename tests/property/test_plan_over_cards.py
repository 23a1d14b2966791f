"""The invariants of plans over sets of cards, and of needs of which only a lower bound is known."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.arbitration.assess import assess_tenant
from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.plan import Request, make_plan
from gpusupervisor.arbitration.situation import GpuSituation, ReleasePlan, Situation, TenantSituation
from tests.arbitration.builders import GIB, NOW, situation, starving, tenant

CARDS = ("GPU-1", "GPU-2", "GPU-3")
HALF = GIB // 2


@st.composite
def holders(draw: st.DrawFn, name: str) -> TenantSituation:
    held = {gpu: draw(st.integers(0, 20)) * HALF for gpu in draw(st.sets(st.sampled_from(CARDS)))}
    activity = draw(st.sampled_from(["idle", "idle", "idle", "busy", "claimed", "stirring", "unknown", "stuck"]))
    return tenant(
        name,
        activity=activity,
        holdings=held,
        priority=draw(st.integers(0, 70)),
        idle_since=NOW - 1 if activity == "idle" else None,
        stayed=draw(st.sampled_from([{}, {}, held])),
        distrusted_until=draw(st.sampled_from([0, 0, NOW + 1])),
        orphan_on=draw(st.sampled_from([frozenset[str](), frozenset({"GPU-2"})])),
        unknown_on=draw(st.sampled_from([frozenset[str](), frozenset[str](), frozenset({"GPU-1"})])),
    )


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    others = [draw(holders(f"t{number}")) for number in range(draw(st.integers(0, 6)))]
    cards = draw(st.permutations(CARDS))[: draw(st.integers(1, 3))]
    low = draw(st.integers(1, 60)) * HALF
    is_open = draw(st.booleans())
    need = Need(low, None if is_open else low, "pressed" if is_open else "needs-vram", is_open)
    held = {gpu: draw(st.integers(0, 6)) * HALF for gpu in cards}
    asker = replace(starving(cards=tuple(cards)), holdings=held, need=need)
    gpus = {
        gpu: GpuSituation(
            gpu, gpu, 200 * GIB, draw(st.integers(0, 8)) * HALF, unattributed=draw(st.integers(0, 9)) * HALF
        )
        for gpu in CARDS
    }
    return situation(asker, *others, gpus=gpus, reserve=draw(st.integers(0, 1)))


def plan(now: Situation) -> ReleasePlan:
    asker = now.tenants["asker"]
    assert asker.need is not None
    request = Request("starved", asker.cards[0], "asker", asker.need.low, gpus=asker.cards, is_open=asker.need.is_open)
    return make_plan(now, request, "p")


@given(situations())
def test_no_step_asks_a_tenant_that_does_not_rest(now: Situation) -> None:
    for step in plan(now).steps:
        asked = now.tenants[step.tenant]
        assert asked.activity == "idle"
        assert asked.distrusted_until <= NOW
        assert not set(step.gpus) & asked.orphan_on


@given(situations())
def test_what_a_step_frees_is_booked_card_by_card(now: Situation) -> None:
    made = plan(now)
    for step in made.steps:
        asked = now.tenants[step.tenant]
        assert set(step.frees) <= set(step.gpus) <= set(made.cards)
        assert all(size == asked.above_floor(gpu) for gpu, size in step.frees.items())
        assert step.expected in (None, sum(step.frees.values()))


@given(situations())
def test_a_plan_asks_for_no_more_than_is_needed(now: Situation) -> None:
    made = plan(now)
    promised = sum(step.expected or 0 for step in made.steps)
    if made.sufficient and all(step.expected is not None for step in made.steps):
        assert promised >= made.shortfall
        assert all(promised - (step.expected or 0) < made.shortfall for step in made.steps)
    if not made.shortfall:
        assert made.steps == ()


@given(situations(), st.sampled_from(CARDS), st.integers(1, 16))
def test_more_free_memory_never_starves_nor_blocks_anybody(now: Situation, gpu: str, more: int) -> None:
    card = replace(now.gpus[gpu], free=now.gpus[gpu].free + more * HALF)
    roomy = replace(now, gpus={**now.gpus, gpu: card})
    tight_verdict = assess_tenant(now, now.tenants["asker"])
    roomy_verdict = assess_tenant(roomy, now.tenants["asker"])
    assert roomy_verdict.shortfall <= tight_verdict.shortfall
    if plan(now).sufficient:
        assert plan(roomy).sufficient
