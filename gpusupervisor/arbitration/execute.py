"""Execution: one step after the other, each checked right before and measured right after.

The only module of this room that touches the world, through `World`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from gpusupervisor.arbitration.assess import shortfall_of
from gpusupervisor.arbitration.eligibility import ANYBODY, objection, refusal
from gpusupervisor.arbitration.situation import (
    PlanOutcome,
    PlanResult,
    PlanStep,
    ReleasePlan,
    Situation,
    StepOutcome,
    StepResult,
)
from gpusupervisor.arbitration.verify import Measurement, credited, progress
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import GpuUnavailable
from gpusupervisor.quantities import format_bytes, format_duration

POLL = 0.05
"""Seconds between two measurements while memory is expected back."""
SLOW_POLL = 0.2
"""The same after `SLOW_AFTER`: most releases are done by then."""
SLOW_AFTER = 3 * MICROSECONDS
LOOK_AGAIN_AFTER = 1 * MICROSECONDS
"""When nothing has come back by then, the tenant is looked at again: it may have begun to work."""


@dataclass(frozen=True, slots=True)
class ReleaseReply:
    """What a tenant answered to the request. Never proof of anything."""

    outcome: Literal["accepted", "refused", "failed"]
    detail: str


class World(Protocol):
    """What execution may do to the world."""

    async def look(self, tenant: str) -> Situation:
        """The situation with the GPUs measured now and, where a tenant is named, a fresh look at its activity."""

    async def request(self, tenant: str) -> ReleaseReply:
        """Ask the tenant for its memory."""

    async def measure(self, tenant: str, gpus: tuple[str, ...]) -> Mapping[str, Measurement]:
        """Ask NVML now, for each GPU. Raises `GpuUnavailable`."""

    def settle_time(self, tenant: str) -> int:
        """How long its memory may take to come back, in microseconds."""

    def defers_when_busy(self, tenant: str) -> bool:
        """Whether its engine keeps the request until its work is done."""

    def cooldown(self, tenant: str) -> int:
        """How long it is left alone after a request, in microseconds."""

    def holdings(self, tenant: str) -> Mapping[str, int]:
        """What it held by GPU when it was last looked at, in bytes; nothing for a tenant nobody knows."""


class Ledger(Protocol):
    """Who keeps the books of what is done."""

    def asked(self, tenant: str) -> None:
        """A request goes out to a tenant now."""

    def finished(self, plan: ReleasePlan, result: StepResult, left: Mapping[str, int]) -> None:
        """What a step brought, and what the tenant still holds by GPU where that is known."""

    def watch(self, unfinished: "Unfinished") -> None:
        """Memory of a step may still come."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A step whose memory may still come: watched after the plan has ended, credited when it does."""

    plan: ReleasePlan
    step: PlanStep
    before: Mapping[str, Measurement]
    result: StepResult
    started_at: int


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One request under way."""

    step: PlanStep
    before: Mapping[str, Measurement]
    missing: int
    started_at: int


class Execution:
    """One plan being carried out."""

    def __init__(
        self,
        plan: ReleasePlan,
        world: World,
        ledger: Ledger,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.plan = plan
        self._world = world
        self._ledger = ledger
        self._clock = clock
        self._sleep = sleep

    async def run(self) -> PlanResult:
        """Carry the plan out. What a tenant or the driver does wrong becomes an outcome, never an exception."""
        started = self._clock.now()
        results = [await self._step(step) for step in self.plan.steps]
        missing, available = self._missing(await self._world.look(""))
        outcome, detail = self._verdict(results, missing)
        freed = sum(result.freed for result in results)
        return PlanResult(self.plan, outcome, tuple(results), freed, available, self._clock.now() - started, detail)

    async def _step(self, step: PlanStep) -> StepResult:
        started = self._clock.now()
        situation = await self._world.look(step.tenant)
        why_not = self._why_not(situation, step)
        left: dict[str, int] = {}
        if why_not:
            result = self._result(step, "skipped", 0, started, why_not)
        else:
            try:
                result, left = await self._ask(step, self._missing(situation)[0], started)
            except GpuUnavailable as error:
                result = self._result(step, "failed", 0, started, f"not asked: it could not be measured: {error}")
        self._ledger.finished(self.plan, result, left)
        return result

    def _why_not(self, situation: Situation, step: PlanStep) -> str:
        """Why this step is not taken now; empty when it is."""
        beneficiary = situation.tenants.get(self.plan.beneficiary)
        if self.plan.cause == "starved" and (beneficiary is None or beneficiary.activity != "busy"):
            return f"no longer needed: {self.plan.beneficiary} is no longer busy"
        if self.plan.need and self._missing(situation)[0] <= 0:
            return "no longer needed: there is room already"
        tenant = situation.tenants.get(step.tenant)
        if tenant is None:
            return "it is gone"
        rank = beneficiary.priority if beneficiary else ANYBODY
        if self.plan.rank is not None:
            rank = self.plan.rank
        against = (
            refusal(tenant, self.plan.gpu)
            if self.plan.cause == "release"
            else objection(tenant, self.plan.gpu, situation.now, rank)
        )
        return f"{against.reason}: {against.detail}" if against else ""

    def _missing(self, situation: Situation) -> tuple[int, int]:
        """Bytes still missing for the beneficiary, and bytes available to it; (1, 0) when the GPU is gone."""
        if self.plan.gpu not in situation.gpus:
            return 1, 0
        available = situation.available(self.plan.gpu, self.plan.beneficiary)
        beneficiary = situation.tenants.get(self.plan.beneficiary)
        if beneficiary is None:
            return self.plan.need - available, available
        return shortfall_of(situation, beneficiary, self.plan.gpu, self.plan.need), available

    async def _ask(self, step: PlanStep, missing: int, started: int) -> tuple[StepResult, dict[str, int]]:
        before = await self._world.measure(step.tenant, step.gpus or (self.plan.gpu,))
        self._ledger.asked(step.tenant)
        reply = await self._world.request(step.tenant)
        if reply.outcome == "refused":
            return self._result(step, "refused", 0, started, reply.detail), {}
        attempt = _Attempt(step, before, missing, started)
        try:
            return await self._settle(attempt, reply)
        except GpuUnavailable as error:
            return self._close(attempt, "failed", 0, {}, f"it was asked, but could not be measured: {error}")

    async def _settle(self, attempt: _Attempt, reply: ReleaseReply) -> tuple[StepResult, dict[str, int]]:
        """Measure until the memory is back, there is enough, the engine defers, or the settle window is over."""
        step, asked_at = attempt.step, self._clock.now()
        deadline = asked_at + self._world.settle_time(step.tenant)
        looked = False
        while True:
            after = await self._world.measure(step.tenant, tuple(attempt.before))
            freed = sum(credited(attempt.before[gpu], after[gpu]) for gpu in attempt.before)
            stage, now = progress(freed, step.expected), self._clock.now()
            if stage == "complete":
                return self._close(attempt, "freed", freed, after, f"{format_bytes(freed)} came back")
            if stage == "some" and self._is_enough(attempt, after):
                return self._close(attempt, "partial", freed, after, "enough came back for this plan")
            if stage == "nothing" and not looked and now - asked_at >= LOOK_AGAIN_AFTER:
                looked = True
                if await self._is_deferred(step.tenant):
                    return self._close(attempt, "pending", freed, after, DEFERRED)
            if now >= deadline:
                break
            await self._sleep(POLL if now - asked_at < SLOW_AFTER else SLOW_POLL)
        if stage == "some":
            detail = f"{format_bytes(freed)} of {format_bytes(step.expected)} came back"
            return self._close(attempt, "partial", freed, after, detail)
        if await self._is_deferred(step.tenant):
            return self._close(attempt, "pending", freed, after, DEFERRED)
        waited = format_duration(now - asked_at)
        detail = reply.detail if reply.outcome == "failed" else f"it agreed, but nothing came back within {waited}"
        return self._close(attempt, "failed", freed, after, detail)

    async def _is_deferred(self, tenant: str) -> bool:
        if not self._world.defers_when_busy(tenant):
            return False
        now = (await self._world.look(tenant)).tenants.get(tenant)
        return now is not None and now.activity == "busy"

    def _is_enough(self, attempt: _Attempt, after: Mapping[str, Measurement]) -> bool:
        """Whether what is missing is free by now, or in the beneficiary's hands."""
        gpu, name = self.plan.gpu, self.plan.beneficiary
        if not self.plan.need or gpu not in after:
            return False
        before = attempt.before[gpu]
        grown = max(0, after[gpu].others.get(name, 0) - before.others.get(name, 0))
        return after[gpu].free - before.free + grown >= attempt.missing

    def _close(
        self, attempt: _Attempt, outcome: StepOutcome, freed: int, after: Mapping[str, Measurement], detail: str
    ) -> tuple[StepResult, dict[str, int]]:
        result = self._result(attempt.step, outcome, freed, attempt.started_at, detail)
        if outcome != "freed":
            self._ledger.watch(Unfinished(self.plan, attempt.step, attempt.before, result, attempt.started_at))
        left = {gpu: seen.holding for gpu, seen in after.items() if seen.holding is not None}
        return result, left

    def _result(self, step: PlanStep, outcome: StepOutcome, freed: int, started: int, detail: str) -> StepResult:
        return StepResult(step.tenant, outcome, step.expected, freed, self._clock.now() - started, detail)

    def _verdict(self, results: list[StepResult], missing: int) -> tuple[PlanOutcome, str]:
        told = "; ".join(f"{result.tenant} {result.outcome}: {result.detail}" for result in results)
        if not self.plan.need:
            good = all(result.outcome in ("freed", "partial", "pending") for result in results)
            return ("satisfied" if good else "failed"), told
        if missing <= 0:
            return "satisfied", told or "there was room already"
        short = f"{format_bytes(missing)} are still missing"
        if any(result.freed for result in results):
            return "insufficient", f"{short}; {told}"
        return "failed", f"{short}; {told}" if told else short


DEFERRED = "it is working and will give its memory back when it is done"


def late_return(unfinished: Unfinished, after: Mapping[str, Measurement], now: int) -> StepResult | None:
    """The result to credit when the memory of an unfinished step has come by now; None while nothing more came."""
    step = unfinished.step
    gpus = [gpu for gpu in unfinished.before if gpu in after]
    freed = sum(credited(unfinished.before[gpu], after[gpu]) for gpu in gpus)
    if progress(freed, step.expected) != "complete" or freed <= unfinished.result.freed:
        return None
    detail = f"{format_bytes(freed)} came back late"
    return StepResult(step.tenant, "freed", step.expected, freed, now - unfinished.started_at, detail, late=True)
