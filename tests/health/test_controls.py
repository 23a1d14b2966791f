"""The checks of fans and profiles are driven to each of their states."""

from dataclasses import replace

import pytest

from gpusupervisor.controls import Controls
from gpusupervisor.gpu.sample import GpuSensors
from gpusupervisor.health.hardware import check_drift, check_fans, check_persistence
from gpusupervisor.state import Check
from tests.arbitration.seen import process
from tests.bus.builders import CARD, make_controls
from tests.health.builders import facts


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
        ({}, "power-limit of NVIDIA GeForce RTX 4090 was reset to the default"),
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


def test_a_setting_that_the_driver_reset_is_blamed_on_nobody_and_persistence_is_advised() -> None:
    check = drift()
    assert "nvidia-persistenced" in check.remedy
    assert "program that also sets it" not in check.remedy
    other = replace(make_controls().gpus[CARD].drift[0], cause="changed-by-another", detail="changed to 300 W")
    fought = drift(drift=(*make_controls().gpus[CARD].drift, other))
    assert "changed to 300 W" in fought.summary
    assert "program that also sets it" in fought.remedy


@pytest.mark.parametrize(
    ("mode", "profile", "state"),
    [(True, True, "ok"), (True, False, "ok"), (False, False, "ok"), (False, True, "degraded"), (None, True, None)],
)
def test_persistence_matters_where_a_profile_sets_what_the_driver_would_forget(
    mode: bool | None, profile: bool, state: str | None
) -> None:
    seen = facts(process(7, 1))
    first = seen.sample.gpus[0]
    gpu = replace(first, identity=replace(first.identity, uuid=CARD), sensors=GpuSensors(persistence=mode))
    controls = make_controls() if profile else make_controls(drift=())
    found = tuple(check_persistence(replace(seen, sample=replace(seen.sample, gpus=(gpu,)), controls=controls)))
    if state is None:
        assert found == ()
        return
    (check,) = found
    assert (check.id, check.state) == (f"persistence-{CARD}", state)
    if state == "degraded":
        assert check.impact
        assert "nvidia-persistenced" in check.remedy
