"""What may be asked of the store: series, points, events. Each is a function of a read-only connection."""

import sqlite3

from gpusupervisor.telemetry.downsample import Grid, SeriesPoint, Standing, Stretch, points_of
from gpusupervisor.telemetry.records import HOLD, Series, Span, StoredEvent

_FIND = "SELECT id FROM series WHERE name = ? AND gpu = ? AND tenant = ?"
_STRETCHES = """
WITH rows AS (
    SELECT (at - :start) / :width AS stretch, at, value, coalesce(low, value) AS low, coalesce(high, value) AS high,
           min(coalesce(lead(at) OVER (ORDER BY at), :end) - at, coalesce(span, :hold),
               :start + ((at - :start) / :width + 1) * :width - at) AS held
    FROM samples WHERE series = :series AND at >= :start AND at < :end
), sums AS (
    SELECT stretch, min(low) AS low, max(high) AS high, total(1.0 * value * held) AS weighted,
           total(CASE WHEN value IS NULL THEN 0 ELSE held END) AS weight, min(at) AS first_at, max(at) AS last_at
    FROM rows GROUP BY stretch
)
SELECT stretch, sums.low, sums.high, weighted, weight, first_at,
       last.at, last.value, coalesce(last.low, last.value), coalesce(last.high, last.value), coalesce(last.span, :hold)
FROM sums JOIN samples AS last ON last.series = :series AND last.at = last_at
ORDER BY stretch
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
    bounds = {"series": number, "start": start, "end": end, "width": grid.width, "hold": HOLD}
    earlier = connection.execute(_BEFORE, bounds).fetchone()
    before = _standing(*earlier) if earlier else None
    stretches = [
        Stretch(index, low, high, weighted, weight, first_at, _standing(*last))
        for index, low, high, weighted, weight, first_at, *last in connection.execute(_STRETCHES, bounds)
    ]
    return points_of(grid, before, stretches, end)


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
