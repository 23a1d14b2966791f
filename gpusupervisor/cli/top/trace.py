"""What a figure was in the last minutes, for a sparkline."""

from collections.abc import Iterable, Sequence

STEP = 5_000_000
"""Microseconds of one stretch."""
COUNT = 120
"""Stretches that are kept: ten minutes."""
SPAN = STEP * COUNT

_BLOCKS = " ▁▂▃▄▅▆▇█"
_ASCII = " .:-=+*#@"


class Trace:
    """The most of a figure within each stretch; None where nothing is known of it."""

    def __init__(self) -> None:
        self._most: dict[int, int] = {}
        self._last: int | None = None
        self._begun: int | None = None
        """The stretch in which we began to look ourselves."""

    def note(self, at: int, value: int | None) -> None:
        """What it is at a time; it stays so until the next note."""
        now = at // STEP
        if self._begun is None:
            self._begun = now
        elif self._last is not None:
            for missed in range(max(max(self._most, default=now) + 1, now - COUNT), now + 1):
                self._most[missed] = self._last
        if value is not None:
            self._most[now] = max(self._most.get(now, 0), value)
        self._last = value
        self._forget(now)

    def seed(self, points: Iterable[Sequence[int]]) -> None:
        """What the service remembers, as Query of org.gpusupervisor1.Telemetry returns it, of before our time.

        What comes from several cards adds up.
        """
        for begin, _, _, most in points:
            if self._begun is None or begin // STEP < self._begun:
                self._most[begin // STEP] = self._most.get(begin // STEP, 0) + most

    def _forget(self, now: int) -> None:
        for old in [each for each in self._most if each <= now - COUNT]:
            del self._most[old]

    def values(self, at: int, width: int) -> list[int | None]:
        """The last ten minutes in `width` parts, the most of each."""
        first = at // STEP - COUNT + 1
        parts: list[int | None] = []
        for column in range(width):
            begin, end = column * COUNT // width, max((column + 1) * COUNT // width, column * COUNT // width + 1)
            known = [self._most[n] for n in range(first + begin, first + end) if n in self._most]
            parts.append(max(known) if known else None)
        return parts

    def most(self) -> int:
        """The most of all that is kept."""
        return max(self._most.values(), default=0)


def sparkline(values: Iterable[int | None], whole: int, *, unicode: bool) -> str:
    """One character a value, as a share of the whole; a blank where nothing is known, a dot for nothing."""
    blocks = _BLOCKS if unicode else _ASCII
    steps = len(blocks) - 1
    drawn = []
    for value in values:
        if value is None:
            drawn.append(" ")
        elif not value or not whole:
            drawn.append("·" if unicode else "_")
        else:
            drawn.append(blocks[min(steps, max(1, -(-value * steps // whole)))])
    return "".join(drawn)
