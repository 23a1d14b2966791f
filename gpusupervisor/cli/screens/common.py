"""What all screens are drawn with.

Colours are of the eight that every terminal has, those that read on dark and on light; nothing is told by colour alone.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.text import Text

from gpusupervisor.cli.text import kept_in_place, safe, units_freed, units_held
from gpusupervisor.quantities import format_bytes, format_duration

GOOD, LIVELY, DOUBTFUL, BAD, QUIET, STRONG = "green", "cyan", "magenta", "bold red", "dim", "bold"

_NAME = 22
"""Columns that a name gets beside its sentence; where there are not so many, the sentence stands below."""
_SENTENCE = 34
"""Columns that a sentence needs beside its row; below it, it is indented by"""
_BELOW = 4
_LEAST = 8
"""Columns of a cell on a terminal that is too narrow for everything."""


STYLES = {
    "ok": GOOD, "idle": GOOD, "supported": GOOD, "freed": GOOD, "satisfied": GOOD, "succeeded": GOOD, "settled": GOOD,
    "controlling": GOOD,
    "busy": LIVELY, "claimed": LIVELY, "stirring": LIVELY,
    "running": LIVELY, "planned": LIVELY, "pending": LIVELY, "probation": LIVELY, "settling": LIVELY,
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


def absent(names: Collection[str]) -> list[RenderableType]:
    """Who is not there, as a paragraph below a table."""
    return ["", text(f"{len(names)} absent: {', '.join(names)}", QUIET)] if names else []


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
    """Columns without lines, and sentences in the last one. Nothing is cut: what is too long is folded.

    Columns in which no row has anything are left out.
    """

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
        if not self.rows:
            return
        rows = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in self.rows]
        *others, last = [n for n in range(len(rows[0])) if any(row[n] for row in rows)] or [0]
        heads = [Text(head, QUIET) for head in self.header]
        every = [heads, *rows] if heads else rows
        widths = {n: max(row[n].cell_len for row in every) for n in (*others, last)}
        below = bool(others) and not self._make_room(widths, others, last, options.max_width)
        for row in every:
            shown = others if below else (*others, last)
            yield from _side_by_side(
                [(row[n], widths[n], "right" if n in self.right else "left") for n in shown], console, self.gap
            )
            if below and row is not heads and row[last]:
                sentence = _folded(row[last], console, options.max_width - _BELOW)
                yield Text("\n").join(Text(" " * _BELOW) + line for line in sentence)

    def _make_room(self, widths: dict[int, int], others: Sequence[int], last: int, width: int) -> bool:
        """Names and sentences made as narrow as they have to be; whether the sentences have room beside the rest."""
        taken = sum(widths[n] + self.gap for n in others)
        wanted = min(widths[last], _SENTENCE)
        if self.names in others and (excess := taken + wanted - width) > 0:
            narrow = max(widths[self.names] - excess, min(widths[self.names], _NAME))
            if taken - widths[self.names] + narrow + wanted <= width:
                taken -= widths[self.names] - narrow
                widths[self.names] = narrow
            else:
                self._below_each_other(widths, others, width)
        widths[last] = max(width - taken, _LEAST)
        return wanted <= width - taken

    def _below_each_other(self, widths: dict[int, int], others: Sequence[int], width: int) -> None:
        """Half of a line for names where sentences stand below; at the cost of the widest of the others, if need be."""
        left = width - self.gap * (len(others) - 1) - sum(widths[n] for n in others if n != self.names)
        wanted = min(widths[self.names], max(_NAME, width // 2))
        while left < min(wanted, _NAME):
            widest = max((n for n in others if n != self.names), key=widths.__getitem__, default=self.names)
            if (given := min(widths[widest] - _LEAST, wanted - left)) <= 0:
                break
            widths[widest] -= given
            left += given
        widths[self.names] = min(wanted, max(left, _LEAST))


def _side_by_side(cells: Sequence[tuple[Text, int, JustifyMethod]], console: Console, gap: int) -> Iterator[Text]:
    """The lines of one row, each cell folded to its width; after text from right to left its neighbours stay put."""
    folded = [_folded(cell, console, width) if cell.cell_len > width else [cell] for cell, width, _ in cells]
    for number in range(max(map(len, folded))):
        line, left, before = Text(no_wrap=True), 0, ""
        for (_, width, side), lines in zip(cells, folded, strict=True):
            part = lines[number] if number < len(lines) else Text()
            shift = width - part.cell_len if side == "right" else 0
            if part:
                line.append(kept_in_place(before) + " " * (left + shift - line.cell_len)).append_text(part)
                before = part.plain
            left += width + gap
        yield line


def _folded(cell: Text, console: Console, width: int) -> list[Text]:
    """Folded between words, and not between a number and its unit."""
    held = cell.copy()
    held.plain = units_held(held.plain)
    lines = list(held.wrap(console, width, overflow="fold"))
    for line in lines:
        line.plain = units_freed(line.plain)
        line.rstrip()
    return lines


def paragraph(shown: RenderableType, console: Console) -> RenderableType:
    """Text that is longer than a line folded as cells are; anything else as it is."""
    if not isinstance(shown, Text) or shown.no_wrap or shown.cell_len <= console.width:
        return shown
    return Text("\n").join(_folded(shown, console, console.width))


def table(
    header: Sequence[str], rows: Iterable[Sequence[Text | str]], right: Collection[int] = (), names: int = 0
) -> Grid:
    """A grid; its arguments as Grid has them."""
    return Grid(header, list(rows), right, names)


def marked(items: Iterable[tuple[Text, Text]]) -> Grid:
    """Sentences, each behind its mark and folded beside it."""
    return Grid((), list(items), gap=1)
