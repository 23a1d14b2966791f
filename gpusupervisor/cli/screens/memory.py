"""The memory of one card as a bar, and whose each part is."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from gpusupervisor.cli.screens.common import QUIET
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas

WIDEST = 100
"""Columns of a bar; a longer one tells no more."""
_COLOURS = ("green", "cyan", "magenta", "blue", "yellow")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the memory."""

    kind: str
    """ "tenant", "unmanaged", "unattributed", "reserved" or "free"."""
    name: str
    size: int
    pid: int = 0
    """Of an unmanaged process."""


def parts(gpu: Shape) -> list[Part]:
    """Who holds the memory of a card whose memory is known: the largest first, then nobody's, the driver's, free."""
    holders = [Part("tenant", name, held) for name, held in gpu["tenant_holdings"].items() if held]
    holders += [Part("unmanaged", p["name"], p["used"] or 0, p["pid"]) for p in gpu["unmanaged"]]
    rest = [
        Part("unattributed", "unattributed", gpu["unattributed"] or 0),
        Part("reserved", "driver", gpu["memory_reserved"] or 0),
        Part("free", "free", gpu["memory_free"] or 0),
    ]
    return sorted(holders, key=lambda part: (-part.size, part.name)) + [part for part in rest if part.size]


def keys(of: Sequence[Part], canvas: Canvas) -> list[tuple[str, str]]:
    """For each part the character that it has in the bar and before its name, and the style."""
    holder = iter(_holders(canvas))
    shades = ("▓", "▒", "░") if canvas.unicode else ("%", "=", ".")
    others = dict(zip(("unattributed", "reserved", "free"), shades, strict=True))
    return [(others[part.kind], QUIET) if part.kind in others else next(holder) for part in of]


def _holders(canvas: Canvas) -> Iterator[tuple[str, str]]:
    """Coloured blocks, or letters where there are no colours."""
    number = 0
    while True:
        block = "█" if canvas.unicode else "#"
        colour = _COLOURS[number % len(_COLOURS)]
        yield (block, colour) if canvas.colours else (_LETTERS[number % len(_LETTERS)], "")
        number += 1


def bar(of: Sequence[Part], canvas: Canvas) -> Text:
    """All parts side by side, each as wide as its share."""
    drawn = Text()
    width = min(canvas.width, WIDEST)
    for columns, (char, style) in zip(shares([part.size for part in of], width), keys(of, canvas), strict=True):
        drawn.append(char * columns, style)
    return drawn


def shares(sizes: Sequence[int], width: int) -> list[int]:
    """`width` columns dealt out by size; the largest remainders round up, who has something gets one if possible."""
    total = sum(sizes)
    if not total:
        return [0] * len(sizes)
    exact = [size * width / total for size in sizes]
    dealt = [max(int(each), 1 if size else 0) for each, size in zip(exact, sizes, strict=True)]
    order = sorted(range(len(sizes)), key=lambda i: exact[i] - dealt[i])
    while sum(dealt) > width:
        dealt[max(range(len(sizes)), key=lambda i: (dealt[i] - exact[i], dealt[i]))] -= 1
    for i in reversed(order):
        if sum(dealt) == width:
            break
        dealt[i] += 1
    return dealt
