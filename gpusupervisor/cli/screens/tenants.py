"""Tenants as a table, and one with everything."""

from collections.abc import Iterable, Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gpusupervisor.cli.screens.common import BAD, QUIET, STRONG, moment, size, table, text, word
from gpusupervisor.cli.shapes import Shape


def held(tenant: Shape) -> str:
    """What it holds; a lower bound where the driver does not say all."""
    return f">= {size(tenant['holding'])}" if tenant["holdings_incomplete"] else size(tenant["holding"])


def all_tenants(tenants: Iterable[Shape]) -> Table:
    """One line a tenant, who holds most first."""
    rows = [
        (
            text(each["id"], STRONG),
            word(each["activity"]),
            held(each),
            "-" if each["need"] is None else size(each["need"]),
            size(each["reclaimable"]),
            Text.assemble(("starved: ", BAD), text(each["starved_reason"])) if each["starved"] else _why(each),
        )
        for each in sorted(tenants, key=lambda each: (-each["holding"], each["id"]))
    ]
    return table(("TENANT", "ACTIVITY", "HOLDS", "NEEDS", "GIVES BACK", "WHY"), rows, right=(2, 3, 4))


def _why(tenant: Shape) -> Text:
    return text(tenant["activity_reason"])


def details(tenant: Shape, gpus: Mapping[str, str]) -> list[RenderableType]:
    """Everything about one; `gpus`: names by UUID."""
    facts: list[tuple[str, Text]] = [
        ("activity", Text.assemble(word(tenant["activity"]), ", ", text(tenant["activity_reason"]))),
        ("since", Text(moment(tenant["activity_since"]))),
        *((("evidence" if not i else ""), text(line)) for i, line in enumerate(tenant["activity_evidence"])),
        ("holds", Text(held(tenant))),
        *(("", Text.assemble(size(value), " on ", text(gpus.get(u, u)))) for u, value in tenant["holdings"].items()),
        ("needs", text(f"{size(tenant['need'])} {tenant['need_source'] and '(' + tenant['need_source'] + ')'}")),
        ("starved", text(f"{'yes' if tenant['starved'] else 'no'}, {tenant['starved_reason']}")),
        ("gives back", Text(f"{size(tenant['reclaimable'])}, keeps {size(tenant['floor'])}")),
        ("priority", Text(f"{tenant['priority']}, {tenant['idle_priority']} while idle")),
        ("released by", text(tenant["release_method"] or "nothing: it cannot be asked")),
        ("protected", Text("yes: never asked" if tenant["protected"] else "no")),
        *((name, text(tenant[name])) for name in ("engine", "impact", "remedy") if tenant[name]),
    ]
    heading = Text.assemble((text(tenant["title"], STRONG)), (f"  {tenant['id']}", QUIET))
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
