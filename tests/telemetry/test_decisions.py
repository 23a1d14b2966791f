"""Counters of decisions become events of a bounded number and size."""

from gpusupervisor.telemetry.decisions import EVERY, MOST, Decisions

START = 1_700_000_000_000_000


def test_an_event_has_what_was_added_since_the_one_before() -> None:
    decisions = Decisions()
    assert decisions.observe({"asked": 1}, START) is None
    first = decisions.observe({"asked": 2, "pressed": 1}, START + EVERY)
    second = decisions.observe({"asked": 2, "pressed": 4}, START + 2 * EVERY)
    assert first is not None
    assert second is not None
    assert (first.kind, first.at, first.details) == (
        "decisions", START + EVERY, {"since": START, "counts": {"asked": 2, "pressed": 1}},
    )  # fmt: skip
    assert second.details == {"since": START + EVERY, "counts": {"pressed": 3}}


def test_a_time_in_which_nothing_was_counted_leaves_no_event() -> None:
    decisions = Decisions()
    decisions.observe({"asked": 1}, START)
    assert decisions.observe({"asked": 1}, START + EVERY) is not None
    later = [decisions.observe({"asked": 1}, START + EVERY + second * 1_000_000) for second in range(3600)]
    assert later == [None] * 3600
    assert decisions.rest(START + 9 * EVERY) is None


def test_the_service_that_ends_leaves_nothing_uncounted() -> None:
    decisions = Decisions()
    decisions.observe({"asked": 3}, START)
    rest = decisions.rest(START + 5)
    assert rest is not None
    assert rest.details["counts"] == {"asked": 3}
    assert decisions.rest(START + 6) is None


def test_a_clock_that_is_set_back_does_not_hold_it_up() -> None:
    decisions = Decisions()
    decisions.observe({"asked": 3}, START)
    event = decisions.observe({"asked": 3}, START - EVERY)
    assert event is not None
    assert event.details["counts"] == {"asked": 3}


def test_an_event_is_bounded_and_keeps_what_happened_most_often() -> None:
    decisions = Decisions()
    counters = {f"branch-{number}": number for number in range(1, 1000)} | {"x" * 5000: 10**30}
    decisions.observe(counters, START)
    event = decisions.rest(START)
    assert event is not None
    counts = event.details["counts"]
    assert isinstance(counts, dict)
    assert len(counts) == MOST
    assert "branch-999" in counts
    assert max(map(len, counts)) <= 64
    assert max(counts.values()) < 2**63
