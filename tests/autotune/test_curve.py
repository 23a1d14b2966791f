"""From looks to a curve, from a curve to the efficient point."""

from gpusupervisor.autotune.curve import Look, Measured, Work, mean_power, measured, propose
from gpusupervisor.autotune.points import Point

SECOND = 1_000_000


def look(at: int, power: int | None, energy: int | None = None) -> Look:
    return Look(at * SECOND, power, 60, energy=energy)


def point(limit: int, tokens: int, power: int) -> Measured:
    """At a limit in W so many tokens in a second."""
    return Measured(Point(limit * 1000), Work(tokens, SECOND), power * 1000, 60, frozenset())


def test_the_first_second_is_still_the_mean_of_what_was_before() -> None:
    looks = [look(0, 30_000), look(1, 200_000), look(2, 240_000), look(3, 50_000)]
    assert mean_power(looks, 0, 2 * SECOND) == 220_000


def test_a_short_run_takes_what_there_is() -> None:
    assert mean_power([look(0, 200_000)], 0, SECOND // 2) == 200_000


def test_a_counter_is_better_than_what_power_is_told() -> None:
    looks = [look(0, 1, 1_000_000), look(1, 1, 1_250_000), look(2, 1, 1_500_000)]
    assert mean_power(looks, 0, 2 * SECOND) == 250_000


def test_a_counter_that_does_not_count_is_none() -> None:
    assert mean_power([look(0, 7, 5), look(1, 9, 5)], 0, 2 * SECOND) == 9


def test_without_power_there_is_no_point() -> None:
    assert measured(Point(1), Work(1, SECOND), [look(1, None)], SECOND) is None


def test_loading_before_the_work_does_not_count() -> None:
    looks = [look(0, 90_000), look(1, 90_000), look(2, 90_000), look(3, 200_000), look(4, 200_000)]
    found = measured(Point(1), Work(100, 2 * SECOND), looks, 4 * SECOND)
    assert found is not None
    assert (found.power, found.throughput, found.energy_per_unit) == (200_000, 50.0, 4000.0)


def test_the_proposal_takes_the_least_energy_that_is_fast_enough() -> None:
    slow, good, fast = point(150, 60, 150), point(250, 96, 250), point(400, 100, 400)
    assert propose([slow, good, fast], 5) == good
    assert propose([slow, good, fast], 3) == fast
    assert propose([slow, good, fast], 40) == slow


def test_exactly_the_tolerated_loss_is_tolerated() -> None:
    assert propose([point(250, 95, 250), point(400, 100, 400)], 5) == point(250, 95, 250)


def test_of_equal_ones_the_faster_is_proposed_then_the_lower_limit() -> None:
    assert propose([point(200, 98, 196), point(210, 100, 200)], 5) == point(210, 100, 200)
    assert propose([point(300, 100, 200), point(250, 100, 200)], 5) == point(250, 100, 200)


def test_nothing_is_proposed_of_nothing() -> None:
    assert propose([], 5) is None
