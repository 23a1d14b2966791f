"""What the commands print, from the plain values of the D-Bus face. Pure.

Everything that other programs named is printed without control characters.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpusupervisor.quantities import format_bytes, format_duration

Properties = Mapping[str, Any]
BAR = 40
COLUMNS = ("TENANT", "OUTCOME", "FREED", "TIME", "")
UNKNOWN = 2**64 - 1


def safe(text: object) -> str:
    """Text on one line without anything that steers a terminal."""
    return "".join(char if char.isprintable() else " " for char in str(text))


def safe_lines(text: object) -> str:
    """The same for text of several lines."""
    return "\n".join(safe(line) for line in str(text).splitlines())


def table(rows: Sequence[Sequence[object]], header: Sequence[str]) -> str:
    """Columns, as wide as they need to be; the last one is not padded."""
    cells = [[*header], *([safe(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


def size(value: object) -> str:
    """Bytes for a person; "?" when nobody knows."""
    number = int(value) if isinstance(value, int) else UNKNOWN
    return "?" if number == UNKNOWN else format_bytes(number)


def status(manager: Properties, gpus: Iterable[Properties], tenants: Iterable[Properties], health: Properties) -> str:
    """One screen: cards, who holds what, who is busy and why, health."""
    tenants = list(tenants)
    lines = [
        f"gpusupervisor {manager['Version']}, {'automatic' if manager['Automatic'] else 'observe-only'}, "
        f"driver {manager['DriverVersion'] or manager['Driver']}, {safe(health['Summary'])}"
    ]
    for gpu in gpus:
        lines += ["", *_gpu(gpu)]
    shown = [t for t in tenants if t["Activity"] != "absent" or t["Holding"]]
    if shown:
        lines += ["", tenant_table(shown)]
    starved = [f"! {safe(t['Id'])} is starved: {safe(t['StarvedReason'])}" for t in tenants if t["Starved"]]
    trouble = [
        f"! {safe(check['summary'])}" + (f"\n  {safe(check['remedy'])}" if check["remedy"] else "")
        for check in health["Checks"]
        if check["state"] in ("degraded", "failed")
    ]
    if starved or trouble:
        lines += ["", *starved, *trouble]
    return "\n".join(lines)


def _gpu(gpu: Properties) -> list[str]:
    if gpu["State"] != "ok" or gpu["MemoryTotal"] == UNKNOWN:
        return [f"{safe(gpu['Name'])}: {gpu['State']} {safe(gpu['StateDetail'])}".rstrip()]
    total, used = gpu["MemoryTotal"], gpu["MemoryUsed"]
    parts = [(safe(name), held) for name, held in gpu["TenantHoldings"].items()]
    parts += [(f"{safe(p['name'])} (pid {p['pid']}, unmanaged)", p["used"]) for p in gpu["Unmanaged"]]
    if gpu["Unattributed"] not in (0, UNKNOWN):
        parts.append(("unattributed", gpu["Unattributed"]))
    lines = [
        f"{safe(gpu['Name'])}  [{bar(used, total)}]  {size(used)} of {size(total)} held, {size(gpu['MemoryFree'])} free"
    ]
    lines += [f"  {size(held):>10}  {name}" for name, held in sorted(parts, key=lambda p: -p[1]) if held]
    if gpu["AttributionProblem"]:
        lines.append(f"  ! {safe(gpu['AttributionProblem'])}")
    if gpu["Plan"]:
        lines.append(f"  plan {safe(gpu['Plan'])} is being carried out")
    return lines


def bar(used: int, total: int) -> str:
    """How full it is."""
    full = min(BAR, round(BAR * used / total)) if total else 0
    return "#" * full + "." * (BAR - full)


def tenant_table(tenants: Iterable[Properties]) -> str:
    """One line a tenant."""
    rows = [
        (
            t["Id"],
            t["Activity"],
            size(t["Holding"]) if not t["HoldingsIncomplete"] else f">= {size(t['Holding'])}",
            size(t["Need"]) if t["Need"] != UNKNOWN else "-",
            size(t["Reclaimable"]),
            "starved" if t["Starved"] else "",
            t["ActivityReason"],
        )
        for t in sorted(tenants, key=lambda t: (-t["Holding"], t["Id"]))
    ]
    return table(rows, ("TENANT", "ACTIVITY", "HOLDS", "NEEDS", "RECLAIMABLE", "", "WHY"))


def plan(made: Properties) -> str:
    """A release plan: what would be done, or who is in the way."""
    lines = [safe(made["summary"])]
    if made["steps"]:
        rows = [(step["tenant"], size(step["expected"]), step["reason"]) for step in made["steps"]]
        lines += ["", table(rows, ("ASK", "FOR", "BECAUSE"))]
    if made["blockers"]:
        blocking = [(b["holder"], size(b["held"]), b["reason"], b["detail"]) for b in made["blockers"]]
        lines += ["", table(blocking, ("IN THE WAY", "HOLDS", "REASON", ""))]
    return "\n".join(lines)


def result(ended: Properties) -> str:
    """How a plan ended, step by step, as it was measured."""
    rows = [
        (s["tenant"], s["outcome"], size(s["freed"]), format_duration(s["duration"]), s["detail"])
        for s in ended["steps"]
    ]
    if not rows:
        return f"{ended['outcome']}: {safe(ended['detail'])}"
    return f"{ended['outcome']}: {size(ended['freed'])} came back\n\n{table(rows, COLUMNS)}"


def event(member: str, body: Sequence[Any]) -> str:
    """One line for a signal of the manager."""
    match member, body:
        case "ReleasePlanned", [plan_id, made]:
            return f"{safe(plan_id)} planned: {safe(made['summary'])}"
        case "ReleaseStarted", [plan_id, _]:
            return f"{safe(plan_id)} started"
        case "ReleaseStep", [plan_id, tenant, outcome, _, details]:
            return f"{safe(plan_id)} {safe(tenant)} {outcome}: {safe(details['detail'])}"
        case "ReleaseFinished", [plan_id, outcome, freed, _]:
            return f"{safe(plan_id)} finished, {outcome}: {size(freed)} came back"
    return f"{member} {safe(body)}"


def changes(path: str, interface: str, changed: Properties) -> str:
    """One line for changed properties."""
    values = ", ".join(f"{name}={safe(value)}" for name, value in changed.items() if not isinstance(value, list | dict))
    return f"{path.rsplit('/', 1)[-1]} {interface.rsplit('.', 1)[-1]}: {values}" if values else ""
