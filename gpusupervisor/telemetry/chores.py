"""What keeps the file small: old samples are summed up, then deleted. Each chore is short; others go in between."""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from gpusupervisor.telemetry.database import Database, troubles
from gpusupervisor.telemetry.records import HOLD

SECOND = 1_000_000
DAY = 86_400 * SECOND
AS_LOOKED_AT = 2 * DAY
"""Samples older than this are summed up."""
SPAN = 600 * SECOND
"""Of which one row is made then, with the least, the mean and the most."""
SHARE = 20
"""A file that is too large loses this part of its time, and again until it fits."""
PAGES_AT_ONCE = 2000

_SUM_UP = """
INSERT OR REPLACE INTO samples (series, at, value, low, high, span)
SELECT :series, stretch * :span, CAST(round(total(1.0 * value * held) / total(held)) AS INTEGER),
       min(value), max(value), :span
FROM (
    SELECT at / :span AS stretch, value,
           min(coalesce(lead(at) OVER (ORDER BY at), at + :hold) - at, :hold) AS held
    FROM samples WHERE series = :series AND at >= :start AND at < :end AND span IS NULL
)
WHERE value IS NOT NULL GROUP BY stretch
"""
_FORGET_EMPTY_SERIES = "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM samples WHERE samples.series = series.id)"
_FORGET_SUMMED_UP = "DELETE FROM samples WHERE series = :series AND at >= :start AND at < :end AND span IS NULL"


@dataclass(frozen=True, slots=True)
class Limits:
    """What may be kept."""

    keep: int
    """Microseconds."""
    size: int
    """Bytes on disk."""


def chores(database: Database, limits: Limits, now: int) -> Iterator[None]:
    """Sum up, delete what is too old, make the file fit. Stops between two short transactions."""
    for series in _series(database):
        yield from _sum_up(database, series, now - AS_LOOKED_AT)
    yield from _delete_before(database, now - limits.keep)
    while size_of(database) > limits.size:
        oldest = _oldest(database)
        if oldest is None:
            break
        yield from _delete_before(database, oldest + max(SECOND, (now - oldest) // SHARE))
    while _free_pages(database):
        with troubles():
            database.connection.execute(f"PRAGMA incremental_vacuum({PAGES_AT_ONCE})").fetchall()
        yield
    with troubles():
        database.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def size_of(database: Database) -> int:
    """Bytes that the rows take: pages in use, without those that are free to be given back."""
    return (_pragma(database, "page_count") - _free_pages(database)) * _pragma(database, "page_size")


def _free_pages(database: Database) -> int:
    return _pragma(database, "freelist_count")


def _pragma(database: Database, name: str) -> int:
    with troubles():
        return int(database.connection.execute(f"PRAGMA {name}").fetchone()[0])


def _series(database: Database) -> list[int]:
    with troubles():
        return [row[0] for row in database.connection.execute("SELECT id FROM series")]


def _sum_up(database: Database, series: int, before: int) -> Iterator[None]:
    """A day at a time, on the borders of spans."""
    end = before - before % SPAN
    find = "SELECT min(at) FROM samples WHERE series = ? AND at < ? AND span IS NULL"
    while True:
        with troubles():
            [first] = database.connection.execute(find, (series, end)).fetchone()
        if first is None:
            return
        start = first - first % SPAN
        bounds = {"series": series, "start": start, "end": min(end, start + DAY), "span": SPAN, "hold": HOLD}

        def replace(connection: sqlite3.Connection, bounds: dict[str, int] = bounds) -> None:
            connection.execute(_SUM_UP, bounds)
            connection.execute(_FORGET_SUMMED_UP, bounds)

        database.transaction(replace)
        yield


def _delete_before(database: Database, before: int) -> Iterator[None]:
    """Samples and events of a time that is over, and series that nothing is left of. Facts stay."""

    def delete_rest(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM events WHERE at < ?", (before,))
        connection.execute(_FORGET_EMPTY_SERIES)

    for series in _series(database):

        def delete(connection: sqlite3.Connection, series: int = series) -> None:
            connection.execute("DELETE FROM samples WHERE series = ? AND at < ?", (series, before))

        database.transaction(delete)
        yield
    database.transaction(delete_rest)
    database.forget_series()
    yield


def _oldest(database: Database) -> int | None:
    """When the oldest row is of."""
    with troubles():
        run = database.connection.execute
        firsts = [
            run("SELECT min(at) FROM samples WHERE series = ?", (each,)).fetchone()[0] for each in _series(database)
        ]
        firsts.append(run("SELECT min(at) FROM events").fetchone()[0])
    return min((first for first in firsts if first is not None), default=None)
