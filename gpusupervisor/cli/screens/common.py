"""What all screens are drawn with.

Colours are of the eight that every terminal has, those that read on dark and on light; nothing is told by colour alone.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from rich.table import Table
from rich.text import Text

from gpusupervisor.cli.text import safe
from gpusupervisor.quantities import format_bytes, format_duration

GOOD, LIVELY, DOUBTFUL, BAD, QUIET, STRONG = "green", "cyan", "magenta", "bold red", "dim", "bold"

STYLES = {
    "ok": GOOD, "idle": GOOD, "supported": GOOD, "freed": GOOD, "satisfied": GOOD, "succeeded": GOOD, "settled": GOOD,
    "controlling": GOOD,
    "busy": LIVELY, "running": LIVELY, "pending": LIVELY, "probation": LIVELY, "settling": LIVELY,
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


def table(header: Sequence[str], rows: Iterable[Sequence[Text | str]], right: Iterable[int] = ()) -> Table:
    """Columns without lines; the last one folds, the others are cut when there is no room at all.

    header: empty for none. right: the columns that are aligned to the right. Strings must be our own or `safe`.
    """
    made = Table(box=None, show_header=bool(header), header_style=QUIET, pad_edge=False, padding=(0, 2, 0, 0))
    grid = [tuple(row) for row in rows]
    width = len(header) or (len(grid[0]) if grid else 0)
    for column in range(width):
        made.add_column(
            Text(header[column]) if header else "",
            justify="right" if column in set(right) else "left",
            no_wrap=column < width - 1,
            overflow="ellipsis" if column < width - 1 else "fold",
        )
    for row in grid:
        made.add_row(*row)
    return made


def trouble(summary: object, remedy: object, bad: bool) -> list[Text]:
    """A problem, and what to do about it."""
    lines = [Text.assemble(("! ", BAD if bad else DOUBTFUL), safe(summary))]
    if remedy:
        lines.append(text(f"  {remedy}", QUIET))
    return lines
