"""Columns of text with widths that are known, drawn faster than a table that measures every cell."""

from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from gpusupervisor.cli.screens.common import QUIET

GAP = 2
Cell = tuple[str, str]
"""Safe text and its style."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    title: str
    width: int
    """0: what is left."""
    right: bool = False


def heading(columns: tuple[Column, ...], sorted_by: str, room: int) -> Text:
    """The titles; the one that lines are sorted by is marked."""
    drawn = row(columns, [(column.title, QUIET) for column in columns], room)
    place = next((column.title for column in columns if column.name == sorted_by), "")
    if place:
        start = drawn.plain.index(place)
        drawn.stylize("bold underline", start, start + len(place))
    return drawn


def row(columns: tuple[Column, ...], cells: "list[Cell]", room: int) -> Text:
    """One line; what is too long for its column is cut. room: columns for the one that has what is left."""
    drawn = Text()
    last = len(columns) - 1
    for place, (column, (text, style)) in enumerate(zip(columns, cells, strict=True)):
        width = column.width or room
        shown = fitted(text, width, right=column.right) if width else text
        drawn.append(shown.rstrip() if place == last else shown, style)
        if place != last:
            drawn.append(" " * GAP)
    return drawn


def fitted(text: str, width: int, *, right: bool = False) -> str:
    """Text that is just so wide."""
    length = cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + "…" if width > 1 else set_cell_size(text, width)
    blanks = " " * (width - length)
    return blanks + text if right else text + blanks


def left_over(columns: tuple[Column, ...], width: int) -> int:
    """Columns for the one that has what is left."""
    return max(width - sum(column.width for column in columns) - GAP * (len(columns) - 1), 0)
