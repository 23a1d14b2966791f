"""A replay for people: what was believed and done, as a timeline, and memory by tenant over time."""

from collections.abc import Iterator, Mapping, Sequence

from gpusupervisor.arbitration.events import PlanFinished, PlanMade, StepFinished
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.films.evaluate import Findings
from gpusupervisor.films.replay import Happening, Moment, Record
from gpusupervisor.films.values import Film
from gpusupervisor.foreign_text import harmless
from gpusupervisor.quantities import format_bytes, format_duration

WIDTH = 72
"""Columns of the plot."""
BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:-=+*%@"
LONGEST = 160


def timeline(film: Film, record: Record) -> Iterator[str]:
    """A line for each change of what is believed, and for everything that is planned, done and written."""
    if film.header.title:
        yield harmless(film.header.title, LONGEST)
    lines = [*_beliefs(record), *_happenings(record), *_written(record)]
    for at, _, text in sorted(lines, key=lambda line: line[:2]):
        yield f"{at / MICROSECONDS:9.2f}  {harmless(text, LONGEST)}"


def _beliefs(record: Record) -> Iterator[tuple[int, int, str]]:
    before: dict[str, str] = {}
    starving: dict[str, bool] = {}
    for moment in record.moments:
        for tenant, activity in moment.activities.items():
            if activity.state != before.get(tenant, "absent"):
                yield moment.at, 0, f"{tenant} is {activity.state}: {activity.reason}"
            before[tenant] = activity.state
        for tenant, assessment in moment.assessments.items():
            if assessment.starved != starving.get(tenant, False):
                yield (
                    moment.at,
                    1,
                    f"{tenant} {'is' if assessment.starved else 'is no longer'} starved: {assessment.reason}",
                )
            starving[tenant] = assessment.starved


def _happenings(record: Record) -> Iterator[tuple[int, int, str]]:
    for happening in record.happenings:
        match happening.event:
            case PlanMade(plan):
                yield happening.at, 2, f"{plan.id} is made ({plan.cause}): {plan.summary}"
            case StepFinished(plan, step):
                yield happening.at, 4, f"{plan.id}: {step.tenant} {step.outcome}: {step.detail}"
            case PlanFinished(result):
                yield happening.at, 5, f"{result.plan.id} has ended: {result.outcome}"
    for ask in record.asks:
        yield ask.at, 3, f"{ask.tenant} is asked for its memory ({ask.plan})"


def _written(record: Record) -> Iterator[tuple[int, int, str]]:
    """What of the journal is not told by the rest."""
    told = {"ReleasePlanned", "PlanStarted", "PlanBlocked", "ReleaseDone", "ReleaseFailed", "PlanSatisfied",
            "PlanFellShort", "TenantStarved", "TenantRelieved", "EngineFound", "DriverAnswers"}  # fmt: skip
    for entry in record.journal:
        if entry.kind and entry.kind not in told:
            yield entry.at, 6, f"journal: {entry.text}"
    for at, what, error in record.refusals:
        yield at, 6, f"{what} was refused: {error}"


