"""The settings that a sweep tries."""

import json

import pytest

from gpusupervisor.autotune.points import Point, profile_document, steps, subsample, sweep


def test_both_ends_of_a_range_are_tried() -> None:
    assert tuple(steps(150, 180, 10)) == (150, 160, 170, 180)
    assert tuple(steps(150, 185, 10)) == (150, 160, 170, 180, 185)


def test_a_range_of_one_value_is_one_step() -> None:
    assert tuple(steps(150, 150, 10)) == (150,)


@pytest.mark.parametrize(("low", "high", "step"), [(2, 1, 1), (1, 2, 0), (1, 2, -1)])
def test_a_range_that_leads_nowhere_is_refused(low: int, high: int, step: int) -> None:
    with pytest.raises(ValueError, match="no steps"):
        steps(low, high, step)


def test_few_of_many_are_spread_evenly() -> None:
    assert subsample(range(0, 101, 10), 5) == (0, 20, 50, 80, 100)


def test_one_step_is_enough() -> None:
    assert subsample([150], 1) == subsample([150], 9) == (150,)


def test_one_of_several_is_the_last() -> None:
    assert subsample([150, 200, 250], 1) == (250,)


def test_no_more_are_taken_than_there_are() -> None:
    assert subsample([1, 2, 3], 50) == (1, 2, 3)


@pytest.mark.parametrize(("values", "count"), [([], 3), ([1, 2], 0)])
def test_nothing_cannot_be_chosen_from_or_chosen(values: list[int], count: int) -> None:
    with pytest.raises(ValueError, match="nothing"):
        subsample(values, count)


def test_the_gentlest_points_come_first() -> None:
    assert sweep([300, 200, 300], [60, 0]) == (Point(200, 0), Point(300, 0), Point(200, 60), Point(300, 60))
    assert sweep([300, 200]) == (Point(200), Point(300))


def test_a_point_takes_the_place_of_its_own_settings_in_a_stored_profile() -> None:
    stored = {"power-limit": "450W", "persistence": True, "offsets": {"graphics": 5, "memory": 500}}
    assert json.loads(profile_document(Point(300_000, 60), json.dumps(stored))) == {
        "power-limit": "300000mW",
        "persistence": True,
        "offsets": {"graphics": 60, "memory": 500},
    }
    assert json.loads(profile_document(Point(300_000), json.dumps(stored)))["offsets"] == stored["offsets"]
    assert json.loads(profile_document(Point(300_500))) == {"power-limit": "300500mW"}
