"""The memory of one card as a bar, and whose each part is."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from gpusupervisor.cli.screens.common import QUIET, size, text
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas

WIDEST = 100
"""Columns of a bar; a longer one tells no more."""
_COLOURS = ("green", "cyan", "magenta", "blue", "yellow")
NAMED = 4
"""Holders that are named."""
_MUCH = 64 << 20
"""Bytes."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SHADES = {"unattributed": ("▓", "%"), "driver": ("▒", "="), "host": ("▒", "="), "free": ("░", ".")}
"""Of what nobody holds: as blocks and in ASCII."""


class Holder(NamedTuple):
    """A tenant, or a process that is no tenant's, with what it holds of one card."""

    name: str
    size: int | None
    """None: the driver does not say."""
    pid: int = 0
    """Of an unmanaged process; 0 for a tenant."""


Key = tuple[str, str]
"""The character that stands for a part in the bar and beside its name, and its style."""
Keys = Mapping[tuple[str, int], Key]
"""By name and pid of the holder."""


def holders(gpu: Shape) -> list[Holder]:
    """Who holds memory of a card, the largest first."""
    found = [Holder(name, held) for name, held in gpu["tenant_holdings"].items() if held]
    found += [Holder(process["name"], process["used"], process["pid"]) for process in gpu["unmanaged"]]
    return sorted(found, key=lambda each: (-(each.size or 0), each.name, each.pid))


def rest(gpu: Shape) -> list[tuple[str, int]]:
    """What no GPU process holds of a card: nobody's, the driver's and the firmware's, and what is free.

    Where the memory is the host's, host programs hold what is the driver's elsewhere.
    """
    keeper = "host" if gpu["memory_source"] == "unified" else "driver"
    of = {"unattributed": "unattributed", keeper: "memory_reserved", "free": "memory_free"}
    return [(name, gpu[key]) for name, key in of.items() if gpu[key]]


def keys(gpus: Iterable[Shape], canvas: Canvas) -> Keys:
    """Coloured blocks, or letters where there are no colours; who is on several cards has the same on all."""
    found: dict[tuple[str, int], Key] = {}
    for holder in (each for gpu in gpus for each in holders(gpu)):
        found.setdefault((holder.name, holder.pid), key(len(found), canvas))
    return found


def key(number: int, canvas: Canvas) -> Key:
    """The key of the holder with this number, counted from 0."""
    if canvas.colours:
        return ("█" if canvas.unicode else "#", _COLOURS[number % len(_COLOURS)])
    return (_LETTERS[number % len(_LETTERS)], "")


def bar(gpu: Shape, of: Keys, canvas: Canvas) -> Text:
    """All parts side by side, each as wide as its share."""
    held, left = holders(gpu), rest(gpu)
    marks = [*(of[each.name, each.pid] for each in held), *(shade(name, canvas) for name, _ in left)]
    dealt = shares([*(each.size or 0 for each in held), *(part for _, part in left)], min(canvas.width, WIDEST))
    drawn = Text()
    for (char, style), columns in zip(marks, dealt, strict=True):
        drawn.append(char * columns, style)
    return drawn


def legend(gpu: Shape, canvas: Canvas) -> Text:
    """What the shades of the bar are, with sizes, on one line."""
    parts = [Text.assemble(shade(name, canvas), text(f"  {name} {size(part)}", QUIET)) for name, part in rest(gpu)]
    return Text("   ").join(parts)


def kept_for_good(gpu: Shape) -> str:
    """What no plan can ever have of a card, by holder, the largest first; empty when that is next to nothing."""
    kept = sorted(gpu["unreclaimable"].items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{name} {size(part)}" for name, part in kept[:NAMED])
    more = f" and {len(kept) - NAMED} more" if len(kept) > NAMED else ""
    total = sum(part for _, part in kept)
    return f"never reclaimable: {size(total)} ({named}{more})" if total >= _MUCH else ""


def shade(name: str, canvas: Canvas) -> Key:
    """What stands for a part that nobody holds."""
    return _SHADES[name][0 if canvas.unicode else 1], QUIET


def shares(sizes: Sequence[int], width: int) -> list[int]:
    """`width` columns dealt out by size; who has something gets one where there are enough."""
    total = sum(sizes)
    exact = [size * width / total if total else 0.0 for size in sizes]
    dealt = [max(round(each), 1 if size else 0) for each, size in zip(exact, sizes, strict=True)]
    while sum(dealt) > width:  # taken from whom it costs least of what is due
        dealt[max(range(len(dealt)), key=lambda i: (dealt[i] > 1, dealt[i] - exact[i]))] -= 1
    while total and sum(dealt) < width:
        dealt[max(range(len(dealt)), key=lambda i: exact[i] - dealt[i])] += 1
    return dealt
