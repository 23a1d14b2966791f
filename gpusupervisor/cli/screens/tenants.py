"""Tenants as a table, and one with everything."""

from collections.abc import Iterable, Mapping

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import BAD, QUIET, STRONG, Grid, moment, size, table, text, word
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas
from gpusupervisor.cli.text import safe

_ROOMY = 100
"""Columns from which on figures have columns of their own."""


def held(tenant: Shape) -> str:
    """What it holds; a lower bound where the driver does not say all."""
    return f">= {size(tenant['holding'])}" if tenant["holdings_incomplete"] else size(tenant["holding"])


def all_tenants(tenants: Iterable[Shape], canvas: Canvas) -> Grid:
    """One line a tenant, who holds most first. Where there is little room, needs are told in the sentence."""
    order = sorted(tenants, key=lambda each: (-each["holding"], each["id"]))
    first = [(text(each["id"], STRONG), word(each["activity"]), held(each)) for each in order]
    if canvas.width < _ROOMY:
        rows = [(*row, _starved(each) or why(each)) for row, each in zip(first, order, strict=True)]
        return table(("TENANT", "ACTIVITY", "HOLDS", "WHY"), rows, right=(2,))
    wide = [
        (
            *row,
            "-" if each["need"] is None else size(each["need"]),
            size(each["reclaimable"]),
            _starved(each) or text(each["activity_reason"]),
        )
        for row, each in zip(first, order, strict=True)
    ]
    return table(("TENANT", "ACTIVITY", "HOLDS", "NEEDS", "GIVES BACK", "WHY"), wide, right=(2, 3, 4))


def _starved(tenant: Shape) -> Text | None:
    return Text.assemble(("starved: ", BAD), text(tenant["starved_reason"])) if tenant["starved"] else None


def why(tenant: Shape) -> Text:
    """Why it is in its state, what it needs, and what it could give back."""
    said = [safe(tenant["activity_reason"])]
    if tenant["need"] is not None:
        missing = f", {size(tenant['shortfall'])} missing" if tenant["shortfall"] else ""
        said.append(f"needs {size(tenant['need'])}{missing}")
    if tenant["reclaimable"]:
        said.append(f"can give back {size(tenant['reclaimable'])}")
    return Text("; ".join(each for each in said if each))


def details(tenant: Shape, gpus: Mapping[str, str]) -> list[RenderableType]:
    """Everything about one; `gpus`: names by UUID."""
    facts: list[tuple[str, Text]] = [
        ("activity", Text.assemble(word(tenant["activity"]), ", ", text(tenant["activity_reason"]))),
        ("since", Text(moment(tenant["activity_since"]))),
        *((("evidence" if not i else ""), text(line)) for i, line in enumerate(tenant["activity_evidence"])),
        ("holds", Text(held(tenant))),
        *(("", Text.assemble(size(value), " on ", text(gpus.get(u, u)))) for u, value in _apart(tenant["holdings"])),
        ("needs", text(f"{size(tenant['need'])} ({tenant['need_source']})" if tenant["need"] else "not known")),
        ("starved", text(f"{'yes' if tenant['starved'] else 'no'}, {tenant['starved_reason']}")),
        ("gives back", Text(f"{size(tenant['reclaimable'])}, keeps {size(tenant['floor'])}")),
        ("priority", Text(f"{tenant['priority']}, {tenant['idle_priority']} while idle")),
        ("released by", text(tenant["release_method"] or "nothing: it cannot be asked")),
        ("protected", Text("yes: never asked" if tenant["protected"] else "no")),
        *((name, text(tenant[name])) for name in ("engine", "impact", "remedy") if tenant[name]),
    ]
    heading = Text.assemble((text(tenant["title"], STRONG)), text(f"  {tenant['id']}", QUIET))
    screen: list[RenderableType] = [heading, table((), [(Text(name, QUIET), value) for name, value in facts])]
    if tenant["processes"]:
        rows = [
            (
                str(p["pid"]),
                text(p["name"]),
                size(p["used"]),
                text(p["recognised_by"] + (", orphan" if p["orphan"] else "")),
            )
            for p in tenant["processes"]
        ]
        screen += ["", table(("PID", "NAME", "HOLDS", "RECOGNISED BY"), rows, right=(0, 2))]
    return screen


def _apart(holdings: Mapping[str, int]) -> list[tuple[str, int]]:
    """What it holds card by card, when it is on several."""
    return list(holdings.items()) if len(holdings) > 1 else []
