"""The one screen: cards, who holds what, who is busy and why, what is being done, health."""

from collections.abc import Iterable, Mapping

from rich.console import RenderableType
from rich.text import Text

from gpusupervisor.cli.screens.common import (
    BAD,
    DOUBTFUL,
    LIVELY,
    QUIET,
    STRONG,
    moment,
    size,
    table,
    text,
    trouble,
    word,
)
from gpusupervisor.cli.screens.memory import Part, bar, keys, parts
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.terminal import Canvas
from gpusupervisor.cli.text import safe

Row = tuple[Text, Text, str, Text, Text]


def screen(status: Shape, canvas: Canvas) -> list[RenderableType]:
    """All of it."""
    tenants = {each["id"]: each for each in status["tenants"]}
    shown: list[RenderableType] = [_head(status)]
    for gpu in status["gpus"]:
        shown += ["", *_card(gpu, tenants, canvas)]
    shown += _without_memory(tenants.values())
    news = [*_starved(tenants.values()), *_jobs(status["jobs"]), *_problems(status["health"])]
    return [*shown, "", *news] if news else shown


def _head(status: Shape) -> Text:
    driver = text(f"driver {status['driver_version'] or status['driver']}", "" if status["driver"] == "ok" else BAD)
    health = status["health"]
    state = word(health["state"]).style
    mode = "automatic" if status["automatic"] else "observe-only"
    parts = (
        text(f"gpusupervisor {status['version']}", STRONG),
        Text(mode),
        driver,
        text(health["summary"], str(state)),
    )
    return Text(", ").join(parts)


def _card(gpu: Shape, tenants: Mapping[str, Shape], canvas: Canvas) -> list[RenderableType]:
    name = text(gpu["name"], STRONG)
    if gpu["state"] != "ok" or gpu["memory_total"] is None:
        detail = f" - {gpu['state_detail']}" if gpu["state_detail"] else ""
        return [Text.assemble(name, ": ", word(gpu["state"]), text(detail))]
    of = parts(gpu)
    held = f"{size(gpu['memory_used'])} of {size(gpu['memory_total'])} held, {size(gpu['memory_free'])} free"
    rows = [_row(part, key, tenants) for part, key in zip(of, keys(of, canvas), strict=True)]
    card: list[RenderableType] = [Text.assemble(name, "  ", held), bar(of, canvas), table((), rows, right=(2,))]
    card += [_kept(reservation) for reservation in gpu["reservations"]]
    if gpu["plan"]:
        card.append(Text.assemble(("> ", LIVELY), text(f"plan {gpu['plan']} is being carried out")))
    if gpu["attribution_problem"]:
        card.append(Text.assemble(("! ", DOUBTFUL), text(gpu["attribution_problem"])))
    return card


def _row(part: Part, key: tuple[str, str], tenants: Mapping[str, Shape]) -> Row:
    mark, held = Text(*key), size(part.size)
    if part.kind == "tenant" and (tenant := tenants.get(part.name)):
        about = ">= " if tenant["holdings_incomplete"] else ""
        return mark, text(part.name, STRONG), about + held, word(tenant["activity"]), _why(tenant)
    if part.kind == "unmanaged":
        known = held if part.size else "?"
        return mark, text(part.name), known, Text("unmanaged", DOUBTFUL), Text(f"pid {part.pid}: never touched", QUIET)
    why = {"unattributed": "in use by nobody who is known", "reserved": "kept by driver and firmware"}.get(
        part.kind, ""
    )
    return mark, text(part.name), held, Text(), Text(why, QUIET)


def _why(tenant: Shape) -> Text:
    """Why it is in its state, what it needs, and what it could give back."""
    said = [safe(tenant["activity_reason"])]
    if tenant["need"] is not None:
        missing = f", {size(tenant['shortfall'])} missing" if tenant["shortfall"] else ""
        said.append(f"needs {size(tenant['need'])}{missing}")
    if tenant["reclaimable"]:
        said.append(f"can give back {size(tenant['reclaimable'])}")
    return Text("; ".join(each for each in said if each))


def _kept(reservation: Shape) -> Text:
    until = moment(reservation["expires_at"])
    return text(f"  {size(reservation['size'])} of the free kept for {reservation['tenant']} until {until}")


def _without_memory(tenants: Iterable[Shape]) -> list[RenderableType]:
    """Who is there and holds nothing; and how many are not there."""
    absent = sum(each["activity"] == "absent" and not each["holding"] for each in tenants)
    there = [each for each in tenants if each["activity"] != "absent" and not each["holding"]]
    rows = [(text(each["id"], STRONG), word(each["activity"]), _why(each)) for each in there]
    shown: list[RenderableType] = ["", Text("holding nothing", QUIET), table((), rows)] if rows else []
    if absent:
        shown += ["", Text(f"{absent} absent: gpusupervisorctl tenants", QUIET)]
    return shown


def _starved(tenants: Iterable[Shape]) -> list[Text]:
    return [
        Text.assemble(("! ", BAD), text(each["id"], STRONG), (" is starved: ", BAD), text(each["starved_reason"]))
        for each in tenants
        if each["starved"]
    ]


def _jobs(jobs: Iterable[Shape]) -> list[Text]:
    return [
        Text.assemble(("> ", LIVELY), text(f"job {job['id']}, {job['kind']}, {job['progress']} %: {job['detail']}"))
        for job in jobs
    ]


def _problems(health: Shape) -> list[Text]:
    found: list[Text] = []
    for check in health["checks"]:
        if check["state"] in ("degraded", "failed"):
            found += trouble(check["summary"], check["remedy"], check["state"] == "failed")
    return found