def plot(record: Record, *, unicode: bool = True) -> Iterator[str]:
    """For each GPU a row per tenant: what it held over time, as a share of the card; requests below."""
    moments = record.moments
    if not moments:
        return
    columns = [_at(moments, index * record.lasts // (WIDTH - 1)) for index in range(WIDTH)]
    gpus = sorted({uuid for moment in moments for uuid in moment.situation.gpus})
    for uuid in gpus:
        known = next(moment.situation.gpus[uuid] for moment in moments if uuid in moment.situation.gpus)
        yield f"{harmless(known.name, 60)}, {format_bytes(known.total)}"
        tenants = sorted(
            {name for moment in moments for name, each in moment.situation.tenants.items() if each.holdings.get(uuid)}
        )
        for tenant in tenants:
            held = [_held(moment, tenant, uuid) for moment in columns]
            yield f"{tenant[:16]:>16} {_bars(held, known.total, unicode=unicode)} {format_bytes(max(held))}"
        free = [moment.situation.gpus[uuid].free if uuid in moment.situation.gpus else 0 for moment in columns]
        yield f"{'free':>16} {_bars(free, known.total, unicode=unicode)} {format_bytes(min(free))}"
    marks = [" "] * WIDTH
    for ask in record.asks:
        marks[min(WIDTH - 1, ask.at * (WIDTH - 1) // max(1, record.lasts))] = "^"
    if record.asks:
        yield f"{'asked':>16} {''.join(marks).rstrip()}"
    yield f"{'':16} 0{format_duration(record.lasts, MICROSECONDS):>{WIDTH - 1}}"


def _at(moments: Sequence[Moment], at: int) -> Moment:
    """The last look at or before an instant."""
    found = moments[0]
    for moment in moments:
        if moment.at > at:
            break
        found = moment
    return found


def _held(moment: Moment, tenant: str, uuid: str) -> int:
    found = moment.situation.tenants.get(tenant)
    return found.holdings.get(uuid, 0) if found else 0


def _bars(values: Sequence[int], total: int, *, unicode: bool) -> str:
    levels = BLOCKS if unicode else ASCII
    top = len(levels) - 1
    return "".join(levels[min(top, -(-value * top // total))] if value > 0 else levels[0] for value in values)


def verdict(found: Findings) -> Iterator[str]:
    """How the film's expectations were met."""
    for finding in found.findings:
        yield f"line {finding.expectation.line}: {finding.kind}: {finding.expectation.text}"
        yield f"    {harmless(finding.seen, 400)}"
    total = found.met + len(found.findings)
    if total:
        yield f"{found.met} of {total} expectations were met"


def shape(film: Film, record: Record, found: Findings) -> Mapping[str, object]:
    """The same for programs. Times are seconds, sizes bytes."""
    return {
        "title": film.header.title,
        "lasts": record.lasts / MICROSECONDS,
        "moments": [_moment(moment) for moment in record.moments],
        "events": [_event(happening) for happening in record.happenings],
        "asked": [
            {"t": ask.at / MICROSECONDS, "tenant": ask.tenant, "beneficiary": ask.beneficiary, "plan": ask.plan}
            for ask in record.asks
        ],
        "journal": [
            {"t": entry.at / MICROSECONDS, "message": entry.kind, "text": entry.text} for entry in record.journal
        ],
        "met": found.met,
        "findings": [
            {"kind": each.kind, "line": each.expectation.line, "expected": each.expectation.text, "seen": each.seen}
            for each in found.findings
        ],
    }


def _moment(moment: Moment) -> Mapping[str, object]:
    return {
        "t": moment.at / MICROSECONDS,
        "free": {uuid: gpu.free for uuid, gpu in moment.situation.gpus.items()},
        "tenants": [
            {
                "tenant": name,
                "activity": activity.state,
                "reason": activity.reason,
                "holdings": dict(moment.situation.tenants[name].holdings) if name in moment.situation.tenants else {},
                "starved": name in moment.assessments and moment.assessments[name].starved,
                "shortfall": moment.assessments[name].shortfall if name in moment.assessments else 0,
            }
            for name, activity in moment.activities.items()
            if activity.state != "absent"
        ],
    }


def _event(happening: Happening) -> Mapping[str, object]:
    at, event = happening.at / MICROSECONDS, happening.event
    match event:
        case StepFinished(plan, step):
            told: dict[str, object] = {"tenant": step.tenant, "outcome": step.outcome, "freed": step.freed}
        case PlanFinished(result):
            plan, told = result.plan, {"outcome": result.outcome, "freed": result.freed}
        case _:
            plan = event.plan
            told = {"cause": plan.cause, "beneficiary": plan.beneficiary, "summary": plan.summary}
            told["steps"] = [step.tenant for step in plan.steps]
    return {"t": at, "event": type(event).__name__, "plan": plan.id, **told}
