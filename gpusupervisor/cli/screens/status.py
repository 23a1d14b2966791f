"""The one screen: cards, who holds what, who is busy and why, what is being done, health."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import (
    BAD,
    DOUBTFUL,
    LIVELY,
    QUIET,
    STRONG,
    STYLES,
    marked,
    moment,
    size,
    table,
    text,
    word,
)
from gpusupervisor.cli.screens.memory import WIDEST, Holder, Key, Keys, bar, holders, kept_for_good, keys, legend
from gpusupervisor.cli.screens.tenants import at_least, why
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import UNBOUNDED, Canvas

Row = tuple[Text, Text, str, Text, Text]
Item = tuple[Text, Text]
"""A mark, and what it is about."""
_GAP = 4
"""Blanks between cards beside each other."""
_NOT_WELL = ("degraded", "failed")


def screen(status: Shape, canvas: Canvas) -> list[RenderableType]:
    """All of it."""
    tenants = {each["id"]: each for each in status["tenants"]}
    marks = keys([gpu for gpu in status["gpus"] if is_known(gpu)], canvas)
    shown: list[RenderableType] = [head(status)]
    wide = 2 * WIDEST <= canvas.width < UNBOUNDED and len(status["gpus"]) > 1
    part = canvas._replace(width=canvas.width // 2 - _GAP) if wide else canvas
    cards = [
        Group("", *(_card(gpu, tenants, marks, part) if is_known(gpu) else [unreadable(gpu)])) for gpu in status["gpus"]
    ]
    shown += _in_pairs(cards) if wide else cards
    shown += _without_memory(tenants.values())
    news = [*_starved(tenants.values()), *_jobs(status["jobs"]), *_problems(status["health"])]
    return [*shown, "", marked(news)] if news else shown


def _in_pairs(cards: Sequence[Group]) -> list[RenderableType]:
    """Two cards beside each other."""
    from rich.table import Table

    grid = Table.grid(padding=(0, _GAP, 0, 0), expand=True, pad_edge=False)
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    for place in range(0, len(cards), 2):
        grid.add_row(*cards[place : place + 2])
    return [grid]


def head(status: Shape) -> Text:
    """The service and its health in a word; the problems themselves come last."""
    health = status["health"]
    driver = text(f"driver {status['driver_version'] or status['driver']}", "" if status["driver"] == "ok" else BAD)
    number = sum(check["state"] in _NOT_WELL for check in health["checks"])
    told = health["summary"] if not number else "1 problem" if number == 1 else f"{number} problems"
    parts = (
        text(f"gpusupervisor {status['version']}", STRONG),
        Text("automatic" if status["automatic"] else "observe-only"),
        driver,
        text(told, STYLES.get(health["state"], "")),
    )
    return Text(", ").join(parts)


def is_known(gpu: Shape) -> bool:
    """Whether its memory can be told."""
    return bool(gpu["state"] == "ok" and gpu["memory_total"] is not None)


def unreadable(gpu: Shape, place: Text | None = None) -> Text:
    """A card that cannot be asked; `place`: what comes behind its name."""
    detail = f", {gpu['state_detail']}" if gpu["state_detail"] else ""
    return Text.assemble(text(gpu["name"], STRONG), place or "", "  ", word(gpu["state"]), text(detail))


def _card(gpu: Shape, tenants: Mapping[str, Shape], marks: Keys, canvas: Canvas) -> list[RenderableType]:
    """One card."""
    held = f"{size(gpu['memory_used'])} of {size(gpu['memory_total'])} held, {size(gpu['memory_free'])} free"
    card: list[RenderableType] = [Text.assemble(text(gpu["name"], STRONG), "  ", held), bar(gpu, marks, canvas)]
    rows = [_row(holder, marks[holder.name, holder.pid], tenants) for holder in holders(gpu)]
    if rows:
        card.append(table((), rows, right=(2,), names=1))
    card.append(legend(gpu, canvas))
    kept = kept_for_good(gpu)
    notes: list[Item] = [(Text(), text(kept, QUIET))] if kept else []
    notes += [(Text(), _kept(reservation)) for reservation in gpu["reservations"]]
    if gpu["plan"]:
        notes.append((Text(">", LIVELY), text(f"{gpu['plan']} is being carried out")))
    if gpu["attribution_problem"]:
        notes.append((Text("!", DOUBTFUL), text(gpu["attribution_problem"])))
    return [*card, marked(notes)] if notes else card


def _row(holder: Holder, key: Key, tenants: Mapping[str, Shape]) -> Row:
    mark, held = Text(*key), size(holder.size)
    if holder.pid:
        return (
            mark,
            text(holder.name),
            held,
            Text("unmanaged", DOUBTFUL),
            Text(f"pid {holder.pid}; never touched", QUIET),
        )
    tenant = tenants.get(holder.name)
    if tenant is None:
        return mark, text(holder.name, STRONG), held, Text(), Text()
    if tenant["holdings_incomplete"]:
        held = at_least(holder.size)
    return mark, text(holder.name, STRONG), held, word(tenant["activity"]), why(tenant)


def _kept(reservation: Shape) -> Text:
    until = moment(reservation["expires_at"])
    return text(f"{size(reservation['size'])} of the free kept for {reservation['tenant']} until {until}")


def _without_memory(tenants: Iterable[Shape]) -> list[RenderableType]:
    """Who is there and holds nothing; and how many are not there."""
    tenants = list(tenants)
    absent = sum(each["activity"] == "absent" and not each["holding"] for each in tenants)
    there = [each for each in tenants if each["activity"] != "absent" and not each["holding"]]
    shown: list[RenderableType] = []
    for title, are_hidden in (("size unknown", True), ("holding nothing", False)):
        found = [each for each in there if bool(each["holdings_incomplete"]) is are_hidden]
        rows = [(text(each["id"], STRONG), word(each["activity"]), why(each)) for each in found]
        shown += ["", Text(title, QUIET), table((), rows)] if rows else []
    if absent:
        number = "1 tenant is" if absent == 1 else f"{absent} tenants are"
        shown += ["", Text(f"{number} absent (gpusupervisorctl tenants lists all)", QUIET)]
    return shown


def _starved(tenants: Iterable[Shape]) -> list[Item]:
    return [
        (Text("!", BAD), Text.assemble(text(each["id"], STRONG), (" is starved: ", BAD), text(each["starved_reason"])))
        for each in tenants
        if each["starved"]
    ]


def _jobs(jobs: Iterable[Shape]) -> list[Item]:
    return [
        (Text(">", LIVELY), text(f"job {job['id']}, {job['kind']}, {job['progress']} %: {job['detail']}"))
        for job in jobs
    ]


def _problems(health: Shape) -> list[Item]:
    found: list[Item] = []
    for check in health["checks"]:
        if check["state"] in _NOT_WELL:
            found.append((Text("!", BAD if check["state"] == "failed" else DOUBTFUL), text(check["summary"])))
            found += [(Text(), text(check["remedy"], QUIET))] if check["remedy"] else []
    return found
