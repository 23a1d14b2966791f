"""The checks of fans and profiles are driven to each of their states."""

from dataclasses import replace

import pytest

from gpusupervisor.controls import Controls
from gpusupervisor.health.hardware import check_drift, check_fans
from gpusupervisor.state import Check
from tests.bus.builders import CARD, make_controls


def fans(controls: Controls) -> Check:
    (check,) = check_fans(controls)
    return check


def drift(**changes: object) -> Check:
    (check,) = check_drift(make_controls(**changes))
    return check


def test_fans_that_are_controlled_are_ok() -> None:
    assert fans(make_controls()).state == "ok"


@pytest.mark.parametrize("state", ["fail-safe", "unavailable"])
def test_fans_that_are_not_in_our_hands_although_they_should_be_say_why(state: str) -> None:
    check = fans(make_controls(fan_control=state, fan_control_reason="it is hot"))
    assert check.state == "degraded"
    assert "it is hot" in check.summary
    assert check.impact
    assert check.remedy


def test_without_the_helper_fans_that_were_set_are_not_well() -> None:
    assert "gone" in fans(replace(make_controls(), problem="gone")).summary


@pytest.mark.parametrize("changes", [{"fans": ()}, {"condition": "given-away"}, {"condition": "asleep"}])
def test_where_nothing_is_wanted_there_is_no_check_of_fans(changes: dict[str, object]) -> None:
    assert check_fans(make_controls(**changes)) == ()


def test_a_profile_that_stands_is_ok() -> None:
    assert drift(drift=()).state == "ok"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "power-limit of NVIDIA GeForce RTX 4090 is drifted: reset to the default"),
        ({"distrust": "the machine went down"}, "is not applied automatically: the machine went down"),
        ({"problem": "the disk is full"}, "the disk is full"),
    ],
)
def test_a_profile_that_does_not_stand_says_why(changes: dict[str, object], says: str) -> None:
    check = drift(**changes)
    assert check.id == f"drift-{CARD}"
    assert check.state == "degraded"
    assert says in check.summary
    assert check.impact
    assert check.remedy


def test_without_a_profile_there_is_no_check_of_drift() -> None:
    assert check_drift(make_controls(profile="")) == ()
