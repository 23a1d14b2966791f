"""Execution: one step after the other, each checked right before and measured right after.

The only module of this room that touches the world, through `World`. What a release brought is what was measured: an
answer that was lost, malformed or cut off after the request had been sent says nothing about it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from gpusupervisor.arbitration.assess import shortfall_of
from gpusupervisor.arbitration.eligibility import Objection, idle_objection, objection, refusal
from gpusupervisor.arbitration.plan import rank_of
from gpusupervisor.arbitration.situation import (
    PlanOutcome,
    PlanResult,
    PlanStep,
    ReleasePlan,
    Situation,
    StepOutcome,
    StepResult,
    TenantSituation,
)
from gpusupervisor.arbitration.verify import Measurement, are_replaced, credited, have_ended, progress
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import GpuUnavailable
from gpusupervisor.quantities import format_bytes, format_duration

POLL = 0.05
"""Seconds between two measurements while memory is expected back."""
SLOW_POLL = 0.2
"""The same after `SLOW_AFTER`: most releases are done by then."""
SLOW_AFTER = 3 * MICROSECONDS
MOVES_WITHIN = 2 * MICROSECONDS
"""Memory that moved so lately is still moving: a release is not over before it rests, or has had twice its time."""
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
    """Records release requests and their results."""

    def asked(self, plan: ReleasePlan, tenant: str) -> None:
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
                why = f"not asked: it could not be measured: {error}"
                result = replace(self._result(step, "failed", 0, started, why), is_conclusive=False)
        self._ledger.finished(self.plan, result, left)
        return result

    def _why_not(self, situation: Situation, step: PlanStep) -> str:
        """Why this step is not taken now; empty when it is."""
        beneficiary = situation.tenants.get(self.plan.beneficiary)
        if self.plan.cause == "starved" and (beneficiary is None or not beneficiary.may_claim):
            return f"no longer needed: {self.plan.beneficiary} is no longer busy"
        if self.plan.need and self._missing(situation)[0] <= 0:
            return "no longer needed: there is room already"
        tenant = situation.tenants.get(step.tenant)
        if tenant is None:
            return "it is gone"
        cards = self._cards_of(step)
        against = next((found for gpu in cards if (found := self._objection(situation, tenant, gpu))), None)
        return f"{against.reason}: {against.detail}" if against else ""

    def _objection(self, situation: Situation, tenant: TenantSituation, gpu: str) -> Objection | None:
        if self.plan.cause == "release":
            return refusal(tenant, gpu)
        if self.plan.cause == "idle":
            return idle_objection(tenant, gpu, situation.now)
        beneficiary = self.plan.beneficiary
        rank = rank_of(self.plan, situation.tenants.get(beneficiary))
        return objection(tenant, gpu, situation.now, rank, beneficiary)

    def _cards_of(self, step: PlanStep) -> tuple[str, ...]:
        return step.gpus or (self.plan.gpu,)

    def _missing(self, situation: Situation) -> tuple[int, int]:
        """Bytes still missing for the beneficiary, and bytes available to it; (1, 0) when the GPU is gone."""
        cards = [gpu for gpu in self.plan.cards if gpu in situation.gpus]
        if not cards:
            return 1, 0
        available = situation.room(cards, self.plan.beneficiary)
        beneficiary = situation.tenants.get(self.plan.beneficiary)
        if beneficiary is None:
            return self.plan.need - available, available
        return shortfall_of(situation, beneficiary, cards, self.plan.need), available

    async def _ask(self, step: PlanStep, missing: int, started: int) -> tuple[StepResult, dict[str, int]]:
        before = await self._world.measure(step.tenant, self._cards_of(step))
        self._ledger.asked(self.plan, step.tenant)
        reply = await self._world.request(step.tenant)
        attempt = _Attempt(step, before, missing, started)
        try:
            if reply.outcome == "refused":
                return await self._refused(attempt, reply)
            return await self._settle(attempt, reply)
        except GpuUnavailable as error:
            result = self._result(step, "failed", 0, started, f"it was asked, but could not be measured: {error}")
            self._ledger.watch(Unfinished(self.plan, step, before, result, started))
            return replace(result, is_conclusive=False), {}

    async def _refused(self, attempt: _Attempt, reply: ReleaseReply) -> tuple[StepResult, dict[str, int]]:
        """An engine that says no has not been told anything: nothing is waited for, but what is there is measured."""
        after = await self._world.measure(attempt.step.tenant, tuple(attempt.before))
        if progress(_freed(attempt.before, after), attempt.step.expected) == "complete":
            return await self._settle(attempt, reply)
        return self._result(attempt.step, "refused", 0, attempt.started_at, reply.detail), _holdings(after)

    async def _settle(self, attempt: _Attempt, reply: ReleaseReply) -> tuple[StepResult, dict[str, int]]:
        """Measure until the memory is back, there is enough, the engine defers, or the settle window is over and the
        memory at rest."""
        step, asked_at = attempt.step, self._clock.now()
        deadline = asked_at + self._world.settle_time(step.tenant)
        looked, most, moved_at = False, 0, asked_at
        while True:
            after = await self._world.measure(step.tenant, tuple(attempt.before))
            if are_replaced(attempt.before, after):
                why = "its processes ended and others began meanwhile, so that nothing is known of what it gave back"
                return replace(self._result(step, "failed", 0, attempt.started_at, why), is_conclusive=False), {}
            freed, now = _freed(attempt.before, after), self._clock.now()
            if freed > most:
                most, moved_at = freed, now
            stage = progress(freed, step.expected)
            if stage == "complete" or (stage == "some" and step.expected is None and now - moved_at >= MOVES_WITHIN):
                return self._close(attempt, "freed", freed, after, f"{format_bytes(freed)} came back")
            if stage == "some" and self._is_enough(attempt, after):
                result, left = self._close(attempt, "partial", freed, after, "enough came back for this plan")
                return replace(result, is_conclusive=False), left
            if stage == "nothing" and not looked and now - asked_at >= LOOK_AGAIN_AFTER:
                looked = True
                if await self._is_deferred(step.tenant):
                    return self._close(attempt, "pending", freed, after, DEFERRED)
            if now >= deadline and (not most or now - moved_at >= MOVES_WITHIN or now >= 2 * deadline - asked_at):
                break
            await self._sleep(POLL if now - asked_at < SLOW_AFTER else SLOW_POLL)
        return await self._give_up(attempt, reply, after, now - asked_at)

    async def _give_up(
        self, attempt: _Attempt, reply: ReleaseReply, after: Mapping[str, Measurement], waited: int
    ) -> tuple[StepResult, dict[str, int]]:
        """The settle window is over, and not all is back."""
        step, freed = attempt.step, _freed(attempt.before, after)
        if progress(freed, step.expected) == "some":
            of = "" if step.expected is None else f" of {format_bytes(step.expected)}"
            return self._close(attempt, "partial", freed, after, f"{format_bytes(freed)}{of} came back")
        if await self._is_deferred(step.tenant):
            return self._close(attempt, "pending", freed, after, DEFERRED)
        stayed = sum(_holdings(after).values())
        nothing = f"nothing came back within {format_duration(waited)}, and it still holds {format_bytes(stayed)}"
        said = reply.detail if reply.outcome == "failed" else f"it answered: {reply.detail or 'yes'}"
        return self._close(attempt, "failed", freed, after, f"{said}, but {nothing}")

    async def _is_deferred(self, tenant: str) -> bool:
        """Whether the engine keeps the request until its work is done: only where it says itself that it works. CPU
        time of the unloading is no work."""
        if not self._world.defers_when_busy(tenant):
            return False
        now = (await self._world.look(tenant)).tenants.get(tenant)
        return now is not None and now.activity in ("busy", "claimed")

    def _is_enough(self, attempt: _Attempt, after: Mapping[str, Measurement]) -> bool:
        """Whether what is missing is free by now, or in the beneficiary's hands."""
        name, before = self.plan.beneficiary, attempt.before
        cards = [gpu for gpu in self.plan.cards if gpu in after and gpu in before]
        if not self.plan.need or not cards or self.plan.is_open:
            return False  # an open need is looked at anew when all is back
        grown = sum(max(0, after[gpu].others.get(name, 0) - before[gpu].others.get(name, 0)) for gpu in cards)
        return sum(after[gpu].free - before[gpu].free for gpu in cards) + grown >= attempt.missing

    def _close(
        self, attempt: _Attempt, outcome: StepOutcome, freed: int, after: Mapping[str, Measurement], detail: str
    ) -> tuple[StepResult, dict[str, int]]:
        result = self._result(attempt.step, outcome, freed, attempt.started_at, detail)
        if outcome != "freed":
            self._ledger.watch(Unfinished(self.plan, attempt.step, attempt.before, result, attempt.started_at))
        return result, _holdings(after)

    def _result(self, step: PlanStep, outcome: StepOutcome, freed: int, started: int, detail: str) -> StepResult:
        return StepResult(step.tenant, outcome, step.expected, freed, self._clock.now() - started, detail)

    def _verdict(self, results: list[StepResult], missing: int) -> tuple[PlanOutcome, str]:
        told = "; ".join(f"{result.tenant} {result.outcome}: {result.detail}" for result in results)
        if not self.plan.need:
            if any(result.outcome not in ("freed", "partial", "pending") for result in results):
                return "failed", told
            return ("pending" if any(result.outcome == "pending" for result in results) else "satisfied"), told
        if missing <= 0:
            return "satisfied", told or "there was room already"
        short = f"{format_bytes(missing)} are still missing"
        if any(result.freed for result in results):
            return "insufficient", f"{short}; {told}"
        return "failed", f"{short}; {told}" if told else short


DEFERRED = "it is working and will give its memory back when it is done"


def late_return(unfinished: Unfinished, after: Mapping[str, Measurement], now: int) -> StepResult | None:
    """Return the corrected result of an unfinished step once its release is complete, or None.

    What a process gives back by ending is no release of it.
    """
    step = unfinished.step
    if have_ended(unfinished.before, after):
        return None
    freed = _freed(unfinished.before, after)
    if progress(freed, step.expected) != "complete" or freed <= unfinished.result.freed:
        return None
    detail = f"{format_bytes(freed)} came back late"
    return StepResult(step.tenant, "freed", step.expected, freed, now - unfinished.started_at, detail, late=True)


def _freed(before: Mapping[str, Measurement], after: Mapping[str, Measurement]) -> int:
    return sum(credited(before[gpu], after[gpu]) for gpu in before if gpu in after)


def _holdings(measured: Mapping[str, Measurement]) -> dict[str, int]:
    return {gpu: seen.holding for gpu, seen in measured.items() if seen.holding is not None}
