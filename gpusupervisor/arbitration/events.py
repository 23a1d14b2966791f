"""What is announced about plans, as it happens."""

from dataclasses import dataclass

from gpusupervisor.arbitration.situation import PlanResult, ReleasePlan, StepResult


@dataclass(frozen=True, slots=True)
class PlanMade:
    """A plan was made, on request or by itself; nothing has been done."""

    plan: ReleasePlan


@dataclass(frozen=True, slots=True)
class PlanStarted:
    """A plan's execution begins."""

    plan: ReleasePlan


@dataclass(frozen=True, slots=True)
class StepFinished:
    """A step has its outcome (again, when memory came back late)."""

    plan: ReleasePlan
    result: StepResult


@dataclass(frozen=True, slots=True)
class PlanFinished:
    """A plan has ended."""

    result: PlanResult


Event = PlanMade | PlanStarted | StepFinished | PlanFinished
