"""Where output goes, as rich has it: colours, width, and whether more than ASCII can be shown."""

import os
from typing import IO, NamedTuple

from rich.console import Console

from gpusupervisor.cli.text import is_utf8

UNBOUNDED = 10_000
"""Columns where nobody looks at the width: nothing is cut or folded for a pipe or a file."""


class Canvas(NamedTuple):
    """What a screen has to know of where it is drawn."""

    width: int
    colours: bool
    unicode: bool


def console(stream: IO[str]) -> Console:
    """A console on a stream: colours only on a terminal without NO_COLOR, and nothing that is printed is markup."""
    width = None if stream.isatty() or "COLUMNS" in os.environ else UNBOUNDED
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False, legacy_windows=False)


def canvas(of: Console) -> Canvas:
    """The canvas that a console is."""
    unicode = is_utf8(of.encoding) and os.environ.get("TERM") != "linux"  # the fonts of the console have 512 characters
    return Canvas(of.width, of.color_system is not None and not of.no_color, unicode)
