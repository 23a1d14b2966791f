"""The overview: the cards above, the tenants below. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from gpusupervisor.cli.screens.common import BAD, DOUBTFUL, LIVELY, QUIET, STRONG, STYLES, moment, size, text
from gpusupervisor.cli.screens.memory import WIDEST, Key, bar, holders, kept_for_good, key, legend
from gpusupervisor.cli.screens.status import is_known, unreadable
from gpusupervisor.cli.screens.tenants import held
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas
from gpusupervisor.cli.text import safe
from gpusupervisor.cli.top.board import Board
from gpusupervisor.cli.top.columns import Column, fitted, heading, left_over, row
from gpusupervisor.cli.top.page import Content, Line
from gpusupervisor.cli.top.trace import sparkline

_ROOMY = 2
"""Up to so many cards have a bar of their own line each."""
_SPARKS, _FEW_SPARKS, _MOST_SPARKS = 24, 12, 60
WIDE, _VERY_WIDE = 104, 132
"""Columns from which on there are sparklines, and what can be given back."""
_MINUTE = 60_000_000
_MOST_REASON = 3
"""Lines."""
_MOST_NAME, _MOST_CARD_NAME = 26, 16
UNMANAGED = "unmanaged:"
"""What the keys of lines begin with that are no tenant's."""


@dataclass(frozen=True, slots=True)
class Wish:
    """How a person wants the tenants."""

    sort: str = "holding"
    reverse: bool = False
    absent: bool = False
    """Whether those who are not there are shown too."""


SORTS = ("holding", "name", "activity", "need", "idle")
_ACTIVITIES = ("stuck", "busy", "claimed", "stirring", "unknown", "idle", "absent")


def cards(board: Board, canvas: Canvas, at: int) -> list[Line]:
    """Every card with its bar and its last minutes."""
    gpus = [{**gpu, "name": gpu["name"].partition(" (GPU-")[0]} for gpu in board.gpus]  # its place tells it apart
    marks = _marks(board, canvas)
    found: list[Text] = []
    if not gpus:
        problem = "" if board.health["state"] == "ok" else f": {board.health['summary']}"
        found.append(text(f"no GPU is known{problem}", DOUBTFUL))
    name_width = min(max((cell_len(_short_name(gpu)) for gpu in gpus), default=0), _MOST_CARD_NAME)
    for gpu in gpus:
        place = Text(f" {_place(gpu)}" if len(gpus) > 1 else "", QUIET)
        if not is_known(gpu):
            name = fitted(_short_name(gpu), name_width) if len(gpus) > _ROOMY else safe(gpu["name"])
            found.append(unreadable({**gpu, "name": name}, place))
        elif len(gpus) <= _ROOMY:
            found += _card(board, gpu, place, marks, canvas, at)
        else:
            found.append(_short_card(board, gpu, marks, canvas, at, name_width))
        found += _notes(gpu)
    if board.events:
        latest = board.events[-1]
        found.append(Text.assemble((moment(latest.at)[11:], QUIET), " ", latest.told))
    return [Line(cut(each, canvas.width)) for each in found]


def cut(line: Text, width: int) -> Text:
    """What there is room for of a line."""
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line


def _marks(board: Board, canvas: Canvas) -> Mapping[tuple[str, int], Key]:
    return {holder: key(number, canvas) for holder, number in board.number_holders().items()}


def _card(
    board: Board, gpu: Shape, place: Text, marks: Mapping[tuple[str, int], Key], canvas: Canvas, at: int
) -> list[Text]:
    amounts = f"{size(gpu['memory_used'])} of {size(gpu['memory_total'])} held, {size(gpu['memory_free'])} free"
    head = Text.assemble(text(gpu["name"], STRONG), place, "  ", amounts, "  ")
    room = min(max(canvas.width - head.cell_len, 0), _MOST_SPARKS)
    if room >= _SPARKS // 2:
        head.append(_spark(board, (gpu["uuid"], ""), gpu["memory_total"], room, canvas, at), LIVELY)
    return [head, bar(gpu, marks, canvas), legend(gpu, canvas)]


