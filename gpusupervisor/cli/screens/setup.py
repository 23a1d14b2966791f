"""What `setup` found, and each proposal."""

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from gpusupervisor.cli.screens.common import (
    BAD,
    DOUBTFUL,
    GOOD,
    LIVELY,
    QUIET,
    STRONG,
    marked,
    size,
    table,
    text,
    word,
)
from gpusupervisor.cli.setup.applications import lasting
from gpusupervisor.cli.setup.findings import Findings, Process, Tenant, Unit
from gpusupervisor.cli.setup.front_writing import FrontItem
from gpusupervisor.cli.setup.item import Item
from gpusupervisor.cli.setup.proposals import Advice
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas

Row = tuple[Text, Text, Text, str, Text]
_ROOMY = 120
_STATES = {"active": GOOD, "failed": BAD, "stopped": QUIET}


def found(findings: Findings, advice: Advice, canvas: Canvas) -> list[RenderableType]:
    """Cards, who uses them or would, and what a person should know."""
    screen: list[RenderableType] = [*_driver(findings.driver)]
    screen += [_card(gpu) for gpu in findings.gpus]
    rows = _rows(findings)
    if rows:
        wide = canvas.width >= _ROOMY
        header = ("TENANT", "WHERE", "STATE", "HOLDS", "")
        screen += ["", table(header, rows, right=(3,), names=0) if wide else _narrow(rows)]
    elif findings.gpus:
        screen += ["", Text("No known engine was found, and no process holds GPU memory.", QUIET)]
    if advice.hints:
        screen += ["", marked([(Text("!", DOUBTFUL), text(hint)) for hint in advice.hints])]
    number, proxies = len(advice.proposals), len(advice.fronts)
    if number or proxies:
        said = " and ".join(filter(None, (_so_many(number, "file"), _so_many(proxies, "proxy", "proxies"))))
        said += " is proposed:" if number + proxies == 1 else " are proposed:"
        screen += ["", Text(said, STRONG)]
    elif findings.gpus:
        well = ": everything that was found is covered" if rows and not advice.hints else ""
        screen += ["", Text(f"Nothing to propose{well}.", GOOD)]
    return screen


def _so_many(number: int, one: str, several: str = "") -> str:
    return "" if not number else f"1 {one}" if number == 1 else f"{number} {several or f'{one}s'}"


def _driver(check: Shape) -> list[RenderableType]:
    """The driver where it is not well, in the words of its check."""
    if check["state"] == "ok":
        return []
    style = BAD if check["state"] == "failed" else DOUBTFUL
    lines = [(Text("!", style), text(check["summary"]))]
    lines += [(Text(), text(check[part], QUIET)) for part in ("impact", "remedy") if check[part]]
    return [marked(lines)]


def _card(gpu: Shape) -> Text:
    state, name = gpu["state"], text(gpu["name"], STRONG)
    if state != "ok" or gpu["memory_total"] is None:
        return Text.assemble(name, "  ", word(state))
    return Text.assemble(name, f"  {size(gpu['memory_used'])} of {size(gpu['memory_total'])} held")


def _rows(findings: Findings) -> list[Row]:
    """Units first, then who runs without one, then who nobody knows."""
    rows: list[Row] = []
    running = {unit.tenant for unit in findings.units if unit.runs}
    for unit in sorted(findings.units, key=lambda each: (not each.runs, each.tenant)):
        tenant = findings.tenants[unit.tenant]
        rows.append(
            (text(unit.tenant, STRONG), text(unit.place), _state(unit), _held(tenant, unit), _about(tenant, unit))
        )
    for tenant in findings.tenants.values():
        if tenant.holding and tenant.id not in running:
            where = _place(tenant.processes[0]) if tenant.processes else ""
            rows.append(
                (text(tenant.id, STRONG), text(where), Text("running", GOOD), size(tenant.holding), _answers(tenant))
            )
    for stranger in findings.strangers:
        place = _place(stranger)
        row = (
            text(stranger.name),
            text(place),
            Text("running", GOOD),
            size(stranger.used),
            Text("belongs to no tenant", DOUBTFUL),
        )
        rows.append(row)
    return rows


def _place(process: Process) -> str:
    """Its unit, where that says something, or its container, or its PID."""
    if unit := lasting(process.user_unit):
        return f"user unit {unit}"
    if unit := lasting(process.unit):
        return f"unit {unit}"
    return f"container {process.container[:12]}" if process.container else f"pid {process.pid}"


def _state(unit: Unit) -> Text:
    return text("running" if unit.runs else unit.state, GOOD if unit.runs else _STATES.get(unit.state, ""))


def _held(tenant: Tenant, unit: Unit) -> str:
    return size(tenant.holding) if unit.runs and tenant.holding else "-"


def _about(tenant: Tenant, unit: Unit) -> Text:
    return _answers(tenant) if unit.runs else Text("described", QUIET)


def _answers(tenant: Tenant) -> Text:
    if not tenant.endpoint:
        return Text("described", GOOD)
    if tenant.reachable:
        return Text.assemble(("answers", GOOD), " at ", text(tenant.endpoint))
    return Text.assemble(("no answer", DOUBTFUL), " at ", text(tenant.endpoint))


def _narrow(rows: list[Row]) -> RenderableType:
    """The same where there is little room: where it is and what is known of it in one sentence."""
    short = [(name, state, held, Text.assemble(where, ", ", about)) for name, where, state, held, about in rows]
    return table(("TENANT", "STATE", "HOLDS", "WHERE"), short, right=(2,), names=0)


def proposal(item: Item, number: int, of: int) -> list[RenderableType]:
    """One proposal: the file, or what changes in one that is there; the reasons are comments in it."""
    kind = Text("new", LIVELY) if item.before is None else Text("extended" if item.text else "is there", DOUBTFUL)
    head = Text.assemble((f"{number} of {of}  ", QUIET), text(item.file, STRONG), "  ", kind)
    if not item.text:
        lines = [text(reason) for reason in item.proposal.reasons]
    elif item.before is None:
        lines = [_line(line) for line in item.text.splitlines()]
    else:
        lines = [_changed(line) for line in item.diff]
    return ["", head, Padding(Text("\n").join(lines), (0, 0, 0, 4))]


def proxy(item: FrontItem, number: int, of: int) -> list[RenderableType]:
    """A proxy: why, and every file of it as it will be."""
    front = item.front
    at = Text.assemble((f"proxy {number} of {of}  ", QUIET), text(front.unit, STRONG), "  ", Text("changed", DOUBTFUL))
    screen: list[RenderableType] = ["", at, Padding(text(front.reason), (0, 0, 0, 4))]
    if front.runs_now != "idle":
        screen.append(Padding(Text.assemble("It is ", word(front.runs_now), " now."), (0, 0, 0, 4)))
    for path, content in item.files.items():
        lines = [_line(line) for line in content.splitlines()]
        screen += [Padding(text(path, STRONG), (1, 0, 0, 4)), Padding(Text("\n").join(lines), (0, 0, 0, 6))]
    return screen


def _line(line: str) -> Text:
    return text(line, QUIET if line.startswith("#") else "")


def _changed(line: str) -> Text:
    return text(line, GOOD if line.startswith("+") else BAD if line.startswith("-") else "")
