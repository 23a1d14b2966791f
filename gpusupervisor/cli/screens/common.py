"""What all screens are drawn with.

Colours are of the eight that every terminal has, those that read on dark and on light; nothing is told by colour alone.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from gpusupervisor.cli.text import safe
from gpusupervisor.quantities import format_bytes, format_duration

GOOD, LIVELY, DOUBTFUL, BAD, QUIET, STRONG = "green", "cyan", "magenta", "bold red", "dim", "bold"

_NAME = 26
"""Columns that a name may take in any case: the rest of the row has room then even at 80."""

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
    """Columns without lines; the last one folds, and a name that is too long for the width is cut."""

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

    def __rich_console__(self, _: Console, options: ConsoleOptions) -> RenderResult:
        """Drawn for the width there is."""
        width = len(self.header) or (len(self.rows[0]) if self.rows else 0)
        made = Table(
            box=None, show_header=bool(self.header), header_style=QUIET, pad_edge=False, padding=(0, self.gap, 0, 0)
        )
        for column in range(width):
            last = column == width - 1
            made.add_column(
                Text(self.header[column]) if self.header else "",
                justify="right" if column in self.right else "left",
                no_wrap=not last,
                overflow="fold" if last else "ellipsis",
                max_width=max(_NAME, options.max_width // 4) if column == self.names and not last else None,
            )
        for row in self.rows:
            made.add_row(*row)
        yield made


def table(
    header: Sequence[str], rows: Iterable[Sequence[Text | str]], right: Collection[int] = (), names: int = 0
) -> Grid:
    """A grid; its arguments as Grid has them."""
    return Grid(header, list(rows), right, names)


def marked(items: Iterable[tuple[Text, Text]]) -> Grid:
    """Sentences, each behind its mark and folded beside it."""
    return Grid((), list(items), gap=1)
