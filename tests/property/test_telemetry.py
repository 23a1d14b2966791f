"""Down-sampling never loses a peak; what is summed up keeps its extremes; the queue loses nothing."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from gpusupervisor.telemetry.chores import AS_LOOKED_AT, SPAN, Limits, chores
from gpusupervisor.telemetry.database import Database
from gpusupervisor.telemetry.questions import read_points
from gpusupervisor.telemetry.records import HOLD, Point, Series
from tests.telemetry.builders import DAY, EPOCH, SECOND, event, opened, rows

USED = Series("used", "GPU-1")
VALUES = st.one_of(st.none(), st.integers(0, 1 << 37))
SAMPLES = st.dictionaries(st.integers(0, 4000), VALUES, min_size=1, max_size=60)
"""Seconds to values."""


def stored(folder: str, samples: dict[int, int | None]) -> Database:
    database = Database(Path(folder) / "telemetry.sqlite")
    database.write([Point(USED, EPOCH + at * SECOND, value) for at, value in samples.items()], [], 0)
    return database


@settings(max_examples=60)
@given(SAMPLES, st.integers(1, 300), st.integers(0, 3000), st.integers(1, 4000))
def test_every_stretch_lies_within_what_was_seen_and_no_peak_is_lost(
    samples: dict[int, int | None], count: int, start: int, length: int
) -> None:
    begin, end = EPOCH + start * SECOND, EPOCH + (start + length) * SECOND
    with tempfile.TemporaryDirectory() as folder:
        database = stored(folder, samples)
        points = read_points(database.connection, USED, begin, end, count)
        database.close()
    within = [v for at, v in samples.items() if start <= at < start + length and v is not None]
    assert len(points) <= count
    assert [point.at for point in points] == sorted({point.at for point in points})
    assert all(begin <= point.at < end and point.low <= point.mean <= point.high for point in points)
    if within:
        assert max(point.high for point in points) >= max(within)
        assert min(point.low for point in points) <= min(within)
    seen = {value for value in samples.values() if value is not None}
    assert {point.low for point in points} | {point.high for point in points} <= seen


@settings(max_examples=60)
@given(SAMPLES, st.integers(1, 60))
def test_a_stretch_tells_what_a_second_by_second_replay_tells(samples: dict[int, int | None], width: int) -> None:
    """The stored rows read as a staircase whose steps end after HOLD."""
    count = 4100 // width + 1
    with tempfile.TemporaryDirectory() as folder:
        database = stored(folder, samples)
        end = EPOCH + count * width * SECOND
        points = read_points(database.connection, USED, EPOCH, end, count)
        database.close()
    stairs: list[int | None] = []
    value, known_until = None, -1
    for second in range(count * width):
        if second in samples:
            value, known_until = samples[second], second + HOLD // SECOND
        stairs.append(value if second < known_until else None)
    expected = []
    for index in range(count):
        part = [each for each in stairs[index * width : (index + 1) * width] if each is not None]
        if part:
            expected.append((EPOCH + index * width * SECOND, min(part), round(sum(part) / len(part)), max(part)))
    assert [(p.at, p.low, p.high) for p in points] == [(at, low, high) for at, low, _, high in expected]
    assert all(abs(p.mean - mean) <= 1 + mean * 1e-9 for p, (_, _, mean, _) in zip(points, expected, strict=True))


@settings(max_examples=30)
@given(SAMPLES)
def test_summing_up_keeps_the_extremes_of_every_span(samples: dict[int, int | None]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        database = stored(folder, samples)
        for _ in chores(database, Limits(3660 * DAY, 1 << 40), EPOCH + AS_LOOKED_AT + DAY):
            pass
        kept = {at: (low, high) for at, low, high in database.connection.execute("SELECT at, low, high FROM samples")}
        database.close()
    spans: dict[int, list[int]] = {}
    for at, value in samples.items():
        if value is not None:
            moment = EPOCH + at * SECOND
            spans.setdefault(moment - moment % SPAN, []).append(value)
    assert kept == {at: (min(values), max(values)) for at, values in spans.items()}


@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 400), st.booleans()), max_size=12))
def test_closing_loses_no_row_whatever_came_before(bursts: list[tuple[int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, at, events = Path(folder) / "telemetry.sqlite", 0, 0
        with opened(path, batch_interval=0.005) as station:
            for size, with_event in bursts:
                station.store.put_points([Point(USED, EPOCH + at + number, number) for number in range(size)])
                at += size
                if with_event:
                    station.store.put_event(event(events))
                    events += 1
        assert (rows(path), rows(path, "events")) == (at, events)
