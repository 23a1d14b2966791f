"""What is worth an entry in the journal: what changed from one look to the next, and what becomes of plans.

On a day on which nothing happens it writes nothing: what is as it was, and a GPU that falls asleep and wakes up, is
no news. At level debug each look is told, and activities that change.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping

from gpusupervisor.arbitration.events import Event, PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.plan_text import size_text
from gpusupervisor.arbitration.situation import Assessment, Blocker, PlanStep, ReleasePlan, Situation, StepResult
from gpusupervisor.arbitration.swaps import Thrash
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.controls import NOT_ASKED
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages import health, plans
from gpusupervisor.keepers.want_chronicle import WantChronicle
from gpusupervisor.state import Check, State

_LOG = logging.getLogger(__name__)

_GOOD_STEPS = frozenset({"freed", "partial", "pending", "skipped"})
_GOOD_PLANS = frozenset({"satisfied", "nothing-to-do"})
_QUIET_DRIVER = frozenset({"starting", "asleep"})
_DRIVER_THERE = frozenset({"ok", "asleep"})
_BAD_GPU = frozenset({"lost", "failing"})
UNSAID = "not known"
RESTLESS = 4
"""So many entries of one check within `CALM`, and no more: one that comes and goes would fill the journal."""
CALM = 600 * MICROSECONDS


class Chronicle:
    """Is told everything, remembers what it has told, and writes the rest."""

    def __init__(self) -> None:
        self._engines: Mapping[str, str] = {}
        """By tenant."""
        self._wants = WantChronicle()
        self._activities: Mapping[str, str] = {}
        self._driver = ""
        """The last state that was told; empty before the first look."""
        self._bad_gpus: frozenset[str] = frozenset()
        self._bad_checks: dict[str, Check] = {}
        """As they were told."""
        self._told_at: dict[str, deque[int]] = {}
        """When entries of a check were written."""
        self._helper_lost = False

    # Plans, as they happen

    def assessed(
        self, situation: Situation, assessments: Mapping[str, Assessment], thrashing: tuple[Thrash, ...] = ()
    ) -> None:
        """Who is starved now; told before anything is planned for it."""
        self._wants.assessed(situation, assessments, thrashing, self._engines)

    def event(self, event: Event) -> None:
        """What becomes of a plan. It is made, and so written, before anything of it is done."""
        match event:
            case PlanMade(plan):
                write(_plan_made(plan))
            case PlanStarted(plan):
                write(plans.PlanStarted(plan.id, plan.cause, plan.gpu, plan.beneficiary, _tenants(plan)))
            case StepFinished(plan, result):
                write(self._step(plan, result))
            case PlanFinished(result):
                kind = plans.PlanSatisfied if result.outcome in _GOOD_PLANS else plans.PlanFellShort
                plan = result.plan
                write(
                    kind(
                        plan=plan.id,
                        cause=plan.cause,
                        gpu=plan.gpu,
                        beneficiary=plan.beneficiary,
                        tenant=_tenants(plan),
                        outcome=result.outcome,
                        freed=result.freed,
                        available=max(0, result.available),
                        duration=result.duration,
                        detail=result.detail,
                    )
                )

    def _step(
        self, plan: ReleasePlan, result: StepResult
    ) -> plans.ReleaseDone | plans.ReleaseFailed | plans.ReleaseCameLate:
        engine = self._engines.get(result.tenant, "")
        if result.late:
            return plans.ReleaseCameLate(
                plan.id, plan.gpu, result.tenant, engine, result.expected, result.freed, result.duration
            )
        return (plans.ReleaseDone if result.outcome in _GOOD_STEPS else plans.ReleaseFailed)(
            plan=plan.id,
            gpu=plan.gpu,
            tenant=result.tenant,
            engine=engine,
            outcome=result.outcome,
            expected=result.expected,
            freed=result.freed,
            duration=result.duration,
            detail=result.detail,
        )

    # What is seen

    def observe(self, state: State) -> None:
        """Write what is different from the state before."""
        self._engines = {tenant: definition.engine for tenant, definition in state.definitions.items()}
        self._observe_driver(state)
        self._observe_gpus(state)
        self._observe_helper(state)
        self._observe_checks(state.checks, state.situation.now)
        activities = {tenant: activity.state for tenant, activity in state.activities.items()}
        if _LOG.isEnabledFor(logging.DEBUG):
            for tenant in sorted(activities):
                if activities[tenant] != self._activities.get(tenant):
                    _LOG.debug("%s is %s: %s", tenant, activities[tenant], state.activities[tenant].reason)
        self._activities = activities
        _LOG.debug("looked: %s", state.status)

    def _observe_driver(self, state: State) -> None:
        driver = state.sample.driver
        if driver.state in _QUIET_DRIVER or driver.state == self._driver:
            return
        self._driver = driver.state
        if driver.state == "ok":
            write(health.DriverAnswers(driver.version))
        else:
            write(health.DriverTrouble(driver.state, driver.detail, driver.impact, driver.remedy))

    def _observe_gpus(self, state: State) -> None:
        bad = set(self._bad_gpus)
        for gpu in state.sample.gpus:
            uuid, name = gpu.identity.uuid, gpu.identity.name
            if gpu.state in _BAD_GPU and uuid not in bad:
                bad.add(uuid)
                driver = state.sample.driver
                remedy = _unsaid(driver.remedy if driver.state != "ok" else gpu.remedy)
                write(health.GpuLost(uuid, name, gpu.state, gpu.detail, remedy, f"gpu-{uuid}"))
            elif gpu.state not in _BAD_GPU and uuid in bad:
                bad.remove(uuid)
                write(health.GpuBack(uuid, name, f"gpu-{uuid}"))
        self._bad_gpus = frozenset(bad)

    def _observe_helper(self, state: State) -> None:
        """Without a driver the helper has nothing to tell either, and that is told already."""
        problem = state.controls.problem
        if problem == NOT_ASKED or bool(problem) is self._helper_lost:
            return
        if problem and state.sample.driver.state not in _DRIVER_THERE:
            return
        self._helper_lost = bool(problem)
        write(health.HelperLost(problem) if problem else health.HelperBack())

    def _observe_checks(self, checks: Iterable[Check], now: int) -> None:
        """A check that is skipped now is as it was: it may be that nothing can be said while the GPU sleeps."""
        seen = {check.id: check for check in checks if not self._is_told_otherwise(check)}
        for name, check in seen.items():
            before = self._bad_checks.get(name)
            worse = check.state in ("failed", "degraded") and (before is None or before.state != check.state)
            if worse and self._may_tell(name, now):
                kind = health.CheckFailed if check.state == "failed" else health.CheckDegraded
                write(kind(name, check.state, check.summary, _unsaid(check.impact), _unsaid(check.remedy)))
                self._bad_checks[name] = check
        for name, before in list(self._bad_checks.items()):
            found = seen.get(name)
            if (found is None or found.state == "ok") and self._may_tell(name, now):
                del self._bad_checks[name]
                write(health.CheckRecovered(name, "ok", before.summary))

    def _may_tell(self, name: str, now: int) -> bool:
        """Whether a check has been calm enough for one more entry; what it is when it has calmed down is told then."""
        self._told_at = {check: told for check, told in self._told_at.items() if now - told[-1] < CALM}
        told = self._told_at.setdefault(name, deque(maxlen=RESTLESS))
        if len(told) == RESTLESS and now - told[0] < CALM:
            return False
        told.append(now)
        return True

    def _is_told_otherwise(self, check: Check) -> bool:
        """Has an entry of a kind of its own, written where it happens."""
        name = check.id
        driver = name == "driver" and check.state == "failed"
        gpu = name.removeprefix("gpu-") in self._bad_gpus
        return driver or gpu or name == "configuration" or name.startswith("configuration-")


def _unsaid(text: str) -> str:
    """As part of a longer sentence."""
    return text.rstrip(".") or UNSAID


def _plan_made(plan: ReleasePlan) -> plans.PlanMade:
    return plans.PlanMade(
        plan=plan.id,
        cause=plan.cause,
        gpu=plan.gpu,
        beneficiary=plan.beneficiary,
        tenant=_tenants(plan),
        summary=plan.summary,
        shortfall=max(0, plan.shortfall),
        reclaimable=plan.reclaimable,
        sufficient="yes" if plan.sufficient else "no",
        step=tuple(map(_step_text, plan.steps)),
        blocker=tuple(map(_blocker_text, plan.blockers)),
    )


def _tenants(plan: ReleasePlan) -> tuple[str, ...]:
    """Everybody it concerns, each once."""
    concerned = dict.fromkeys((plan.beneficiary, *(step.tenant for step in plan.steps)))
    return tuple(tenant for tenant in concerned if tenant)


def _step_text(step: PlanStep) -> str:
    return f"{step.tenant} ({size_text(step.expected)}: {step.reason})"


def _blocker_text(blocker: Blocker) -> str:
    return f"{blocker.holder} ({size_text(blocker.held)}, {blocker.reason}: {blocker.detail})"
