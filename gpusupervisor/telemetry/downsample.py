"""From stored rows to n points, each with the least, the mean and the most: a peak is never averaged away. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from operator import mul, sub
from typing import NamedTuple


class SeriesPoint(NamedTuple):
    """One of the n stretches of time. One of which nothing is known is left out."""

    at: int
    """When it begins, in realtime microseconds."""
    low: int
    mean: int
    high: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A range of time cut into stretches of the same length."""

    start: int
    width: int
    count: int

    @classmethod
    def over(cls, start: int, end: int, points: int) -> "Grid":
        """`points` stretches over start <= t < end."""
        return cls(start, max(1, -(-(end - start) // points)), points)

    @property
    def end(self) -> int:
        """The first moment after it."""
        return self.start + self.width * self.count

    def begin(self, index: int) -> int:
        """When a stretch begins."""
        return self.start + index * self.width


class Standing(NamedTuple):
    """A value that was noted and stands from then on."""

    at: int
    value: int
    low: int
    high: int
    until: int
    """When it stops to be known, unless another one comes before."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows within one stretch, summed up. low, high are None when each of them was unknown."""

    index: int
    low: int | None
    high: int | None
    weighted: float
    """Sum of value times the microseconds for which it stood within the stretch."""
    weight: float
    first_at: int
    last: Standing | None
    """The last row; None when the value was unknown from then on."""


Row = tuple[int, int | None, int | None]
"""When, value (None: unknown from then on), and the microseconds that it sums up (None: a sample as it was taken)."""
Extremes = Sequence[tuple[int | None, int | None]]
"""Low and high of each row."""


def sum_up(index: int, rows: Sequence[Row], extremes: Extremes | None, until: int, hold: int) -> Stretch:
    """Return the rows of one stretch as one value; there is at least one row, and they are in order.

    extremes: None where every row is a sample as it was taken, whose low and high are its value. until: where the
    stretch ends. hold: microseconds for which a sample stands. The loops are those of `map`: there may be thousands
    of rows in each of hundreds of stretches.
    """
    moments, values, spans = zip(*rows, strict=True)
    limits = repeat(hold) if extremes is None else (hold if span is None else span for span in spans)
    held = list(map(min, map(sub, (*moments[1:], until), moments), limits))
    lows, highs = (values, values) if extremes is None else zip(*extremes, strict=True)
    if None in values:
        known = [value is not None for value in values]
        held = list(compress(held, known))
        lows, highs, values = (tuple(compress(each, known)) for each in (lows, highs, values))
    last_at, last_value, last_span = rows[-1]
    last = None
    if last_value is not None:
        low, high = (last_value, last_value) if extremes is None else extremes[-1]
        assert low is not None
        assert high is not None, "both are known where the value is"
        last = Standing(last_at, last_value, low, high, last_at + (hold if last_span is None else last_span))
    weighted = float(sum(map(mul, values, held)))
    return Stretch(index, min(lows, default=None), max(highs, default=None), weighted, sum(held), moments[0], last)


@dataclass(slots=True)
class _Sum:
    low: int
    high: int
    weighted: float
    weight: float

    def add(self, standing: Standing, length: int) -> None:
        self.low, self.high = min(self.low, standing.low), max(self.high, standing.high)
        self.weighted += float(standing.value) * length
        self.weight += length


def points_of(
    grid: Grid, before: Standing | None, stretches: Iterable[Stretch], end: int | None = None
) -> list[SeriesPoint]:
    """One point for each stretch of which something is known.

    before: the last row before the grid. stretches: in order, those that have rows. end: where the last one is cut.
    """
    sums: dict[int, _Sum] = {}
    standing, index = before, 0
    for stretch in stretches:
        _carry(grid, sums, standing, index, stretch.first_at)
        if stretch.low is not None and stretch.high is not None:
            own = _Sum(stretch.low, stretch.high, stretch.weighted, stretch.weight)
            carried = sums.get(stretch.index)
            if carried:
                own.low, own.high = min(own.low, carried.low), max(own.high, carried.high)
                own.weighted, own.weight = own.weighted + carried.weighted, own.weight + carried.weight
            sums[stretch.index] = own
        standing, index = stretch.last, stretch.index + 1
    _carry(grid, sums, standing, index, grid.end if end is None else end)
    return [_point(grid, index, each) for index, each in sorted(sums.items())]


def _carry(grid: Grid, sums: dict[int, _Sum], standing: Standing | None, index: int, end: int) -> None:
    """A value stands on through the stretches from `index` until `end`, or until it is not known any more."""
    if standing is None:
        return
    until = min(standing.until, end)
    while index < grid.count and (start := max(grid.begin(index), standing.at)) < until:
        length = min(until, grid.begin(index + 1)) - start
        if length > 0:
            if index not in sums:
                sums[index] = _Sum(standing.low, standing.high, 0, 0)
            sums[index].add(standing, length)
        index += 1


def _point(grid: Grid, index: int, found: _Sum) -> SeriesPoint:
    mean = round(found.weighted / found.weight) if found.weight else found.low
    return SeriesPoint(grid.begin(index), found.low, min(max(mean, found.low), found.high), found.high)
