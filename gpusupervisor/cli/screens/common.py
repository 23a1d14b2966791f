"""What all screens are drawn with.

Colours are of the eight that every terminal has, those that read on dark and on light; nothing is told by colour alone.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpusupervisor.cli.text import safe
from gpusupervisor.quantities import format_bytes, format_duration

GOOD, LIVELY, DOUBTFUL, BAD, QUIET, STRONG = "green", "cyan", "magenta", "bold red", "dim", "bold"

_NAME = 26
"""Columns that a name may take in any case: the rest of the row has room then even at 80."""
_SENTENCE = 36
"""Columns that a sentence needs beside its row; below it, it is indented by"""
_BELOW = 4

STYLES = {
    "ok": GOOD, "idle": GOOD, "supported": GOOD, "freed": GOOD, "satisfied": GOOD, "succeeded": GOOD, "settled": GOOD,
    "controlling": GOOD,
    "busy": LIVELY, "running": LIVELY, "planned": LIVELY, "pending": LIVELY, "probation": LIVELY, "settling": LIVELY,
    "unknown": DOUBTFUL, "degraded": DOUBTFUL, "partial": DOUBTFUL, "insufficient": DOUBTFUL, "drifted": DOUBTFUL,
    "overridden": DOUBTFUL, "contested": DOUBTFUL, "unverifiable": DOUBTFUL, "cancelled": DOUBTFUL,
    "fail-safe": DOUBTFUL,
    "stuck": BAD, "failed": BAD, "refused": BAD, "lost": BAD, "failing": BAD,
    "absent": QUIET, "skipped": QUIET, "unsupported": QUIET, "read-only": QUIET, "asleep": QUIET,
}  # fmt: skip
"""How the service's words for states look."""


def text(value: object, style: str = "") -> Text:
    """Anybody's text on one line."""
    return Text(safe(value), style)


def word(state: object) -> Text:
    """A state as the service calls it, in its colour."""
    return text(state, STYLES.get(str(state), ""))


def size(value: int | None) -> str:
    """Bytes for a person; "?" when nobody knows."""
    return "?" if value is None else format_bytes(value)


def duration(value: int | None) -> str:
    """Microseconds for a person."""
    return "?" if value is None else format_duration(value)


def moment(value: int | None) -> str:
    """A time of the realtime clock, here; "-" when there is none."""
    return "-" if value is None else datetime.fromtimestamp(value / 1e6).astimezone().strftime("%Y-%m-%d %H:%M:%S")


@dataclass(frozen=True)
class Grid:
    """Columns without lines, and sentences in the last one; a name that is too long for the width is cut."""

    header: Sequence[str]
    """Empty for none."""
    rows: Sequence[Sequence[Text | str]]
    """Strings are our own or `safe`."""
    right: Collection[int] = ()
    """Columns that are aligned to the right."""
    names: int = 0
    """The column of names that may be longer than there is room for."""
    gap: int = 2
    """Blanks between columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Drawn for the width there is: sentences fold beside their row, or stand below it where that is too narrow."""
        last = (len(self.header) or (len(self.rows[0]) if self.rows else 0)) - 1
        if last < 1 or self._is_roomy(last, options.max_width):
            yield self._drawn(last + 1, options.max_width)
            return
        beside = self._drawn(last, options.max_width, whole=True)
        lines = console.render_lines(beside, options, pad=False, new_lines=True)
        if self.header:
            yield from lines.pop(0)
        for row, line in zip(self.rows, lines, strict=True):
            yield from line
            if sentence := row[last]:
                yield Padding(sentence, (0, 0, 0, _BELOW))

    def _is_roomy(self, last: int, width: int) -> bool:
        """Whether the sentences have room beside the rest."""
        most = self._most(width)
        taken = 0
        for column in range(last):
            cells = (self.header[column] if self.header else "", *(row[column] for row in self.rows))
            wide = max(cell_len(str(cell)) for cell in cells)
            taken += (min(wide, most) if column == self.names else wide) + self.gap
        longest = max((cell_len(str(row[last])) for row in self.rows), default=0)
        return longest <= width - taken or width - taken >= _SENTENCE

    @staticmethod
    def _most(width: int) -> int:
        """Columns that a name may take."""
        return max(_NAME, width // 3)

    def _drawn(self, count: int, width: int, *, whole: bool = False) -> Table:
        """The first `count` columns; `whole`: the last of them is no sentence, and is not folded."""
        made = Table(
            box=None, show_header=bool(self.header), header_style=QUIET, pad_edge=False, padding=(0, self.gap, 0, 0)
        )
        for column in range(count):
            folds = column == count - 1 and not whole
            made.add_column(
                Text(self.header[column]) if self.header else "",
                justify="right" if column in self.right else "left",
                no_wrap=not folds,
                overflow="fold" if folds else "ellipsis",
                max_width=self._most(width) if column == self.names and not folds else None,
            )
        for row in self.rows:
            made.add_row(*row[:count])
        return made


def table(
    header: Sequence[str], rows: Iterable[Sequence[Text | str]], right: Collection[int] = (), names: int = 0
) -> Grid:
    """A grid; its arguments as Grid has them."""
    return Grid(header, list(rows), right, names)


def marked(items: Iterable[tuple[Text, Text]]) -> Grid:
    """Sentences, each behind its mark and folded beside it."""
    return Grid((), list(items), gap=1)