def _short_card(
    board: Board, gpu: Shape, marks: Mapping[tuple[str, int], Key], canvas: Canvas, at: int, name_width: int
) -> Text:
    name = fitted(_short_name(gpu), name_width)
    place = _place(gpu)
    amounts = f"{gpu['memory_used'] / 2**30:5.1f}/{gpu['memory_total'] / 2**30:.1f} GiB"
    room = canvas.width - cell_len(name) - len(place) - len(amounts) - 5
    sparks = max(_SPARKS if canvas.width >= WIDE else 10, min(room - WIDEST, _MOST_SPARKS))
    drawn = bar(gpu, marks, Canvas(max(room - sparks, 1), canvas.colours, canvas.unicode))
    spark = _spark(board, (gpu["uuid"], ""), gpu["memory_total"], sparks, canvas, at)
    return Text.assemble((name, STRONG), " ", (place, QUIET), " ", drawn, " ", amounts, "  ", (spark, LIVELY))


def _place(gpu: Shape) -> str:
    """The beginning of its UUID, by which texts and commands tell it from others, short enough for a column."""
    return safe(gpu["uuid"])[:12].removeprefix("GPU-")


def _short_name(gpu: Shape) -> str:
    return safe(gpu["name"]).removeprefix("NVIDIA ").removeprefix("GeForce ")


def _notes(gpu: Shape) -> Iterable[Text]:
    """What goes on with a card, and what it can never give."""
    if is_known(gpu) and (kept := kept_for_good(gpu)):
        yield text(kept, QUIET)
    if gpu["plan"]:
        yield Text.assemble(("> ", LIVELY), text(f"plan {gpu['plan']} is being carried out"))
    for kept in gpu["reservations"]:
        until = moment(kept["expires_at"])[11:]
        yield Text.assemble(("> ", LIVELY), text(f"{size(kept['size'])} kept for {kept['tenant']} until {until}"))
    if gpu["attribution_problem"]:
        yield Text.assemble(("! ", DOUBTFUL), text(gpu["attribution_problem"]))


def _spark(board: Board, figure: tuple[str, str], whole: int, width: int, canvas: Canvas, at: int) -> str:
    return sparkline(board.trace(figure).values(at, width), whole, unicode=canvas.unicode)


def tenants(board: Board, canvas: Canvas, at: int, wish: Wish) -> Content:
    """One line a tenant, and one for each process that is nobody's."""
    shown = sorted_tenants(board.tenants, wish)
    strangers = [(gpu, h) for gpu in board.gpus if is_known(gpu) for h in holders(gpu) if h.pid]
    names = [*(cell_len(safe(each["id"])) for each in shown), *(cell_len(safe(h.name)) for _, h in strangers)]
    places = {gpu["uuid"]: _place(gpu) for gpu in board.gpus}
    columns = _columns(canvas.width, max(names, default=6), several=len(places) > 1)
    room = left_over(columns, canvas.width)
    sparks = next((column.width for column in columns if column.name == "spark"), 0)
    marks = _marks(board, canvas)
    whole = max((gpu["memory_total"] or 0 for gpu in board.gpus), default=0)
    lines = []
    for tenant in shown:
        cells = _cells(tenant, marks.get((tenant["id"], 0), ("", "")), at)
        cells["gpu"] = (_where(tenant["holdings"], places), "")
        cells["spark"] = (_spark(board, ("", tenant["id"]), whole, sparks, canvas, at), LIVELY)
        lines.append(Line(row(columns, [cells[c.name] for c in columns], room), tenant["id"]))
    for gpu, holder in strangers:
        cells = {
            "gpu": (places[gpu["uuid"]], ""),
            "mark": marks[holder.name, holder.pid], "name": (safe(holder.name), ""),
            "activity": ("unmanaged", DOUBTFUL), "holding": (size(holder.size), ""),
            "why": (f"pid {holder.pid}; never touched", QUIET),
        }  # fmt: skip
        lines.append(
            Line(row(columns, [cells.get(c.name, ("", "")) for c in columns], room), f"{UNMANAGED}{holder.pid}")
        )
    absent = sum(each["activity"] == "absent" and not each["holding"] for each in board.tenants)
    if absent and not wish.absent:
        number = "1 tenant is" if absent == 1 else f"{absent} tenants are"
        lines.append(Line(Text(f"{number} absent (a shows all)", QUIET)))
    return Content(lines, (heading(columns, wish.sort, room),))


