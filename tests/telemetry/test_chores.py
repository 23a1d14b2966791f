"""The file stays small: old samples are summed up and deleted, a file that is too large loses its oldest time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.telemetry.chores import AS_LOOKED_AT, SPAN, Limits, chores, size_of
from gpusupervisor.telemetry.database import Database
from gpusupervisor.telemetry.questions import read_events, read_points, read_series
from gpusupervisor.telemetry.records import Point, Series, TelemetryEvent
from tests.telemetry.builders import CARD, DAY, EPOCH, MINUTE, PLENTY, SECOND, USED, event, fact, points

NOW = EPOCH + 10 * DAY


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    one = Database(tmp_path / "telemetry.sqlite")
    yield one
    one.close()


def tidy(database: Database, limits: Limits = PLENTY, now: int = NOW) -> int:
    """Do all chores; returns how many pauses they made."""
    return sum(1 for _ in chores(database, limits, now))


def scalar(database: Database, statement: str) -> int:
    return int(database.connection.execute(statement).fetchone()[0])


def test_old_samples_are_summed_up_and_young_ones_are_not(database: Database) -> None:
    young = points(100, start=NOW - DAY, step=MINUTE)
    database.write([*points(1440 * 3, start=EPOCH, step=MINUTE), *young], [], 0)
    tidy(database)
    assert scalar(database, "SELECT count(*) FROM samples WHERE span IS NULL") == 100
    assert scalar(database, "SELECT count(*) FROM samples WHERE span IS NOT NULL") <= 3 * DAY // SPAN + 1
    assert scalar(database, "SELECT max(at) FROM samples WHERE span IS NOT NULL") < NOW - AS_LOOKED_AT
    tidy(database)
    assert scalar(database, "SELECT count(*) FROM samples WHERE span IS NULL") == 100


def test_a_peak_of_one_second_is_still_seen_after_it(database: Database) -> None:
    quiet = [Point(USED, EPOCH + number * MINUTE, 1000) for number in range(60)]
    peak = [Point(USED, EPOCH + 1_500_000_000, 9_000_000), Point(USED, EPOCH + 1_501_000_000, 1000)]
    database.write([*quiet, *peak], [], 0)
    before = read_points(database.connection, USED, EPOCH, EPOCH + 60 * MINUTE, 1)
    tidy(database)
    after = read_points(database.connection, USED, EPOCH - SPAN, EPOCH + 60 * MINUTE + SPAN, 1)
    assert (before[0].low, before[0].high) == (after[0].low, after[0].high) == (1000, 9_000_000)
    assert abs(before[0].mean - after[0].mean) <= 0.01 * before[0].mean + 2000


def test_what_is_unknown_is_not_summed_up_to_something(database: Database) -> None:
    database.write([Point(USED, EPOCH, 5000), Point(USED, EPOCH + MINUTE, None)], [], 0)
    tidy(database)
    rows = database.connection.execute("SELECT value, low, high FROM samples").fetchall()
    assert rows == [(5000, 5000, 5000)]


def test_what_is_too_old_goes_and_facts_stay(database: Database) -> None:
    database.write(points(2000, start=EPOCH, step=10 * MINUTE), [event(), TelemetryEvent("plan", NOW)], 0)
    database.write_facts([(fact().key, fact())])
    tidy(database, Limits(3 * DAY, 1 << 40))
    assert read_series(database.connection)[0].first >= NOW - 3 * DAY - SPAN
    assert [each.at for each in read_events(database.connection, 0, 2**62, "", 10)] == [NOW]
    assert database.recall().facts == (fact(),)


def test_a_series_that_nothing_is_left_of_goes_too_and_may_come_back(database: Database) -> None:
    gone = Series("holding", CARD, "comfyui@0123456789ab")
    database.write([*points(10, gone), *points(10, start=NOW)], [], 0)
    tidy(database, Limits(3 * DAY, 1 << 40))
    assert scalar(database, "SELECT count(*) FROM series") == 1
    database.write(points(5, gone, NOW), [], 0)
    database.write(points(5, Series("need", "", "x"), NOW), [], 0)
    assert len(read_points(database.connection, gone, NOW, NOW + 5 * SECOND, 5)) == 5
    assert [each.series for each in read_series(database.connection)] == [gone, Series("need", "", "x"), USED]


def test_a_file_that_is_too_large_loses_its_oldest_time_until_it_fits(database: Database, tmp_path: Path) -> None:
    for day in range(9):
        events = [TelemetryEvent("plan", EPOCH + day * DAY + n, details={"summary": "x" * 500}) for n in range(1500)]
        database.write(points(1440, start=EPOCH + day * DAY, step=MINUTE), events, 0)
    limit = 4 << 20
    assert size_of(database) > limit
    pauses = tidy(database, Limits(3660 * DAY, limit))
    assert pauses > 3
    assert size_of(database) <= limit
    assert (tmp_path / "telemetry.sqlite").stat().st_size <= limit
    assert (tmp_path / "telemetry.sqlite-wal").stat().st_size == 0
    left = read_events(database.connection, 0, 2**62, "", 100_000)
    assert left[0].at >= EPOCH + 8 * DAY, "the newest is there"
    assert len(left) > 1500 * 3, "and not much more went than had to"


def test_an_empty_file_needs_nothing(database: Database) -> None:
    tidy(database, Limits(DAY, 1))
    assert read_series(database.connection) == []
