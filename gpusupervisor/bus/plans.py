"""Release plans and their results as D-Bus values, and the signals that tell of them. Pure."""

from gpusupervisor.arbitration.events import Event, PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.situation import Blocker, PlanResult, PlanStep, ReleasePlan, StepResult
from gpusupervisor.bus.views import Details, Realtime
from gpusupervisor.bus.wire import details, size, text

Signal = tuple[str, list[object]]
"""Member of the manager's interface, and the body."""


def plan_details(plan: ReleasePlan, realtime: Realtime) -> Details:
    """A plan as `a{sv}`."""
    return details(
        id=("s", plan.id),
        cause=("s", plan.cause),
        gpu=("s", plan.gpu),
        beneficiary=("s", plan.beneficiary),
        need=("t", plan.need),
        shortfall=("t", plan.shortfall),
        steps=("aa{sv}", [_step(step) for step in plan.steps]),
        blockers=("aa{sv}", [_blocker(blocker, realtime) for blocker in plan.blockers]),
        gpus=("as", plan.cards),
        open=("b", plan.is_open),
        sufficient=("b", plan.sufficient),
        fits=("b", plan.fits),
        reclaimable=("t", plan.reclaimable),
        summary=("s", plan.summary),
        made_at=("t", realtime(plan.made_at)),
    )


def _step(step: PlanStep) -> Details:
    return details(
        tenant=("s", step.tenant),
        expected=("t", step.expected),
        reason=("s", step.reason),
        gpus=("as", step.gpus),
        frees=("a{st}", step.frees),
    )


def _blocker(blocker: Blocker, realtime: Realtime) -> Details:
    return details(
        holder=("s", blocker.holder),
        reason=("s", blocker.reason),
        held=("t", blocker.held),
        detail=("s", blocker.detail),
        until=("t", realtime(blocker.until) if blocker.until else 0),
    )


def result_details(result: PlanResult) -> Details:
    """How a plan ended, as `a{sv}`."""
    return details(
        plan_id=("s", result.plan.id),
        cause=("s", result.plan.cause),
        gpu=("s", result.plan.gpu),
        beneficiary=("s", result.plan.beneficiary),
        outcome=("s", result.outcome),
        freed=("t", result.freed),
        available=("t", result.available),
        duration=("t", result.duration),
        detail=("s", result.detail),
        steps=("aa{sv}", [_step_result(step) for step in result.steps]),
    )


def _step_result(step: StepResult) -> Details:
    return details(
        tenant=("s", step.tenant),
        outcome=("s", step.outcome),
        expected=("t", step.expected),
        freed=("t", step.freed),
        duration=("t", step.duration),
        detail=("s", step.detail),
        late=("b", step.late),
    )


def signal_of(event: Event, realtime: Realtime) -> Signal:
    """The signal that tells of an event."""
    match event:
        case PlanMade(plan):
            return "ReleasePlanned", [text(plan.id), plan_details(plan, realtime)]
        case PlanStarted(plan):
            return "ReleaseStarted", [text(plan.id), plan_details(plan, realtime)]
        case StepFinished(plan, step):
            body = [text(plan.id), text(step.tenant), step.outcome, size(step.freed), _step_result(step)]
            return "ReleaseStep", body
        case PlanFinished(result):
            body = [text(result.plan.id), result.outcome, size(result.freed), result_details(result)]
            return "ReleaseFinished", body
