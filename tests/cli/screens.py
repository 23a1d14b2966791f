"""Screens as text, and names that are chosen to be nasty."""

from collections.abc import Iterable
from io import StringIO

from rich.console import Console, RenderableType

NASTY = "evil\x1b[2J\x07\r\nroot# \u202egnp.exe\x9b31m"


def drawn(renderables: Iterable[RenderableType], width: int = 80, *, colours: bool = False) -> str:
    """What a terminal of this width is sent, without blanks at the ends of lines."""
    stream = StringIO()
    console = Console(
        file=stream, width=width, force_terminal=colours, color_system="standard" if colours else None,
        highlight=False, markup=False, emoji=False, legacy_windows=False,
    )  # fmt: skip
    for each in renderables:
        console.print(each)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def is_harmless(text: str) -> bool:
    """Whether nothing in it steers a terminal."""
    return all(char.isprintable() or char in "\n\u200e" for char in text)
