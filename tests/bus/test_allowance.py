"""Points are spent, may be owed, and come back with time."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gpusupervisor.bus.allowance import Allowance


def test_a_burst_is_let_in_and_then_it_takes_time() -> None:
    allowance = Allowance(0.0, burst=10, rate=2)
    for _ in range(10):
        assert allowance.wait(0.0) == 0
        allowance.spend(1, 0.0)
    assert allowance.wait(0.0) == pytest.approx(0.5)
    assert allowance.wait(0.6) == 0


def test_what_costs_more_than_is_left_is_paid_back_first() -> None:
    allowance = Allowance(0.0, burst=10, rate=2)
    allowance.spend(30, 0.0)
    assert allowance.wait(0.0) == pytest.approx(10.5)
    assert allowance.wait(9.0) > 0
    assert allowance.wait(10.6) == 0


@given(costs=some.lists(some.floats(min_value=0.1, max_value=20), min_size=1, max_size=100))
def test_no_more_is_spent_over_time_than_comes_back(costs: list[float]) -> None:
    allowance, now, spent = Allowance(0.0, burst=10, rate=2), 0.0, 0.0
    for cost in costs:
        now += allowance.wait(now)
        allowance.spend(cost, now)
        spent += cost
    assert spent <= 10 + 2 * now + max(costs)


def test_who_has_spent_nothing_lately_need_not_be_remembered() -> None:
    allowance = Allowance(0.0, burst=10, rate=2)
    allowance.spend(4, 0.0)
    assert not allowance.is_full(1.0)
    assert allowance.is_full(2.1)
