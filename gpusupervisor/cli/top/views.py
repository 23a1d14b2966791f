"""The views: what each shows, which lists it needs, and whose past. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from rich.console import Console, RenderableType
from rich.text import Text

from gpusupervisor.cli import shapes
from gpusupervisor.cli.screens import controls, health, jobs, warm
from gpusupervisor.cli.screens.common import BAD, GOOD, LIVELY, QUIET, STRONG, moment, size, table, text, word
from gpusupervisor.cli.screens.tenants import details
from gpusupervisor.cli.terminal import Canvas
from gpusupervisor.cli.text import safe
from gpusupervisor.cli.top import overview
from gpusupervisor.cli.top.board import ENGINE, FANS, GPU, HEALTH, JOB, PROFILE, TENANT, Board, Figure, Of
from gpusupervisor.cli.top.feed import WARM_PLAN
from gpusupervisor.cli.top.overview import UNMANAGED, Wish
from gpusupervisor.cli.top.page import Content, Line, lines
from gpusupervisor.cli.top.trace import sparkline


@dataclass(frozen=True, slots=True)
class Look:
    """Everything a view draws from, beside the board."""

    canvas: Canvas
    console: Console
    at: int
    """Microseconds of realtime."""
    tenant: str = ""
    """The id of the one that is chosen."""
    wish: Wish = field(default_factory=Wish)


@dataclass(frozen=True, slots=True)
class View:
    """One view."""

    name: str
    title: str
    draw: Callable[[Board, Look], Content]
    needs: Callable[[Board, Look], Iterable[Of]]
    """Whose lists are shown that no signal carries."""
    traces: Callable[[Board, Look], Iterable[Figure]] = lambda _board, _look: ()


def _overview(board: Board, look: Look) -> Content:
    return overview.tenants(board, look.canvas, look.at, look.wish)


def _overview_traces(board: Board, look: Look) -> Iterable[Figure]:
    yield from ((gpu["uuid"], "") for gpu in board.gpus)
    if look.canvas.width >= overview.WIDE:
        holding = [each for each in overview.sorted_tenants(board.tenants, look.wish) if each["holding"]]
        yield from (("", each["id"]) for each in holding)


def _tenant(board: Board, look: Look) -> Content:
    """Everything about the one that is chosen."""
    shape = next((each for each in board.tenants if each["id"] == look.tenant), None)
    if shape is None:
        told = "this process is no tenant's" if look.tenant.startswith(UNMANAGED) else "choose a tenant in the overview"
        return Content([Line(Text(told, QUIET))])
    names = {gpu["uuid"]: gpu["name"] for gpu in board.gpus}
    trace = board.trace(("", look.tenant))
    width = min(look.canvas.width - 34, 60)
    most = trace.most()
    spark = sparkline(trace.values(look.at, max(width, 1)), most, unicode=look.canvas.unicode)
    past = Text.assemble(("last 10 minutes  ", QUIET), (spark, LIVELY), (f"  most {size(most)}", QUIET))
    return Content([*_drawn(look, details(shape, names)), Line(Text()), Line(past)])


def _tenant_needs(board: Board, look: Look) -> Iterable[Of]:
    path = board.path_of_tenant(look.tenant)
    return [(path, TENANT)] if path else []


def _events(board: Board, look: Look) -> Content:
    """The newest first."""
    if not board.events:
        return Content([Line(Text("nothing has happened yet", QUIET))])
    width = look.canvas.width
    found = []
    for happening in reversed(board.events):
        line = Text.assemble((moment(happening.at), QUIET), "  ", happening.told)
        found += [Line(each) for each in line.wrap(look.console, width)] if line.cell_len > width else [Line(line)]
    return Content(found)


def _engines(board: Board, look: Look) -> Content:
    """Engines, and what is known of their models."""
    absent = {each["id"] for each in board.tenants if each["activity"] == "absent"}
    engines = [each for each in board.engines if each["reachable"] or each["id"] not in absent]
    if not engines:
        return Content([Line(Text("no engine is running", QUIET))])
    rows = [
        (text(e["id"], STRONG), text(e["engine"]), Text("yes", GOOD) if e["reachable"] else Text("no", BAD),
         text(e["version"] or "?"), text(e["detail"] or e["endpoint"]))
        for e in engines
    ]  # fmt: skip
    shown: list[RenderableType] = [table(("ENGINE", "KIND", "ANSWERS", "VERSION", "WHERE"), rows, names=0)]
    if models := [(e["id"], m) for e in engines for m in e.get("models", ())]:
        loaded = [
            (text(engine), text(m["name"], STRONG), word(m["state"]), size(m["held"]), size(m["needs"]),
             text(f"{m['fit']}: {m['fit_detail']}" if m["fit_detail"] else m["fit"]))
            for engine, m in models
        ]  # fmt: skip
        shown += ["", table(("ENGINE", "MODEL", "STATE", "HOLDS", "NEEDS", "FITS"), loaded, right=(3, 4), names=1)]
    if others := len(board.engines) - len(engines):
        shown += ["", Text("1 engine is absent" if others == 1 else f"{others} engines are absent", QUIET)]
    if board.warm_plan:
        shown += ["", Text("model files in RAM", QUIET), warm.plan_screen(board.warm_plan)]
    return Content(_drawn(look, shown))


def _hardware(board: Board, look: Look) -> Content:
    """Fans, power and clocks."""
    profiles = ["", *controls.profiles(board.profiles)] if board.profiles else []
    return Content(_drawn(look, [*controls.fans(board.fans), *profiles]))


def _health(board: Board, look: Look) -> Content:
    return Content(_drawn(look, health.screen(board.health)))


def _jobs(board: Board, look: Look) -> Content:
    """One line a job, which can be chosen."""
    found = _jobs_of(board)
    if not found:
        return Content([Line(Text("no job runs, and none has ended lately", QUIET))])
    drawn = _drawn(replace(look, canvas=look.canvas._replace(width=10_000)), [jobs.all_jobs(found)])
    head, *rest = [each.text for each in drawn]
    width = look.canvas.width
    for line in (head, *rest):
        line.rstrip()
        line.truncate(width, overflow="ellipsis")
    return Content([Line(line, str(job["id"])) for line, job in zip(rest, found, strict=True)], (head,))


def _of_all(*interfaces: str) -> Callable[[Board, Look], Iterable[Of]]:
    def needs(board: Board, _: Look) -> Iterable[Of]:
        return [(path, interface) for interface in interfaces for path in board.paths(interface)]

    return needs


def _drawn(look: Look, renderables: list[RenderableType]) -> list[Line]:
    return lines(renderables, look.console, look.canvas.width)


def _engine_needs(board: Board, look: Look) -> Iterable[Of]:
    return [*_of_all(ENGINE)(board, look), WARM_PLAN]


VIEWS = (
    View("overview", "Overview", _overview, _of_all(GPU), _overview_traces),
    View("tenant", "Tenant", _tenant, _tenant_needs, lambda _, look: [("", look.tenant)] if look.tenant else []),
    View("events", "Events", _events, lambda _board, _look: ()),
    View("engines", "Engines", _engines, _engine_needs),
    View("hardware", "Fans & power", _hardware, _of_all(FANS, PROFILE)),
    View("health", "Health", _health, _of_all(HEALTH)),
    View("jobs", "Jobs", _jobs, _of_all(JOB)),
)


def _jobs_of(board: Board) -> list[shapes.Shape]:
    """Every job, the newest first, with its card by name."""
    names = {gpu["uuid"]: gpu["name"] for gpu in board.gpus}
    return [{**job, "target": names.get(job["target"], job["target"])} for job in board.jobs]


def shape_of_job(board: Board, number: str) -> shapes.Shape | None:
    """The job with this number."""
    return next((job for job in _jobs_of(board) if str(job["id"]) == number), None)


def whole_job(board: Board, look: Look, number: str) -> list[Line]:
    """What the job that is chosen does, for which its line seldom has room."""
    job = shape_of_job(board, number)
    if job is None:
        return []
    told = Text.assemble((f"job {job['id']}", STRONG), f", {safe(job['kind'])}, ", jobs.what(job))
    return [Line(Text()), *(Line(line) for line in told.wrap(look.console, look.canvas.width))]
