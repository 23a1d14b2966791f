"""What the commands print, from the plain values of the D-Bus face. Pure.

Everything that other programs named is printed without control characters.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpusupervisor.quantities import format_bytes, format_duration

Properties = Mapping[str, Any]
BAR = 40
RANGE_UNITS = {"power-limit": ("W", 1000), "fans": ("%", 1)}
"""Of what is not a clock: the unit shown, and how many of the unit on the bus make one."""
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


def fans(gpus: Iterable[tuple[str, Properties]]) -> str:
    """The fans of each GPU."""
    parts = []
    for name, shown in gpus:
        lines = [f"{safe(name)}: {safe(shown['Control'] or shown['Support'])}"]
        if reason := shown["ControlReason"] or shown["SupportReason"]:
            lines[0] += f" - {safe(reason)}"
        if shown["Fans"]:
            rows = [(f["fan"], _wanted(f), _percent(f), f.get("rpm", "?"), f["verdict"] or "?") for f in shown["Fans"]]
            lines.append(table(rows, ("FAN", "WANTED", "SPEED", "RPM", "")))
        parts.append("\n".join(lines))
    return "\n\n".join(parts) or "no GPU is known"


def profiles(gpus: Iterable[tuple[str, Properties]]) -> str:
    """The profile of each GPU."""
    return "\n\n".join(_profile(name, shown) for name, shown in gpus) or "no GPU is known"


def _wanted(fan: Properties) -> str:
    if fan["mode"] == "fixed":
        return f"{fan['percent']} %"
    if fan["mode"] == "curve":
        return ", ".join(f"{degrees} °C {percent} %" for degrees, percent in fan["points"])
    return str(fan["mode"])


def _percent(fan: Properties) -> str:
    return f"{fan['speed']} %" if "speed" in fan else "?"


def _profile(name: str, shown: Properties) -> str:
    state = f"{shown['Phase']}, {shown['DriftState'] or 'not checked yet'}" if shown["Profile"] else "no profile"
    lines = [f"{safe(name)}: {safe(shown['SupportReason']) if shown['Support'] != 'supported' else state}"]
    lines += [f"! {safe(shown[key])}" for key in ("Distrust", "Problem") if shown[key]]
    if shown["Trial"]:
        lines.append(f"on trial: {safe(shown['Trial'])}")
    verdicts = {verdict["item"]: verdict for verdict in shown["Drift"]}
    results = {result["item"]: result for result in shown["Results"]}
    rows = []
    for ability in shown["Capabilities"]:
        item = ability["item"]
        result, verdict = results.get(item), verdicts.get(item)
        wanted = result["accepted"] or result["asked"] if result else "-"
        why = (verdict and verdict["detail"]) or (result and result["detail"]) or ability["reason"]
        rows.append((item, wanted, verdict["verdict"] if verdict else "", ability["support"], _range(ability), why))
    return "\n".join([*lines, table(rows, ("ITEM", "SET", "", "CAN BE", "RANGE", "")) if rows else ""]).rstrip()


def _range(ability: Properties) -> str:
    if "minimum" not in ability or "maximum" not in ability:
        return ""
    unit, scale = RANGE_UNITS.get(ability["item"], ("MHz", 1))
    return f"{ability['minimum'] // scale} to {ability['maximum'] // scale} {unit}"


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
    """One line for a signal of ours."""
    match member, body:
        case "ReleasePlanned", [plan_id, made]:
            return f"{safe(plan_id)} planned: {safe(made['summary'])}"
        case "ReleaseStarted", [plan_id, _]:
            return f"{safe(plan_id)} started"
        case "ReleaseStep", [plan_id, tenant, outcome, _, details]:
            return f"{safe(plan_id)} {safe(tenant)} {outcome}: {safe(details['detail'])}"
        case "ReleaseFinished", [plan_id, outcome, freed, _]:
            return f"{safe(plan_id)} finished, {outcome}: {size(freed)} came back"
        case "DriftDetected", [item, details]:
            return f"{safe(item)} has drifted: {safe(details['detail'])}"
        case "DriftRepaired", [item, details]:
            return f"{safe(item)} was set again: {safe(details['accepted'])}"
        case "DriftContested", [item, details]:
            return f"{safe(item)} is not set any more: {safe(details['detail'])}"
        case "TrialEnded", [end, reason, _]:
            return f"the trial of a profile has ended, {safe(end)}: {safe(reason)}"
        case "Alert", [_, text]:
            return safe(text)
    return f"{member} {safe(body)}"


def changes(path: str, interface: str, changed: Properties) -> str:
    """One line for changed properties."""
    values = ", ".join(f"{name}={safe(value)}" for name, value in changed.items() if not isinstance(value, list | dict))
    return f"{path.rsplit('/', 1)[-1]} {interface.rsplit('.', 1)[-1]}: {values}" if values else ""
