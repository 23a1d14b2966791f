"""What happens, as events that can be stored. Pure, but for remembering what was told last."""

from collections.abc import Iterator, Mapping

from gpusupervisor.arbitration.events import Event, PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.situation import PlanResult, ReleasePlan, StepResult
from gpusupervisor.jobs import Job
from gpusupervisor.state import State
from gpusupervisor.telemetry.records import EventKind, Load, TelemetryEvent, bounded


def _event(kind: EventKind, at: int, tenant: str, gpu: str, plan: str, **details: object) -> TelemetryEvent:
    return TelemetryEvent(kind, at, tenant, gpu, plan, {name: bounded(value) for name, value in details.items()})


def of_plan(event: Event, at: int) -> TelemetryEvent:
    """A plan, its start, the outcome of a step, or how it ended."""
    match event:
        case PlanMade(plan):
            return _plan_made(plan, at)
        case PlanStarted(plan):
            return _event("plan-started", at, plan.beneficiary, plan.gpu, plan.id, cause=plan.cause)
        case StepFinished(plan, step):
            return _event("step", at, step.tenant, plan.gpu, plan.id, **_step(step))
        case PlanFinished(result):
            return _plan_finished(result, at)


def _plan_made(plan: ReleasePlan, at: int) -> TelemetryEvent:
    return _event(
        "plan", at, plan.beneficiary, plan.gpu, plan.id,
        cause=plan.cause, summary=plan.summary, need=plan.need, shortfall=plan.shortfall,
        reclaimable=plan.reclaimable, sufficient=plan.sufficient, fits=plan.fits,
        steps=[{"tenant": step.tenant, "expected": step.expected, "reason": step.reason} for step in plan.steps],
        blockers=[{"holder": b.holder, "reason": b.reason, "held": b.held} for b in plan.blockers],
    )  # fmt: skip


def _step(step: StepResult) -> dict[str, object]:
    return {
        "outcome": step.outcome,
        "expected": step.expected,
        "freed": step.freed,
        "duration": step.duration,
        "late": step.late,
        "detail": step.detail,
    }


def _plan_finished(result: PlanResult, at: int) -> TelemetryEvent:
    plan = result.plan
    return _event(
        "outcome", at, plan.beneficiary, plan.gpu, plan.id,
        cause=plan.cause, outcome=result.outcome, freed=result.freed, available=result.available,
        duration=result.duration, detail=result.detail,
    )  # fmt: skip


def of_load(load: Load, at: int) -> TelemetryEvent:
    """A model that was loaded, with its bytes and microseconds."""
    return _event(
        "load", at, load.tenant, load.gpu, "",
        model=load.model, size=load.size, duration=load.duration, source=load.source,
    )  # fmt: skip


def of_job(job: Job, at: int) -> TelemetryEvent:
    """Long work that began, or ended."""
    return _event("job", at, "", "", "", id=job.id, job=job.kind, state=job.state, detail=job.detail)


def of_drift(gpu: str, item: str, state: str, details: Mapping[str, object], at: int) -> TelemetryEvent:
    """A setting that was found changed, was set again, is left to another program, or is as it was by itself."""
    told = {name: details[name] for name in ("cause", "detail") if details.get(name)}
    return _event("drift", at, "", gpu, "", id=item, state=state, **({"detail": ""} | told))


def plan_number(plan: str) -> int:
    """The number in a plan's id; 0 where there is none."""
    number = plan.rpartition("-")[2]
    return int(number) if number.isdecimal() and len(number) < 10 else 0


class Changes:
    """Tells what has changed of health and fan control since the last state.

    Drift is told by `of_drift`: one that is repaired at once is in no state.
    """

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], str] = {}

    def events(self, state: State, at: int) -> list[TelemetryEvent]:
        """What is to be told of a state. What is well from the beginning is not."""
        now = dict(_conditions(state))
        events = []
        for key, details in now.items():
            kind, gpu, name = key
            is_well = details["state"] == "ok"
            before = self._told.get(key, "ok" if is_well else "")
            if before != details["state"]:
                events.append(TelemetryEvent(_KINDS[kind], at, "", gpu, "", {"id": name, "before": before, **details}))
            self._told[key] = str(details["state"])
        for key in self._told.keys() - now.keys():
            kind, gpu, name = key
            if self._told.pop(key) != "ok":
                events.append(TelemetryEvent(_KINDS[kind], at, "", gpu, "", {"id": name, "state": "gone"}))
        return events


_KINDS: Mapping[str, EventKind] = {"health": "health", "fans": "fans"}


def _conditions(state: State) -> Iterator[tuple[tuple[str, str, str], dict[str, object]]]:
    """Everything that is well or not, by kind, GPU and name."""
    for check in state.checks:
        well = "ok" if check.state == "skipped" else check.state
        yield ("health", "", check.id), {"state": well, "summary": bounded(check.summary)}
    for uuid, gpu in state.controls.gpus.items():
        if gpu.fan_control:
            fans = "ok" if gpu.fan_control in ("idle", "controlling", "unsupported") else gpu.fan_control
            yield ("fans", uuid, "fan-control"), {"state": fans, "detail": bounded(gpu.fan_control_reason)}
