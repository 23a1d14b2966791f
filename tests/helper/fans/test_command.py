"""Whether a fan does as it was told."""

import pytest

from gpusupervisor.helper.fans.command import Command, is_due, told, watch
from gpusupervisor.helper.values import FanPolicy, FanReading

SECOND = 1_000_000


def reading(percent: int | None, target: int | None = 60, policy: FanPolicy = "manual") -> FanReading:
    return FanReading(0, percent, target, None, policy)


SIXTY = Command(60, 60, 0)


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [
        (reading(60), "ok"),
        (reading(52), "ok"),
        (reading(None), "ok"),
        (reading(118), "overridden"),
        (reading(40), "settling"),
        (reading(60, 35, "automatic"), "changed"),
        (reading(60, 80), "changed"),
        (reading(60, None, "unknown"), "ok"),
    ],
)
def test_a_reading_is_held_against_the_command(seen: FanReading, verdict: str) -> None:
    assert watch(SIXTY, seen, SECOND)[1] == verdict


def test_a_slow_fan_is_given_time_and_a_dead_one_is_found() -> None:
    command, verdicts = SIXTY, []
    for second in range(25):
        command, verdict = watch(command, reading(min(30 + second, 45)), second * SECOND)
        verdicts.append(verdict)
    assert verdicts == ["settling"] * 20 + ["not-following"] * 5


def test_a_fan_that_gets_there_begins_anew() -> None:
    command, _ = watch(SIXTY, reading(30), 0)
    command, verdict = watch(command, reading(58), 15 * SECOND)
    assert verdict == "ok"
    assert watch(command, reading(30), 21 * SECOND)[1] == "settling"


def test_a_target_that_was_snapped_is_no_change() -> None:
    assert watch(Command(61, 60, 0), reading(60, 60), SECOND)[1] == "ok"


def test_a_fan_that_should_be_automatic_and_is_manual_was_changed() -> None:
    assert watch(Command(None, None, 0), reading(50), SECOND)[1] == "changed"
    assert watch(Command(None, None, 0), reading(0, 0, "automatic"), SECOND)[1] == "ok"


def test_a_fan_is_told_what_is_new_and_reminded_every_half_minute() -> None:
    assert is_due(None, 60, "ok", 0)
    assert is_due(SIXTY, 61, "ok", SECOND)
    assert is_due(SIXTY, 60, "changed", SECOND)
    assert not is_due(SIXTY, 60, "ok", 29 * SECOND)
    assert is_due(SIXTY, 60, "ok", 30 * SECOND)
    assert not is_due(Command(None, None, 0), None, "ok", 300 * SECOND)


def test_a_reminder_keeps_what_is_known_of_a_slow_fan() -> None:
    slow, _ = watch(SIXTY, reading(30), 0)
    assert watch(told(slow, 60, 60, 10 * SECOND), reading(30), 20 * SECOND)[1] == "not-following"
    assert watch(told(slow, 70, 70, 10 * SECOND), reading(30, 70), 20 * SECOND)[1] == "settling"