def whole_reason(board: Board, canvas: Canvas, chosen: str, console: Console) -> list[Line]:
    """Why the tenant that is chosen is as it is, where its line has no room for that."""
    tenant = next((each for each in board.tenants if each["id"] == chosen), None)
    longest = max((cell_len(safe(each["id"])) for each in board.tenants), default=0)
    columns = _columns(canvas.width, longest, several=len(board.gpus) > 1)
    if tenant is None or cell_len(_why(tenant)) <= left_over(columns, canvas.width):
        return []
    told = Text.assemble((safe(chosen), STRONG), ": ", (_why(tenant), BAD if tenant["starved"] else ""))
    return [Line(Text()), *(Line(line) for line in told.wrap(console, canvas.width)[:_MOST_REASON])]


def _why(tenant: Shape) -> str:
    return safe(f"starved: {tenant['starved_reason']}" if tenant["starved"] else tenant["activity_reason"])


def _where(holdings: Mapping[str, int], places: Mapping[str, str]) -> str:
    """On which card it holds memory, or on how many."""
    return f"{len(holdings)} GPUs" if len(holdings) > 1 else "".join(places.get(uuid, "?") for uuid in holdings) or "-"


def sorted_tenants(found: Iterable[Shape], wish: Wish) -> list[Shape]:
    """Those who are wanted, in the order that is wanted; names decide where nothing else does."""
    shown = [each for each in found if wish.absent or each["activity"] != "absent" or each["holding"]]
    orders = {
        "holding": lambda t: (-t["holding"], t["id"]),
        "name": lambda t: t["id"],
        "activity": lambda t: (_ACTIVITIES.index(t["activity"]) if t["activity"] in _ACTIVITIES else 2, t["id"]),
        "need": lambda t: (-(t["shortfall"] or 0), -(t["need"] or 0), t["id"]),
        "idle": lambda t: (t["idle_since"] or 2**64, t["id"]),
    }
    return sorted(shown, key=orders[wish.sort], reverse=wish.reverse)


def _columns(width: int, longest: int, *, several: bool) -> tuple[Column, ...]:
    """several: there are cards to tell apart, for which the idle time makes room where there is little."""
    name = min(longest, max(_MOST_NAME if width >= WIDE else 14, width // 5))
    return (
        Column("mark", "", 1),
        Column("name", "TENANT", max(name, 6)),
        Column("activity", "ACTIVITY", 9),
        *((Column("gpu", "GPU", 8),) if several else ()),
        Column("holding", "HOLDING", 12 if width >= WIDE else 10, right=True),
        Column("need", "NEED", 10, right=True),
        *((Column("missing", "MISSING", 10, right=True),) if width >= WIDE else ()),
        *((Column("back", "GIVES BACK", 10, right=True),) if width >= _VERY_WIDE else ()),
        *((Column("idle", "IDLE", 6, right=True),) if width >= WIDE or not several else ()),
        *((Column("spark", "LAST 10 MIN", _SPARKS if width >= _VERY_WIDE else _FEW_SPARKS),) if width >= WIDE else ()),
        Column("why", "WHY", 0),
    )


def _cells(tenant: Shape, mark: Key, at: int) -> dict[str, tuple[str, str]]:
    starved = bool(tenant["starved"])
    activity = str(tenant["activity"])
    return {
        "mark": mark,
        "name": (safe(tenant["id"]), STRONG),
        "activity": (safe(activity), STYLES.get(activity, "")),
        "holding": (held(tenant), ""),
        "need": ("-" if tenant["need"] is None else size(tenant["need"]), BAD if starved else ""),
        "missing": (size(tenant["shortfall"]) if tenant["shortfall"] else "-", BAD if starved else ""),
        "back": (size(tenant["reclaimable"]) if tenant["reclaimable"] else "-", ""),
        "idle": (age(tenant["idle_since"], at), ""),
        "why": (_why(tenant), BAD if starved else ""),
    }


def age(since: int | None, at: int) -> str:
    """How long it is so, as coarse as a glance needs it: it changes once a minute at most."""
    if since is None:
        return "-"
    minutes = max(at - since, 0) // _MINUTE
    if minutes < 1:
        return "<1min"
    if minutes < 60:
        return f"{minutes}min"
    hours = minutes // 60
    return f"{hours}h" if hours < 48 else f"{hours // 24}d"


def what_it_gives(tenant: Shape) -> list[Text]:
    """Before a release: what it holds and does, and what may come back."""
    back = f"about {size(tenant['reclaimable'])} would come back" if tenant["reclaimable"] else "it cannot be asked now"
    return [
        text(f"{tenant['id']} is {tenant['activity']} ({tenant['activity_reason']}) and holds {held(tenant)}; {back}.")
    ]
