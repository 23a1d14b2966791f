"""When fans are taken out of our hands."""

from collections.abc import Sequence

from gpusupervisor.helper.fans.safety import Safety, critical, failed, judge
from gpusupervisor.helper.values import Temperatures

SECOND = 1_000_000


def at(degrees: int | None) -> Temperatures:
    return Temperatures(degrees, 92, 95)


def after(readings: Sequence[tuple[int | None, int | None]], safety: Safety | None = None, start: int = 0) -> Safety:
    """One reading a second: degrees and power in W."""
    state = safety or Safety()
    for second, (degrees, watts) in enumerate(readings, start):
        state = judge(state, at(degrees), None if watts is None else watts * 1000, second * SECOND)
    return state


def cause(safety: Safety) -> str:
    return "" if safety.trip is None else safety.trip.cause


def test_two_missing_readings_are_borne_and_the_third_is_not() -> None:
    assert cause(after([(50, 60), (None, 60), (None, 60)])) == ""
    assert cause(after([(50, 60), (None, 60), (None, 60), (None, 60)])) == "temperature-missing"
    assert cause(after([(None, 60), (None, 60), (50, 60), (None, 60), (None, 60)])) == ""


def test_a_critical_temperature_is_not_waited_for() -> None:
    assert cause(after([(91, 400)])) == ""
    assert cause(after([(92, 400)])) == "critical"


def test_critical_is_where_the_hardware_throttles_as_far_as_it_is_told() -> None:
    assert critical(Temperatures(50, 87, 100)) == 87
    assert critical(Temperatures(50, None, 100)) == 97
    assert critical(Temperatures(50, None, None)) == 90


def test_a_temperature_that_ignores_the_load_is_stuck() -> None:
    idle, load = [(27, 20)] * 10, [(27, 350)]
    assert cause(after(idle + load * 32)) == ""
    assert cause(after(idle + load * 33)) == "temperature-stuck"


def test_a_steady_temperature_is_not_stuck() -> None:
    assert cause(after([(62, 250)] * 600)) == ""
    assert cause(after([(62, 250), (62, 270)] * 300)) == ""
    assert cause(after([(40, 20)] * 10 + [(40, 300)] * 20 + [(41, 300)] * 100)) == ""


def test_without_a_power_reading_nothing_is_called_stuck() -> None:
    assert cause(after([(27, None)] * 600)) == ""


def test_it_recovers_when_all_has_been_well_for_a_while() -> None:
    tripped = after([(92, 400)])
    assert cause(after([(83, 60)] * 60, tripped, 1)) == "critical"  # not cool enough yet
    assert cause(after([(82, 60)] * 30, tripped, 1)) == "critical"
    assert cause(after([(82, 60)] * 31, tripped, 1)) == ""


def test_a_setback_starts_the_recovery_over() -> None:
    tripped = after([(None, 60)] * 3)
    again = after([*[(50, 60)] * 20, (None, 60), *[(50, 60)] * 20], tripped, 3)
    assert cause(again) == "temperature-missing"
    assert cause(after([(50, 60)] * 11, again, 44)) == ""


def test_a_write_that_fails_too_often_ends_it_for_good() -> None:
    state = Safety()
    for round_ in range(4):
        state = failed(state, "write-failed", "no", round_ * 60 * SECOND)
        recovered = after([(50, 60)] * 32, state, round_ * 60)
        assert (recovered.trip is None) == (round_ < 3)
        state = recovered
    assert state.trip is not None
    assert state.trip.for_good


def test_what_cannot_get_better_ends_it_at_once() -> None:
    assert after([(50, 60)] * 99, failed(Safety(), "write-failed", "no", 0, hopeless=True)).trip is not None
    assert after([(50, 60)] * 99, failed(Safety(), "not-following", "no", 0)).trip is not None


def test_a_later_cause_does_not_hide_one_that_is_for_good() -> None:
    first = failed(Safety(), "contested", "no", 0)
    assert failed(first, "write-failed", "no", 1).trip == first.trip
