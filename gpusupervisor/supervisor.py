"""The supervisor: composes the rooms, owns the tick, and is what the bus calls."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from gpusupervisor.arbitration.arbiter import Arbiter
from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.arbitration.events import Event
from gpusupervisor.arbitration.plan import make_plan
from gpusupervisor.arbitration.request import interpret, require_tenant, shortcoming
from gpusupervisor.arbitration.situation import Assessment, PlanResult, ReleasePlan, Situation
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.automatic import AutomaticSwitch
from gpusupervisor.autotune.admission import require_engine
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.controls import Controls, TuningWish
from gpusupervisor.effective import Configuration, telemetry_limits
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.errors import (
    Blocked,
    Busy,
    GpuUnavailable,
    InvalidConfiguration,
    NotReclaimable,
    SupervisorError,
    WontFit,
)
from gpusupervisor.health.facts import Facts
from gpusupervisor.health.self_check import LookAround, SelfCheck, nothing_around
from gpusupervisor.health.summary import status_line
from gpusupervisor.jobs import Report, Work
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import AutomaticSwitched, ConfigurationReloaded, ReloadRefused
from gpusupervisor.keepers.autotuner import Autotuner
from gpusupervisor.keepers.chronicle import Chronicle
from gpusupervisor.keepers.least_held import LeastHeld
from gpusupervisor.keepers.load_books import LoadBooks
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.keepers.model_keeper import ModelKeeper
from gpusupervisor.keepers.pace import Pace
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.models.unload import UnloadResult
from gpusupervisor.models.warm_plan import WarmStep
from gpusupervisor.observatory import Observatory
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.settings import Settings
from gpusupervisor.state import Check, EngineStatus, State
from gpusupervisor.telemetry.service import Telemetry
from gpusupervisor.tenants.activity.verdict import LIVELY
from gpusupervisor.tenants.census import Census
from gpusupervisor.tenants.examination import Examination
from gpusupervisor.tenants.hypothetical import Recognised, recognise
from gpusupervisor.world import LiveWorld, StopUnit

WAKING = 10.0
"""Seconds within which a GPU that was asked is awake."""
SETTLING = 5 * MICROSECONDS
"""After a change of activity it is looked often for this long: one change seldom comes alone."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What one tick has seen and decided."""

    seen: Seen
    situation: Situation
    assessments: dict[str, Assessment]

    @property
    def census(self) -> Census:
        """Whose memory is whose."""
        return self.seen.census


