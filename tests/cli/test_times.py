"""Times as people type them for --since."""

from datetime import UTC, datetime

import pytest

from gpusupervisor.cli.times import parse_since

NOW = datetime(2026, 3, 5, 14, 30, tzinfo=UTC)
HOUR = 3_600_000_000


@pytest.mark.parametrize(
    ("typed", "hours"),
    [
        ("2h", 2), ("-2h", 2), ("2h ago", 2), ("1w", 168), ("now", 0), ("today", 14.5), ("yesterday", 38.5),
        ("14:00", 0.5), ("09:30:00", 5), ("2026-03-05", 14.5), ("2026-03-04", 38.5), ("2026-03-05 13:30", 1),
        ("2026-03-05T13:30:00", 1),
    ],
)  # fmt: skip
def test_a_time_may_be_typed_as_for_journalctl(typed: str, hours: float) -> None:
    assert parse_since(typed, NOW) == hours * HOUR


@pytest.mark.parametrize(
    ("typed", "problem"),
    [
        ("yesterdy", "no time"), ("", "no time"), ("-", "no time"), ("ago", "no time"), ("2 parsecs ago", "no time"),
        ("2026-02-30", "not a date"), ("25:00", "not a date"), ("2026-13-01", "not a date"),
        ("2027-01-01", "future"), ("15:00", "future"),
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_what_is_allowed(typed: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_since(typed, NOW)
