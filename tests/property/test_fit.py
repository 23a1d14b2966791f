"""The invariants of what fits, for any situation."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.models.fit import Fit, Manners, best_plan, ceiling_of, fit_of
from gpusupervisor.models.model import Model
from tests.arbitration.builders import CARD, GIB
from tests.property.test_plan import situations

RANK = {"now": 0, "after-release": 1, "blocked": 2, "never": 3}
manners = st.builds(Manners, replaces=st.booleans(), evicts=st.booleans())
needs = st.integers(1, 30 * GIB)


def fit(now: Situation, need: int, how: Manners) -> Fit:
    return fit_of(now, "asker", Model("m", "not-loaded", needs=need), how, [ceiling_of(now, CARD)])


def smaller_card(now: Situation, total: int) -> Situation:
    return replace(now, gpus={CARD: replace(now.gpus[CARD], total=total)})


@given(situations(), needs, st.integers(0, 20 * GIB), manners)
def test_more_free_memory_never_makes_a_model_fit_less(now: Situation, need: int, more: int, how: Manners) -> None:
    card = now.gpus[CARD]
    freer = replace(now, gpus={CARD: replace(card, free=card.free + more)})
    assert RANK[fit(freer, need, how).verdict] <= RANK[fit(now, need, how).verdict]


@given(situations(), needs, st.integers(0, 10 * GIB), manners)
def test_a_smaller_model_never_fits_less(now: Situation, need: int, less: int, how: Manners) -> None:
    smaller = fit(now, max(1, need - less), how)
    assert RANK[smaller.verdict] <= RANK[fit(now, need, how).verdict]


@given(situations(), st.integers(1, 24), needs, manners)
def test_nobody_is_blamed_for_a_model_too_large_for_the_card(
    now: Situation, total: int, need: int, how: Manners
) -> None:
    card = smaller_card(now, total * GIB)
    found = fit(card, need, how)
    too_large = need > total * GIB - now.reserve
    assert (found.verdict == "never") == too_large
    if too_large:
        assert not any(name in found.detail for name in now.tenants)


@given(situations(), needs, manners)
def test_now_asks_nobody_and_after_release_asks_exactly_the_plans_tenants(
    now: Situation, need: int, how: Manners
) -> None:
    found = fit(now, need, how)
    plan = best_plan(now, "asker", CARD, Model("m", "not-loaded", needs=need), how)
    if found.verdict == "now":
        assert plan.sufficient
        assert not plan.steps
    if found.verdict == "after-release":
        assert plan.sufficient
        assert found.detail.startswith(", ".join(step.tenant for step in plan.steps) + " would be asked")


@given(situations(), st.sampled_from(["idle", "busy"]))
def test_the_ceiling_is_never_above_the_limit_and_does_not_move_with_who_works(now: Situation, activity: str) -> None:
    ceiling = ceiling_of(now, CARD)
    assert 0 <= ceiling.size <= ceiling.limit
    assert ceiling.limit - ceiling.size <= sum(taken.size for taken in ceiling.taken)
    others = {name: replace(tenant, activity=activity) for name, tenant in now.tenants.items()}  # type: ignore[arg-type]
    assert ceiling_of(replace(now, tenants=others), CARD).size == ceiling.size
