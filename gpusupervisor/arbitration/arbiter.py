"""The arbiter: makes plans from situations, carries one out per GPU, and keeps the books.

Decisions themselves are the pure functions of this room; here is what must be remembered between them.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.announcements import Announcements
from gpusupervisor.arbitration.assess import cards_for
from gpusupervisor.arbitration.compose import Seen, compose, measurement
from gpusupervisor.arbitration.counters import Counters
from gpusupervisor.arbitration.events import Event, PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.execute import Execution, Unfinished, World, late_return
from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.learned import LearnedFacts
from gpusupervisor.arbitration.plan import Request, idle_releases, make_plan, make_release
from gpusupervisor.arbitration.plan_text import in_the_way, releasable
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import Assessment, PlanResult, ReleasePlan, Situation, StepResult
from gpusupervisor.arbitration.verify import have_ended
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import Busy

LATE_WINDOW = 600 * MICROSECONDS
"""How long memory of an unfinished step is still credited to it."""
RETRY_AFTER = 30 * MICROSECONDS
"""A plan that did not satisfy its beneficiary is not carried out again by itself before; one that asks others is."""

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
        counters: Counters | None = None,
    ) -> None:
        """spawn: starts a task whose unexpected exception ends the daemon. learned, counters: None: none yet."""
        self.running: dict[str, ReleasePlan] = {}
        """By GPU."""
        self.counters = counters or Counters()
        self.history = History(learned, self.counters)
        self.reservations = ReservationBook(reservation)
        self._world = world
        self._clock = clock
        self._announce = announce
        self._spawn = spawn
        self._made = 0
        self._announced = Announcements()
        self._retry_at: dict[tuple[str, frozenset[str]], int] = {}
        """By beneficiary and the tenants that were asked for it."""
        self._asking: set[str] = set()
        """Tenants whose request is under way."""
        self._under_pressure: dict[str, int] = {}
        """By tenant: since when."""
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
        made = compose(seen, self._promised | self._asking, self.history, self.reservations, reserve)
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
        self.history.used(tenant)
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
        self._count_pressure(situation)
        starved = [a for a in assessments.values() if a.starved]
        starved.sort(key=lambda a: (-situation.tenants[a.tenant].working_priority, a.tenant))
        self._announced.forget_before(situation.now)
        self._retry_at = {who: at for who, at in self._retry_at.items() if situation.now < at}
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
            elif seen.now - late.started_at > LATE_WINDOW or (after and have_ended(late.before, after)):
                del self._unfinished[tenant]

    def abandon(self) -> None:
        """Stop carrying out plans; what was asked for already comes back unmeasured."""
        for task in self._tasks:
            task.cancel()

    def asked(self, plan: ReleasePlan, tenant: str) -> None:
        """A request goes out to a tenant now."""
        now = self._clock.now()
        self._unfinished.pop(tenant, None)
        self._asking.add(tenant)
        self.history.asked(tenant, now, self._world.cooldown(tenant))
        self.counters.count("asked")
        if plan.cause == "starved":
            self.history.swaps.note(tenant, plan.beneficiary, now)

    def finished(self, plan: ReleasePlan, result: StepResult, left: Mapping[str, int]) -> None:
        """Note and announce what a step brought."""
        now = self._clock.now()
        self._asking.discard(result.tenant)
        for gpu, size in left.items():
            self.history.released(result.tenant, gpu, result, size, now, plan.id)
        self.history.judged(result, left, now, plan.id)
        if result.outcome == "skipped":
            self.counters.count(f"refused-{result.detail.partition(':')[0].replace(' ', '-')}")
        else:
            self.counters.count(f"step-{result.outcome}")
        self._announce(StepFinished(plan, result))

    def watch(self, unfinished: Unfinished) -> None:
        """Memory of a step may still come."""
        self._unfinished[unfinished.step.tenant] = unfinished

    def _serve(self, situation: Situation, assessment: Assessment, *, automatic: bool) -> str:
        """Do what can be done about a starved tenant; returns that in words."""
        name, tenant = assessment.tenant, situation.tenants[assessment.tenant]
        cards = cards_for(situation, tenant)
        under_way = next((self.running[gpu].id for gpu in cards if gpu in self.running), "")
        if under_way:
            return f"{under_way} is being carried out"
        assert tenant.need is not None, "it is starved, so its need is known"
        request = Request("starved", assessment.gpu, name, tenant.need.low, gpus=cards, is_open=tenant.need.is_open)
        plan = make_plan(situation, request, "")
        steps = frozenset(step.tenant for step in plan.steps)
        starts = bool(steps) and automatic and (name, steps) not in self._retry_at
        plan = self._with_id(plan, starts=starts)
        if not plan.fits:
            return "It can never fit on this GPU" if len(cards) == 1 else "It can never fit on these GPUs"
        if not steps:
            return f"Nobody is asked: {releasable(plan.reclaimable)}. {in_the_way(plan.blockers)}"
        asked = ", ".join(step.tenant for step in plan.steps)
        if not automatic:
            return f"Observe-only: {plan.id} would ask {asked}"
        if not starts:
            return f"The last plan did not free enough; {asked} will be asked after half a minute"
        self._start(plan)
        self._announced.started(plan)
        return f"{plan.id} asks {asked}"

    def _with_id(self, plan: ReleasePlan, *, starts: bool) -> ReleasePlan:
        """A plan with its id: that of the last one that said the same, or a new one, announced."""
        known = self._announced.known(plan, must_be_told=starts)
        if known:
            return replace(plan, id=known)
        made = self._publish(replace(plan, id=self._next_id()))
        self._announced.told(made)
        for blocker in made.blockers:
            self.counters.count(f"protected-{blocker.reason}")
        return made

    def _count_pressure(self, situation: Situation) -> None:
        """Count each time that a tenant comes under pressure."""
        now = {each.id: each.pressure for each in situation.tenants.values() if each.pressure is not None}
        for tenant, pressure in now.items():
            if self._under_pressure.get(tenant) != pressure.since:
                self.counters.count(pressure.kind)
        self._under_pressure = {tenant: pressure.since for tenant, pressure in now.items()}

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
            self._asking.difference_update(step.tenant for step in plan.steps)
            for gpu in _gpus(plan):
                self.running.pop(gpu, None)
        self._settle_up(result)
        return result

    def _settle_up(self, result: PlanResult) -> None:
        plan, now = result.plan, self._clock.now()
        if result.outcome == "satisfied" and plan.beneficiary:
            self._keep_room(plan, result.available, now)
        elif plan.cause == "starved":
            self._retry_at[plan.beneficiary, frozenset(step.tenant for step in plan.steps)] = now + RETRY_AFTER
        self._announce(PlanFinished(result))

    def _keep_room(self, plan: ReleasePlan, available: int, now: int) -> None:
        """Keep what was made for the beneficiary, card by card: of an open need all that is there."""
        held = self._world.holdings(plan.beneficiary)
        left = available if plan.is_open else plan.need - sum(held.values())
        brought = {gpu: sum(step.frees.get(gpu, 0) for step in plan.steps) for gpu in plan.cards}
        order = sorted(plan.cards, key=lambda gpu: (-brought[gpu], gpu))
        for gpu in order:
            size = left if gpu == order[-1] else min(left, brought[gpu])
            self.reservations.keep(gpu, plan.beneficiary, size, held.get(gpu, 0), now)
            left -= max(0, size)


def _gpus(plan: ReleasePlan) -> set[str]:
    return {*plan.cards}.union(*(step.gpus for step in plan.steps))
