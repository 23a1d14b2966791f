"""The arbiter: makes plans from situations, carries one out per GPU, and keeps the books.

Decisions themselves are the pure functions of this room; here is what must be remembered between them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.compose import Seen, compose, measurement
from gpusupervisor.arbitration.events import Event, PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.execute import Execution, Unfinished, World, late_return
from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.learned import LearnedFacts
from gpusupervisor.arbitration.plan import Request, idle_releases, in_the_way, make_plan, make_release, releasable
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import Assessment, PlanResult, ReleasePlan, Situation, StepResult
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import Busy

LATE_WINDOW = 600 * MICROSECONDS
"""How long memory of an unfinished step is still credited to it."""
RETRY_AFTER = 30 * MICROSECONDS
"""A beneficiary whose plan did not satisfy it is not served again by itself before."""

Spawn = Callable[[Coroutine[Any, Any, PlanResult]], asyncio.Task[PlanResult]]


class Arbiter:
    """Keeps history, reservations and the plans that are being carried out."""

    def __init__(
        self,
        world: World,
        clock: Clock,
        announce: Callable[[Event], None],
        spawn: Spawn,
        reservation: int,
        learned: LearnedFacts | None = None,
    ) -> None:
        """spawn: starts a task whose unexpected exception ends the daemon. learned: None begins without any."""
        self.running: dict[str, ReleasePlan] = {}
        """By GPU."""
        self.history = History(learned)
        self.reservations = ReservationBook(reservation)
        self._world = world
        self._clock = clock
        self._announce = announce
        self._spawn = spawn
        self._made = 0
        self._last_made: dict[str, ReleasePlan] = {}
        self._retry_at: dict[str, int] = {}
        self._unfinished: dict[str, Unfinished] = {}
        self._uses: dict[str, str] = {}
        """By tenant: what of ours works with it."""
        self._tasks: set[asyncio.Task[PlanResult]] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether a plan is being carried out, or memory that was promised is still expected."""
        return bool(self.running or self._promised)

    @property
    def _promised(self) -> frozenset[str]:
        """Tenants that give their memory back when their work is done."""
        return frozenset(tenant for tenant, late in self._unfinished.items() if late.result.outcome == "pending")

    def count_on_from(self, made: int) -> None:
        """Number plans after those of an earlier life of the service, so that an id means one plan for good."""
        self._made = max(self._made, made)

    def situation(self, seen: Seen, reserve: int) -> Situation:
        """What decisions look at."""
        made = compose(seen, self._promised, self.history, self.reservations, reserve)
        if not self._uses:
            return made
        tenants = {id_: replace(each, used_by=self._uses.get(id_, "")) for id_, each in made.tenants.items()}
        return replace(made, tenants=tenants)

    @contextmanager
    def using(self, tenant: str, why: str) -> Iterator[None]:
        """Something of ours works with a tenant: nobody asks it for its memory meanwhile.

        why: a sentence for a person. Raises Busy when something does already.
        """
        if tenant in self._uses:
            raise Busy(f"{tenant} is in use: {self._uses[tenant]}")
        self._uses[tenant] = why
        try:
            yield
        finally:
            del self._uses[tenant]

    def used_by(self, tenant: str) -> str:
        """What of ours works with a tenant at this moment, as a sentence; empty when nothing does."""
        return self._uses.get(tenant, "")

    def plan(self, situation: Situation, request: Request) -> ReleasePlan:
        """Make a plan and announce it."""
        return self._publish(make_plan(situation, request, self._next_id()))

    def plan_of_release(self, situation: Situation, tenant: str) -> ReleasePlan:
        """Make the plan of a person who asks one tenant to release, and announce it."""
        return self._publish(make_release(situation, tenant, self._next_id(), "release"))

    def act(
        self, situation: Situation, assessments: Mapping[str, Assessment], *, automatic: bool
    ) -> dict[str, Assessment]:
        """Serve whoever is starved and release what has been idle long enough.

        Returns the assessments, with what is done about each starved tenant, or what stands in the way, added.
        """
        explained = dict(assessments)
        starved = [a for a in assessments.values() if a.starved]
        starved.sort(key=lambda a: (-situation.tenants[a.tenant].priority, a.tenant))
        self._last_made = {a.tenant: self._last_made[a.tenant] for a in starved if a.tenant in self._last_made}
        self._retry_at = {tenant: at for tenant, at in self._retry_at.items() if situation.now < at}
        for assessment in starved:
            done = self._serve(situation, assessment, automatic=automatic)
            explained[assessment.tenant] = replace(assessment, reason=f"{assessment.reason}. {done}")
        if automatic:
            self._release_idle(situation)
        return explained

    async def carry_out(self, plan: ReleasePlan) -> PlanResult:
        """Carry a plan out to its end. The caller has seen that its GPUs are not in `running`."""
        return await asyncio.shield(self._start(plan))

    async def wait_for_plan(self, gpu: str) -> None:
        """Wait until no plan is being carried out on a GPU."""
        while gpu in self.running and self._tasks:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)

    def credit_late(self, seen: Seen) -> None:
        """Credit what has come back since to the steps that were left unfinished."""
        for tenant, late in list(self._unfinished.items()):
            is_there = tenant in seen.census.tenants  # one that is not described any more cannot be measured
            found = {gpu: measurement(seen, tenant, gpu) for gpu in late.before} if is_there else {}
            after = {gpu: value for gpu, value in found.items() if value is not None}
            result = late_return(late, after, seen.now)
            if result is not None:
                del self._unfinished[tenant]
                left = {gpu: value.holding for gpu, value in after.items() if value.holding is not None}
                self.finished(late.plan, result, left)
            elif seen.now - late.started_at > LATE_WINDOW:
                del self._unfinished[tenant]

    def abandon(self) -> None:
        """Stop carrying out plans; what was asked for already comes back unmeasured."""
        for task in self._tasks:
            task.cancel()

    def asked(self, tenant: str) -> None:
        """A request goes out to a tenant now."""
        self._unfinished.pop(tenant, None)
        self.history.asked(tenant, self._clock.now(), self._world.cooldown(tenant))

    def finished(self, plan: ReleasePlan, result: StepResult, left: Mapping[str, int]) -> None:
        """Note and announce what a step brought."""
        for gpu, size in left.items():
            self.history.released(result.tenant, gpu, result, size, self._clock.now(), plan.id)
        self._announce(StepFinished(plan, result))

    def watch(self, unfinished: Unfinished) -> None:
        """Memory of a step may still come."""
        self._unfinished[unfinished.step.tenant] = unfinished

    def _serve(self, situation: Situation, assessment: Assessment, *, automatic: bool) -> str:
        """Do what can be done about a starved tenant; returns that in words."""
        name = assessment.tenant
        if assessment.gpu in self.running:
            return f"{self.running[assessment.gpu].id} is being carried out"
        need = situation.tenants[name].need or 0
        plan = self._made_again(make_plan(situation, Request("starved", assessment.gpu, name, need), ""))
        if not plan.fits:
            return "It can never fit on this GPU"
        if not plan.steps:
            return f"Nobody is asked: {releasable(plan.reclaimable)}. {in_the_way(plan.blockers)}"
        asked = ", ".join(step.tenant for step in plan.steps)
        if not automatic:
            return f"Observe-only: {plan.id} would ask {asked}"
        if name in self._retry_at:
            return f"The last plan did not free enough; {asked} will be asked after half a minute"
        self._start(plan)
        del self._last_made[name]  # the next one is another plan, announced anew even when it says the same
        return f"{plan.id} asks {asked}"

    def _made_again(self, plan: ReleasePlan) -> ReleasePlan:
        """The last plan for the same beneficiary when this one says the same; else a new one, announced."""
        last = self._last_made.get(plan.beneficiary)
        if last is not None and _gist(last) == _gist(plan):
            return replace(plan, id=last.id)
        made = self._publish(replace(plan, id=self._next_id()))
        self._last_made[plan.beneficiary] = made
        return made

    def _release_idle(self, situation: Situation) -> None:
        for tenant in idle_releases(situation):
            if not self.running.keys() & situation.tenants[tenant].holdings.keys():
                plan = make_release(situation, tenant, self._next_id(), "idle")
                if plan.sufficient:
                    self._start(self._publish(plan))

    def _publish(self, plan: ReleasePlan) -> ReleasePlan:
        """Announced, and so written to the journal, before anything of it is done."""
        self._announce(PlanMade(plan))
        return plan

    def _next_id(self) -> str:
        self._made += 1
        return f"plan-{self._made}"

    def _start(self, plan: ReleasePlan) -> asyncio.Task[PlanResult]:
        for gpu in _gpus(plan):
            self.running[gpu] = plan
        self._announce(PlanStarted(plan))
        task = self._spawn(self._run(plan))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, plan: ReleasePlan) -> PlanResult:
        try:
            result = await Execution(plan, self._world, self, self._clock).run()
        finally:
            for gpu in _gpus(plan):
                self.running.pop(gpu, None)
        self._settle_up(result)
        return result

    def _settle_up(self, result: PlanResult) -> None:
        plan, now = result.plan, self._clock.now()
        if result.outcome == "satisfied" and plan.beneficiary:
            held = self._world.holdings(plan.beneficiary)
            missing = plan.need - sum(held.values())
            self.reservations.keep(plan.gpu, plan.beneficiary, missing, held.get(plan.gpu, 0), now)
        elif plan.cause == "starved":
            self._retry_at[plan.beneficiary] = now + RETRY_AFTER
        self._announce(PlanFinished(result))


def _gpus(plan: ReleasePlan) -> set[str]:
    return {plan.gpu}.union(*(step.gpus for step in plan.steps))


def _gist(plan: ReleasePlan) -> object:
    """What makes a plan another plan: whom it asks and who is in the way, not each byte."""
    return (
        plan.gpu,
        plan.sufficient,
        plan.fits,
        tuple(step.tenant for step in plan.steps),
        frozenset((blocker.holder, blocker.reason) for blocker in plan.blockers),
    )
