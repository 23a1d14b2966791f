"""What may be asked of the store: series, points, events. Each is a function of a read-only connection."""

import sqlite3
from collections.abc import Iterator

from gpusupervisor.telemetry.downsample import Grid, SeriesPoint, Standing, Stretch, points_of, sum_up
from gpusupervisor.telemetry.records import HOLD, Series, Span, StoredEvent

_FIND = "SELECT id FROM series WHERE name = ? AND gpu = ? AND tenant = ?"
_ROWS = "SELECT at, value, span FROM samples WHERE series = ? AND at >= ? AND at < ? ORDER BY at"
_EXTREMES = """
SELECT coalesce(low, value), coalesce(high, value) FROM samples WHERE series = ? AND at >= ? AND at < ? ORDER BY at
"""
_BEFORE = """
SELECT at, value, coalesce(low, value), coalesce(high, value), coalesce(span, :hold)
FROM samples WHERE series = :series AND at < :start ORDER BY at DESC LIMIT 1
"""
_EVENTS = "SELECT kind, at, tenant, gpu, plan, details FROM events WHERE at >= ? AND at < ?"
_LEAST = "SELECT min(coalesce(low, value)) FROM samples WHERE series = ? AND at >= ?"


def read_series(connection: sqlite3.Connection) -> list[Span]:
    """Every series that has samples."""
    found = []
    for number, *series in connection.execute("SELECT id, name, gpu, tenant FROM series ORDER BY name, gpu, tenant"):
        [first] = connection.execute("SELECT min(at) FROM samples WHERE series = ?", (number,)).fetchone()
        [last] = connection.execute("SELECT max(at) FROM samples WHERE series = ?", (number,)).fetchone()
        if first is not None:
            found.append(Span(Series(*series), first, last))
    return found


def read_points(connection: sqlite3.Connection, series: Series, start: int, end: int, count: int) -> list[SeriesPoint]:
    """A series over start <= t < end, as at most `count` points. start 0: from the first sample on."""
    row = connection.execute(_FIND, series).fetchone()
    if row is None:
        return []
    [number] = row
    if start == 0:
        [first] = connection.execute("SELECT min(at) FROM samples WHERE series = ?", (number,)).fetchone()
        start = first or 0
    if start >= end:
        return []
    grid = Grid.over(start, end, count)
    bounds = {"series": number, "start": start, "hold": HOLD}
    earlier = connection.execute(_BEFORE, bounds).fetchone()
    before = _standing(*earlier) if earlier else None
    return points_of(grid, before, _stretches(connection, number, grid, end), end)


def _stretches(connection: sqlite3.Connection, series: int, grid: Grid, end: int) -> Iterator[Stretch]:
    """The stretches that have rows, in order, each read by its range of the primary key.

    Rows come in order, so one pass does: 172,800 samples take 1.5 times as long as min(), max() and avg() over them,
    where a window function of SQLite's, which sorts them twice, took 4.2 times as long.
    """
    for index in range(grid.count):
        begin, until = grid.begin(index), min(grid.begin(index + 1), end)
        rows = connection.execute(_ROWS, (series, begin, until)).fetchall()
        if rows:
            raw = all(span is None for _, _, span in rows)
            extremes = None if raw else connection.execute(_EXTREMES, (series, begin, until)).fetchall()
            yield sum_up(index, rows, extremes, until, HOLD)


def _standing(at: int, value: int | None, low: int | None, high: int | None, hold: int) -> Standing | None:
    if value is None or low is None or high is None:
        return None
    return Standing(at, value, low, high, at + hold)


def read_events(connection: sqlite3.Connection, start: int, end: int, kind: str, limit: int) -> list[StoredEvent]:
    """The last `limit` events within start <= t < end, the newest first; kind: "" for all."""
    statement, values = _EVENTS, [start, end]
    if kind:
        rows = connection.execute(f"{statement} AND kind = ? ORDER BY at DESC, id DESC LIMIT ?", (*values, kind, limit))
    else:
        rows = connection.execute(f"{statement} ORDER BY at DESC, id DESC LIMIT ?", (*values, limit))
    return [StoredEvent(*row) for row in rows]


def read_least(connection: sqlite3.Connection, series: Series, since: int) -> int | None:
    """The least of a series since a time; None when nothing is known."""
    row = connection.execute(_FIND, series).fetchone()
    if row is None:
        return None
    [least] = connection.execute(_LEAST, (row[0], since)).fetchone()
    return int(least) if least is not None else None
