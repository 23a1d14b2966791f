"""Tenants as a table, and one with everything."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import BAD, QUIET, STRONG, Grid, absent, moment, size, table, text, word
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas

_OPEN = ("pressed", "out-of-memory")
"""Sources of a need of which only a lower bound is known."""
_ROOMY = 100
"""Columns from which on figures have columns of their own."""


def held(tenant: Shape) -> str:
    """What it holds; a lower bound where the driver does not say all."""
    return at_least(tenant["holding"]) if tenant["holdings_incomplete"] else size(tenant["holding"])


def at_least(known: int | None) -> str:
    """A size of which the driver tells a part, or nothing at all."""
    return f">= {size(known)}" if known else "size unknown"


def needs(tenant: Shape) -> str:
    """What it needs in total: a figure, or a bound where only that is known."""
    if tenant["need"] is None:
        return "not known"
    is_open, is_exact = tenant["need_source"] in _OPEN, tenant["need"] == tenant["need_at_least"]
    if is_open and is_exact:
        return f"more than {size(tenant['need'])}"
    is_bound = is_open or (tenant["need_source"] == "learned" and not is_exact)
    return f"{'at most ' if is_bound else ''}{size(tenant['need'])}"


def all_tenants(tenants: Iterable[Shape], canvas: Canvas) -> list[RenderableType]:
    """One line a tenant, who holds most first; who is not there by name. Where there is little room, needs are told in
    the sentence.
    """
    if not (everybody := sorted(tenants, key=lambda each: (-each["holding"], each["id"]))):
        return [Text("No tenant is described.")]
    order = [each for each in everybody if each["holding"] or each["activity"] != "absent"]
    others = absent([each["id"] for each in everybody if each not in order])
    return [_table(order, canvas), *others] if order else others[1:]


def _table(order: Sequence[Shape], canvas: Canvas) -> Grid:
    first = [(text(each["id"], STRONG), word(each["activity"]), held(each)) for each in order]
    if canvas.width < _ROOMY:
        rows = [(*row, _starved(each) or why(each)) for row, each in zip(first, order, strict=True)]
        return table(("TENANT", "ACTIVITY", "HOLDS", "WHY"), rows, right=(2,))
    wide = [
        (
            *row,
            "-" if each["need"] is None else size(each["need"]),
            size(each["reclaimable"]) if each["reclaimable"] else "-",
            _starved(each) or _reason(each),
        )
        for row, each in zip(first, order, strict=True)
    ]
    return table(("TENANT", "ACTIVITY", "HOLDS", "NEEDS", "GIVES BACK", "WHY"), wide, right=(2, 3, 4))


def _starved(tenant: Shape) -> Text | None:
    return Text.assemble(("starved: ", BAD), text(tenant["starved_reason"])) if tenant["starved"] else None


def why(tenant: Shape) -> Text:
    """Why it is in its state, what it needs, and what it could give back."""
    said = [_reason(tenant).plain]
    if tenant["need"] is not None:
        missing = f", {size(tenant['shortfall'])} missing" if tenant["shortfall"] else ""
        said.append(f"needs {needs(tenant)}{missing}")
    if tenant["reclaimable"]:
        said.append(f"can give back {size(tenant['reclaimable'])}")
    return Text("; ".join(each for each in said if each))


def _reason(tenant: Shape) -> Text:
    """Why it is in its state; of one that is never asked anyway only that."""
    protected = tenant["protected"] and tenant["activity"] == "unknown"
    return text("protected: it is never asked" if protected else tenant["activity_reason"])


def details(tenant: Shape, gpus: Mapping[str, str]) -> list[RenderableType]:
    """Everything about one; `gpus`: names by UUID."""
    facts: list[tuple[str, Text]] = [
        ("activity", Text.assemble(word(tenant["activity"]), ", ", text(tenant["activity_reason"]))),
        ("since", Text(moment(tenant["activity_since"]))),
        *((("evidence" if not i else ""), text(line)) for i, line in enumerate(tenant["activity_evidence"])),
        ("holds", Text(held(tenant))),
        *(("", Text.assemble(size(value), " on ", text(gpus.get(u, u)))) for u, value in _apart(tenant["holdings"])),
        ("needs", text(f"{needs(tenant)} ({tenant['need_source']})" if tenant["need"] else "not known")),
        ("starved", text(f"{'yes' if tenant['starved'] else 'no'}, {tenant['starved_reason']}")),
        ("gives back", Text(size(tenant["reclaimable"]) + _kept(tenant["floor"]))),
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


def _kept(floor: int | None) -> str:
    return "" if floor is None else f", keeps {size(floor)}"


def _apart(holdings: Mapping[str, int]) -> list[tuple[str, int]]:
    """What it holds card by card, when it is on several."""
    return list(holdings.items()) if len(holdings) > 1 else []