class Supervisor:
    """Ticks; publishes what it sees; acts; answers the bus."""

    def __init__(
        self,
        configuration: Configuration,
        load: Callable[[], Configuration],
        observatory: Observatory,
        http: EngineHttp,
        clock: Clock,
        automatic: AutomaticSwitch,
        announce: Callable[[Event], None],
        tasks: asyncio.TaskGroup,
        autotuner: Autotuner,
        controls: Callable[[], Controls] = Controls,
        look_around: LookAround = nothing_around,
        residency: ResidencyKeeper | None = None,
        telemetry: Telemetry | None = None,
        stop_unit: StopUnit | None = None,
    ) -> None:
        """load: reads the configuration anew (blocking). announce: tells the bus. tasks: where plans run.

        controls: tells what the helper controls. look_around: for the self-checks, dear and off the event loop.
        residency: knows what is in RAM of models' files. telemetry: None stores nothing.
        stop_unit: has the helper stop a tenant's unit.
        """
        self._configuration = configuration
        self._refused: tuple[str, ...] = ()
        """Problems of a configuration that was not taken over."""
        self._load = load
        self._controls = controls
        self._self_check = SelfCheck(clock, tasks.create_task, look_around)
        self._checks: tuple[Check, ...] = ()
        self._autotuner = autotuner
        self._observatory = observatory
        self._clock = clock
        self._automatic = automatic
        self._world = LiveWorld(observatory, http, self._situation_of, stop_unit)
        settings = configuration.settings
        self._announce = announce
        self._chronicle = Chronicle()
        self._telemetry = telemetry or Telemetry(None, telemetry_limits(settings), clock)
        self._residency = residency or ResidencyKeeper(clock, ModelFacts(self._telemetry))
        facts, counters = self._telemetry.facts, self._telemetry.counters
        spawn = tasks.create_task
        self._arbiter = Arbiter(self._world, clock, self._happened, spawn, settings.reservation, facts, counters)
        self._least = LeastHeld(self._telemetry, clock)
        books = LoadBooks(self._residency, self._telemetry)
        self._models = ModelKeeper(http, clock, self._world, self._arbiter, spawn, books, least=self._least.of)
        self._situation: Situation | None = None
        self._seen: Seen | None = None
        self._pace = Pace()
        self._examination = Examination()

    @property
    def settings(self) -> Settings:
        """Those in force."""
        return self._configuration.settings

    def before_first_tick(self) -> State:
        """What is shown before anything was looked at: the tenants, and that nothing is known of them."""
        seen = self._observatory.before_looking()
        situation = self._situation_of(seen)
        return self._state(seen, situation, assess(situation))

    async def tick(self) -> State:
        """Look, assess, act; returns what to publish."""
        return self.show(await self.judge())

    def show(self, judged: Judged) -> State:
        """What to publish of a tick."""
        state = self._state(judged.seen, judged.situation, judged.assessments)
        if self._automatic.on:
            self._models.reload_spilled(judged.seen, judged.situation)
        self._chronicle.observe(state)
        self._telemetry.observe(state)
        return state

    async def judge(self) -> Judged:
        """The part of a tick that decides and acts, without what is only shown."""
        self._pace.tick_begins()
        self._arbiter.count_on_from(self._telemetry.plans)
        seen = await self._observatory.look(needed=self._needs_driver())
        self._arbiter.credit_late(seen)
        situation = self._situation_of(seen)
        assessments = assess(situation)
        self._chronicle.assessed(situation, assessments, self._arbiter.history.swaps.thrashing(situation.now))
        assessments = self._arbiter.act(situation, assessments, automatic=self._automatic.on)
        self._seen, self._situation = seen, situation
        self._pace.looked(seen.now, {each.id: sum(each.holdings.values()) for each in situation.tenants.values()})
        judged = Judged(seen, situation, assessments)
        self._telemetry.learn(judged)
        return judged

    async def pause(self) -> None:
        """The last tick is published: wait until the next is due, sooner while something moves, at once when asked."""
        seen, moved = self._seen, None
        if seen is not None and self._may_fail_unseen(seen):
            moved = partial(self._observatory.moved, seen.sample)
        await self._pace.pause(self._interval(), moved)

    def plan_release(self, gpu: str, tenant: str, size: int) -> ReleasePlan:
        """Make a plan, do nothing; see `Controller`."""
        situation = self._require_gpus(self._situation)
        return make_plan(situation, interpret(situation, gpu, tenant, size), "preview")

    async def make_room(self, gpu: str, tenant: str, size: int) -> PlanResult:
        """Plan and carry out; see `Controller`."""
        await self._wake()
        situation = self._require_gpus(await self._world.look(""))
        request = interpret(situation, gpu, tenant, size)
        self._refuse_while_busy({request.gpu})
        plan = self._arbiter.plan(situation, request)
        if not plan.fits:
            raise WontFit(plan.summary)
        if not plan.sufficient and not plan.steps:
            raise Blocked(plan.summary)
        result = await self._carry_out(plan)
        if result.outcome != "satisfied":
            raise shortcoming(result)
        return result

    async def release(self, tenant: str) -> PlanResult:
        """Ask one tenant for all it can give back; see `Controller`."""
        situation = await self._world.look(tenant)
        require_tenant(situation, tenant)
        self._require_gpus(situation)
        self._refuse_while_busy(set(situation.tenants[tenant].holdings))
        plan = self._arbiter.plan_of_release(situation, tenant)
        if not plan.steps:
            reasons = {blocker.reason for blocker in plan.blockers}
            raise (Busy if "busy" in reasons else NotReclaimable)(plan.summary)
        result = await self._carry_out(plan)
        if result.outcome != "satisfied":
            raise shortcoming(result)
        return result

    def load_work(self, engine: str, model: str, needs: int) -> Work:
        """The work of having an engine load a model; see `Controller`."""
        if self._is_asleep:
            return partial(self._wake_and_load, engine, model, needs)
        self._require_gpus(self._situation)
        return partial(self._load_and_show, self._models.load_work(engine, model, needs), engine)

    async def _load_and_show(self, work: Work, engine: str, report: Report) -> object:
        """Load, and return only when what is published shows it."""
        result = await work(report)
        await self._world.look(engine)
        await self.shown()
        return result

    async def _wake_and_load(self, engine: str, model: str, needs: int, report: Report) -> object:
        """Whether the model fits can be told only of a GPU that is awake."""
        report(0, "waking the GPU")
        await self._wake()
        self._require_gpus(self._situation)
        return await self._load_and_show(self._models.load_work(engine, model, needs), engine, report)

    @property
    def _is_asleep(self) -> bool:
        """Every GPU is."""
        return self._seen is not None and self._seen.sample.driver.state == "asleep"

    async def _wake(self) -> None:
        """Wake the GPUs if all are asleep: looking does not, and somebody wants to use one."""
        if not self._is_asleep or not await self._observatory.wake():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(WAKING):
                while self._is_asleep:
                    await self.shown()

    async def unload_model(self, engine: str, model: str) -> UnloadResult:
        """Have an idle engine unload a model, and measure; see `Controller`."""
        result = await self._models.unload_model(engine, model)
        await self.shown()
        return result

    async def watch_least_for_ever(self) -> None:
        """Know in the background what tenants hold at the least."""
        await self._least.keep_up_for_ever(lambda: self._situation)

    async def close(self) -> None:
        """End what is under way in the background."""
        await self._models.close()

    async def autotune(self, gpu: str, wish: TuningWish) -> Work:
        """The work of a sweep, when it can be made now; see `Controller`."""
        await self._wake()
        situation = self._require_gpus(await self._world.look(wish.engine))
        assert self._seen is not None, "there are GPUs, so they were looked at"
        engines = self._observatory.engines(self._seen)
        engine = require_engine(engines, situation, self._arbiter.running, gpu, wish.engine)
        why = f"an autotune of {situation.gpus[gpu].name} is using it"
        return self._autotuner.work(gpu, wish, engine, partial(self._arbiter.using, engine.id, why))

    async def check(self) -> tuple[Check, ...]:
        """Run every self-check now; see `Controller`."""
        await asyncio.gather(self._self_check.look(), self._observatory.recheck_engines())
        await self.shown()
        return self._checks

    async def reload(self) -> None:
        """Read the configuration again; what is running is kept when it has errors. Raises InvalidConfiguration."""
        fresh = await asyncio.to_thread(self._load)
        if fresh.problems:
            self._refused = fresh.problems
            write(ReloadRefused(fresh.problems))
            await self.shown()
            raise InvalidConfiguration(
                f"The configuration was not reloaded; the previous one stays in force. {' '.join(fresh.problems)}"
            )
        self._refused = ()
        self._configuration = fresh
        self._observatory.use(fresh.catalog)
        self._arbiter.reservations.duration = fresh.settings.reservation
        self._automatic.configured = fresh.settings.automatic
        self._telemetry.use(telemetry_limits(fresh.settings))
        write(ConfigurationReloaded(len(fresh.catalog.definitions)))
        await self.shown()

    async def set_automatic(self, enabled: bool) -> None:
        """Act by itself, or only observe."""
        try:
            await asyncio.to_thread(self._automatic.set, enabled)
        except OSError as error:
            raise SupervisorError(f"The choice cannot be stored ({error.strerror}), so nothing was changed.") from error
        write(AutomaticSwitched("automatic" if enabled else "observe-only", "yes" if enabled else "no"))
        await self.shown()

    def abandon_plans(self) -> None:
        """Stop what is being carried out: nothing more is asked of anybody."""
        self._arbiter.abandon()
        self._self_check.close()

    def explain(self, tenant: str) -> str:
        """The effective definition, every value with its source."""
        return self._observatory.catalog.explain(tenant)

    def recognise(self, process: ProcessIdentity) -> Recognised | None:
        """Which tenant such a process would be."""
        return recognise(self._observatory.catalog, process)

    async def check_definition(self, name: str, text: str) -> tuple[str, ...]:
        """Problems of a tenant file that is not installed yet."""
        return await self._examination.of(name, text, self._configuration.catalog.layers)

    async def plan_warming(self) -> tuple[WarmStep, ...]:
        """Which models are worth reading into RAM; see `Warmer`."""
        return await self._residency.plan_warming()

    async def warm(self, tenant: str, model: str, rate: int) -> Work:
        """The work that reads a model into RAM; see `Warmer`."""
        return await self._residency.warm(tenant, model, rate)

    def _happened(self, event: Event) -> None:
        """Written before it is announced, and a plan before it is carried out."""
        self._chronicle.event(event)
        self._announce(event)

    def _situation_of(self, seen: Seen) -> Situation:
        return self._arbiter.situation(seen, self._configuration.settings.reserve)

    def _state(self, seen: Seen, situation: Situation, assessments: dict[str, Assessment]) -> State:
        controls = self._controls()
        engines = self._models.dress(self._observatory.engines(seen), seen, situation)
        self._residency.shared = any(gpu.shared for gpu in situation.gpus.values())
        engines = self._residency.engines(engines, seen.definitions, seen.activities)
        residencies = self._residency.residencies
        checks = self._checks = self._self_check.run(self._facts(seen, situation, engines, controls))
        automatic = self._automatic.on
        return State(
            sample=seen.sample,
            census=seen.census,
            situation=situation,
            definitions=seen.definitions,
            activities=seen.activities,
            assessments=assessments,
            engines=engines,
            residencies=residencies,
            checks=checks,
            controls=controls,
            automatic=automatic,
            status=status_line(seen.sample, seen.census, seen.activities, checks, automatic=automatic),
            running=dict(self._arbiter.running),
            counters=self._observatory.counters() | self._arbiter.counters.all(),
            cards=self._models.cards,
        )

    def _facts(
        self, seen: Seen, situation: Situation, engines: Mapping[str, EngineStatus], controls: Controls
    ) -> Facts:
        """The input of the self-checks."""
        reloaded = frozenset(t for t in situation.tenants if self._arbiter.history.was_reloaded(t, situation.now))
        return Facts(
            now=situation.now,
            sample=seen.sample,
            census=seen.census,
            situation=situation,
            definitions=seen.definitions,
            activities=seen.activities,
            engines=engines,
            controls=controls,
            sight=self._observatory.sight(),
            settings=self._configuration.settings,
            problems=self._configuration.problems,
            hints=self._configuration.catalog.hints,
            refused=self._refused,
            declaration_problems=self._observatory.declaration_problems(),
            users_declaration_problems=self._observatory.users_declaration_problems(),
            reloaded=reloaded,
            failures=self._arbiter.history.failures(),
            thrashing=self._arbiter.history.swaps.thrashing(situation.now),
            cards=self._models.cards,
            residencies=self._residency.residencies,
            telemetry=self._telemetry.status,
        )

    def _needs_driver(self) -> bool:
        """Whether somebody shows life, or memory is expected back."""
        lively = self._seen is None or any(activity.state in LIVELY for activity in self._seen.activities.values())
        return lively or self._arbiter.is_waiting

    def _may_fail_unseen(self, seen: Seen) -> bool:
        """Whether a load could fail between two ticks that would not have failed had somebody at rest been asked."""
        resting = {tenant for tenant, activity in seen.activities.items() if activity.state == "idle"}
        return seen.sample.driver.state == "ok" and any(
            sum(each.holdings.values()) >= WORTHWHILE for each in seen.census.tenants.values() if each.id in resting
        )

    def _interval(self) -> int:
        settings = self._configuration.settings
        if self._seen is None:
            return settings.interval
        if self._needs_driver():
            return self._pace.interval(self._seen.now, settings.interval)
        recently = self._seen.now - SETTLING
        changing = any(activity.since > recently for activity in self._seen.activities.values())
        return self._pace.interval(self._seen.now, settings.interval if changing else settings.idle_interval)

    async def _carry_out(self, plan: ReleasePlan) -> PlanResult:
        result = await self._arbiter.carry_out(plan)
        await self.shown()
        return result

    async def shown(self) -> None:
        """Wait until a tick that begins from now on is published: a caller sees at once what it has changed."""
        await self._pace.shown()

    def _require_gpus(self, situation: Situation | None) -> Situation:
        """The situation, when it has GPUs. Raises GpuUnavailable with the reason and what to do."""
        if situation is None or self._seen is None:
            raise GpuUnavailable("The driver has not answered yet: try again in a second.")
        if not situation.gpus:
            driver = self._seen.sample.driver
            what = driver.detail or f"the driver is {driver.state}"
            raise GpuUnavailable(" ".join(part for part in (f"No GPU can be read: {what}.", driver.remedy) if part))
        return situation

    def _refuse_while_busy(self, gpus: set[str]) -> None:
        for gpu in gpus & self._arbiter.running.keys():
            raise Busy(
                f"{self._arbiter.running[gpu].id} is being carried out on this GPU: try again when it has ended."
            )
