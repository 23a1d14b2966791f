"""The supervisor: composes the rooms, owns the tick, and is what the bus calls."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from gpusupervisor.arbitration.arbiter import Arbiter
from gpusupervisor.arbitration.assess import assess, home_gpu
from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.arbitration.events import Event
from gpusupervisor.arbitration.plan import Request, make_plan
from gpusupervisor.arbitration.situation import Assessment, PlanResult, ReleasePlan, Situation
from gpusupervisor.automatic import AutomaticSwitch
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.errors import (
    Blocked,
    Busy,
    Deferred,
    GpuUnavailable,
    InvalidArgument,
    InvalidConfiguration,
    NoSuchGpu,
    NoSuchTenant,
    NotReclaimable,
    ReleaseFailed,
    SupervisorError,
    WontFit,
)
from gpusupervisor.foreign_text import harmless
from gpusupervisor.health.checks import check_configuration, check_driver, check_gpus, check_tenants
from gpusupervisor.health.summary import status_line
from gpusupervisor.observatory import Observatory
from gpusupervisor.settings import Settings
from gpusupervisor.state import State
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.world import LiveWorld

SETTLING = 5 * MICROSECONDS
"""After a change of activity it is looked often for this long: one change seldom comes alone."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Configuration:
    """Everything that was read from files."""

    settings: Settings
    catalog: Catalog
    problems: tuple[str, ...]


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
    ) -> None:
        """load: reads the configuration anew (blocking). announce: tells the bus. tasks: where plans run."""
        self._configuration = configuration
        self._refused: tuple[str, ...] = ()
        """Problems of a configuration that was not taken over."""
        self._load = load
        self._observatory = observatory
        self._clock = clock
        self._automatic = automatic
        self._world = LiveWorld(observatory, http, self._situation_of)
        settings = configuration.settings
        self._arbiter = Arbiter(self._world, clock, announce, tasks.create_task, settings.reservation)
        self._situation: Situation | None = None
        self._seen: Seen | None = None
        self._hurry = asyncio.Event()

    def before_first_tick(self) -> State:
        """What is shown before anything was looked at: the tenants, and that nothing is known of them."""
        seen = self._observatory.before_looking()
        situation = self._situation_of(seen)
        return self._state(seen, situation, assess(situation))

    async def tick(self) -> State:
        """Look, assess, act; returns what to publish."""
        seen = await self._observatory.look(needed=self._needs_driver())
        self._arbiter.credit_late(seen)
        situation = self._situation_of(seen)
        automatic = self._automatic.on
        assessments = self._arbiter.act(situation, assess(situation), automatic=automatic)
        self._seen, self._situation = seen, situation
        return self._state(seen, situation, assessments)

    async def pause(self) -> None:
        """Wait until the next tick is due: sooner while something moves, at once when something was asked."""
        try:
            async with asyncio.timeout(self._interval() / MICROSECONDS):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    def plan_release(self, gpu: str, tenant: str, size: int) -> ReleasePlan:
        """Make a plan, do nothing; see `Controller`."""
        situation, request = self._request(gpu, tenant, size)
        return make_plan(situation, request, "preview")

    async def make_room(self, gpu: str, tenant: str, size: int) -> PlanResult:
        """Plan and carry out; see `Controller`."""
        situation, request = self._request(gpu, tenant, size)
        self._refuse_while_busy({request.gpu})
        plan = self._arbiter.plan(situation, request)
        if not plan.fits:
            raise WontFit(plan.summary)
        if not plan.sufficient and not plan.steps:
            raise Blocked(plan.summary)
        result = await self._arbiter.carry_out(plan)
        self._hurry.set()
        if result.outcome != "satisfied":
            raise _shortcoming(result)
        return result

    async def release(self, tenant: str) -> PlanResult:
        """Ask one tenant for all it can give back; see `Controller`."""
        self._known(tenant)
        situation = await self._world.look(tenant)
        if tenant not in situation.tenants:
            raise NotReclaimable(f"{tenant} is not running.")
        self._refuse_while_busy(set(situation.tenants[tenant].holdings))
        plan = self._arbiter.plan_of_release(situation, tenant)
        if not plan.steps:
            reasons = {blocker.reason for blocker in plan.blockers}
            raise (Busy if "busy" in reasons else NotReclaimable)(plan.summary)
        result = await self._arbiter.carry_out(plan)
        self._hurry.set()
        if result.steps[0].outcome not in ("freed", "partial"):
            raise _shortcoming(result)
        return result

    async def reload(self) -> None:
        """Read the configuration again; what is running is kept when it has errors. Raises InvalidConfiguration."""
        fresh = await asyncio.to_thread(self._load)
        self._hurry.set()
        if fresh.problems:
            self._refused = fresh.problems
            for problem in fresh.problems:
                _LOG.error("configuration: %s", problem)
            raise InvalidConfiguration(
                f"The configuration was not reloaded; what was running is kept. {' '.join(fresh.problems)}"
            )
        self._refused = ()
        self._configuration = fresh
        self._observatory.use(fresh.catalog)
        self._arbiter.reservations.duration = fresh.settings.reservation
        self._automatic.configured = fresh.settings.automatic
        _LOG.info("configuration reloaded: %d tenants are described", len(fresh.catalog.definitions))

    async def set_automatic(self, enabled: bool) -> None:
        """Act by itself, or only observe."""
        try:
            await asyncio.to_thread(self._automatic.set, enabled)
        except OSError as error:
            raise SupervisorError(f"The choice cannot be kept ({error.strerror}), so nothing was changed.") from error
        _LOG.info("now %s", "automatic" if enabled else "observe-only")
        self._hurry.set()

    def abandon_plans(self) -> None:
        """Stop what is being carried out: nothing more is asked of anybody."""
        self._arbiter.abandon()

    def explain(self, tenant: str) -> str:
        """The effective definition, every value with its source."""
        return self._configuration.catalog.explain(tenant)

    def check_definition(self, name: str, text: str) -> tuple[str, ...]:
        """Problems of a tenant file that is not installed yet."""
        return tuple(str(problem) for problem in self._configuration.catalog.check_text(name, text))

    def _situation_of(self, seen: Seen) -> Situation:
        return self._arbiter.situation(seen, self._configuration.settings.reserve)

    def _state(self, seen: Seen, situation: Situation, assessments: dict[str, Assessment]) -> State:
        reloaded = frozenset(t for t in situation.tenants if self._arbiter.history.was_reloaded(t, situation.now))
        checks = (
            check_driver(seen.sample),
            *check_gpus(seen.sample),
            *check_configuration(self._configuration.problems, self._refused),
            *check_tenants(situation, seen.activities, reloaded),
        )
        automatic = self._automatic.on
        return State(
            sample=seen.sample,
            census=seen.census,
            situation=situation,
            definitions=seen.definitions,
            activities=seen.activities,
            assessments=assessments,
            engines=self._observatory.engines(seen),
            checks=checks,
            automatic=automatic,
            status=status_line(seen.sample, seen.census, seen.activities, checks, automatic=automatic),
            running=dict(self._arbiter.running),
        )

    def _needs_driver(self) -> bool:
        """Whether somebody works, or memory is expected back."""
        busy = self._seen is None or any(activity.state == "busy" for activity in self._seen.activities.values())
        return busy or self._arbiter.is_waiting

    def _interval(self) -> int:
        settings = self._configuration.settings
        if self._seen is None or self._needs_driver():
            return settings.interval
        recently = self._seen.now - SETTLING
        changing = any(activity.since > recently for activity in self._seen.activities.values())
        return settings.interval if changing else settings.idle_interval

    def _request(self, gpu: str, tenant: str, size: int) -> tuple[Situation, Request]:
        situation = self._readable()
        beneficiary = None
        if tenant:
            self._known(tenant)
            beneficiary = situation.tenants.get(tenant)
        need = size or (beneficiary.need if beneficiary else None)
        if not need:
            raise InvalidArgument(
                f"Nobody knows what {tenant} needs: say how many bytes, or set its needs-vram."
                if tenant
                else "Say how many bytes shall be free, or for which tenant."
            )
        if gpu and gpu not in situation.gpus:
            raise NoSuchGpu(f"No GPU with UUID {harmless(gpu, 64)!r} can be read. {_list_gpus(situation)}")
        if not gpu and beneficiary is None and len(situation.gpus) > 1:
            raise NoSuchGpu(f"There are several GPUs: name one. {_list_gpus(situation)}")
        chosen = gpu or (home_gpu(situation, beneficiary) if beneficiary else next(iter(situation.gpus)))
        return situation, Request("make-room", chosen, tenant, need)

    def _readable(self) -> Situation:
        """The situation of the last tick. Raises GpuUnavailable while no GPU can be read."""
        if self._situation is None or self._seen is None:
            raise GpuUnavailable("The driver has not answered yet: try again in a second.")
        if not self._situation.gpus:
            driver = self._seen.sample.driver
            what = driver.detail or f"the driver is {driver.state}"
            raise GpuUnavailable(" ".join(part for part in (f"No GPU can be read: {what}.", driver.remedy) if part))
        return self._situation

    def _known(self, tenant: str) -> None:
        if self._seen is None or tenant not in self._seen.definitions:
            known = ", ".join(sorted(self._seen.definitions)[:20]) if self._seen else ""
            raise NoSuchTenant(f"No tenant is called {harmless(tenant, 64)!r}. There are: {known}.")

    def _refuse_while_busy(self, gpus: set[str]) -> None:
        for gpu in gpus & self._arbiter.running.keys():
            raise Busy(
                f"{self._arbiter.running[gpu].id} is being carried out on this GPU: try again when it has ended."
            )


def _shortcoming(result: PlanResult) -> SupervisorError:
    """The error for a plan that did not bring what was asked."""
    outcomes = {step.outcome for step in result.steps}
    told = result.detail[:1].upper() + result.detail[1:]
    if outcomes & {"refused", "failed"}:
        return ReleaseFailed(told)
    if "pending" in outcomes:
        return Deferred(told)
    if outcomes == {"skipped"}:
        return NotReclaimable(told)
    return ReleaseFailed(told)


def _list_gpus(situation: Situation) -> str:
    return "There are: " + ", ".join(f"{gpu.uuid} ({gpu.name})" for gpu in situation.gpus.values()) + "."
