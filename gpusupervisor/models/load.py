"""Loading a model: room first, then the engine, then what was really taken, as NVML measures it."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpusupervisor.arbitration.plan import Request
from gpusupervisor.arbitration.situation import ReleasePlan, Situation, TenantSituation
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engines.model_apis.listing import Reply
from gpusupervisor.errors import Blocked, Busy, GpuUnavailable, LoadFailed, SupervisorError, WontFit
from gpusupervisor.foreign_text import harmless
from gpusupervisor.models.catalogue import EngineModels
from gpusupervisor.models.fit import Manners, beside_its_own, best_plan, ceiling_of, too_large
from gpusupervisor.models.holders import holders_on
from gpusupervisor.models.model import Model
from gpusupervisor.quantities import format_bytes

POLL = 0.2
"""Seconds between two measurements while a model loads."""
LIST_EVERY = 1.0
"""Seconds between two looks at the engine's list while it loads in the background."""
SETTLE = 5.0
"""Seconds within which a load that the engine calls done shows in its list."""
PATIENCE = 900.0
"""Seconds that a load in the background may take."""
SILENCE = 30.0
"""Seconds for which an engine may tell nothing of a model that it loads in the background."""
CLEANING_UP = 15.0
"""Seconds that the engine has to unload what a cancelled load had begun."""
MORE = 4
"""After out-of-memory, room for a quarter more than the model was thought to need is made."""
NEARLY_NOTHING = 512 << 20
"""Bytes: with less free, a load that failed probably ran out of memory. A CUDA context alone takes so much."""

_LOG = logging.getLogger(__name__)


class Report(Protocol):
    """How far it has come; see `jobs.Report`."""

    def __call__(self, progress: int, detail: str, result: object = None) -> None:
        """progress: percent."""


class Loader(Protocol):
    """What a load may do to the world."""

    async def look(self, engine: str) -> Situation:
        """The situation, measured now, with a fresh look at the engine's activity."""

    async def measure(self, engine: str) -> Mapping[str, Measurement]:
        """Every GPU now, as far as the engine goes. Raises GpuUnavailable."""

    async def make_room(self, request: Request) -> None:
        """Have a plan made and carried out. Raises SupervisorError when it does not bring enough."""

    def keep_room(self, gpu: str, engine: str, size: int) -> None:
        """So many bytes are the engine's from now on, for a while; 0: nothing is kept for it any more."""

    async def list_models(self, engine: str) -> EngineModels:
        """What the engine says of its models now."""

    async def load(self, engine: str, model: str) -> Reply:
        """Ask the engine."""

    async def unload(self, engine: str, model: str) -> Reply:
        """Ask the engine."""

    def measured(self, engine: str, model: Model, size: int) -> None:
        """A whole load took so many bytes of VRAM."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load really took."""

    engine: str
    model: str
    gpu: str
    """Where most of it is."""
    taken: int
    """Bytes of VRAM by which the engine has grown, on all GPUs."""
    duration: int
    """Microseconds from the request to its end, without the time that making room took."""
    spilled: bool
    """Part of it is in system memory all the same."""
    retried: bool
    """The engine was out of memory at first."""

    @property
    def speed(self) -> int:
        """Bytes per second."""
        return self.taken * MICROSECONDS // max(1, self.duration)


@dataclass(slots=True)
class _Attempt:
    """What was measured while the engine tried."""

    gpu: str
    needs: int | None
    gives_way: bool
    """What the engine held before may make room for the model."""
    before: Mapping[str, Measurement]
    started: int
    grown: dict[str, int] = field(default_factory=dict)
    least_free: int | None = None
    """On the GPU."""
    short: bool = False
    """Next to nothing was free there at some time, or less than the model still needed."""
    duration: int = 0
    reply: Reply = field(default_factory=lambda: Reply("failed"))

    def note(self, now: Mapping[str, Measurement]) -> None:
        """One measurement."""
        held = {gpu: now[gpu].holding or 0 for gpu in self.before if gpu in now}
        self.grown = {gpu: max(0, size - (self.before[gpu].holding or 0)) for gpu, size in held.items()}
        if self.gpu not in now:
            return
        free = now[self.gpu].free
        self.least_free = free if self.least_free is None else min(free, self.least_free)
        own = held if self.gives_way else self.grown
        missing = (self.needs or 0) - sum(own.values())
        self.short |= free < NEARLY_NOTHING or missing - free >= WORTHWHILE

    @property
    def ran_out(self) -> bool:
        """Whether it was out of memory: the engine says so, or says only that it failed, and memory was short."""
        return self.reply.outcome == "out-of-memory" or (self.reply.outcome == "failed" and self.short)

    @property
    def failure(self) -> str:
        """What the engine said, and what was measured where it said no more than that it failed; may be empty."""
        if self.reply.outcome != "failed" or self.least_free is None:
            return self.reply.detail
        return f"{self.reply.detail or 'it gave no reason'}, with {format_bytes(self.least_free)} of VRAM free"


class Load:
    """One model being loaded by one engine."""

    def __init__(self, engine: str, model: Model, manners: Manners, loader: Loader, clock: Clock) -> None:
        """The model's need may be unknown: then no room is made before its engine says that it has none."""
        self._engine = engine
        self._model = model
        self._manners = manners
        self._loader = loader
        self._clock = clock
        self._others: frozenset[str] = frozenset()

    async def run(self, report: Report) -> LoadResult:
        """Load. Raises SupervisorError. What was begun when it is cancelled is unloaded again."""
        situation = await self._loader.look(self._engine)
        known = await self._loader.list_models(self._engine)
        require_ready(situation, self._engine, self._manners, known)
        plan = room_for(situation, self._engine, self._model, self._manners)
        self._others = self._beside(known)
        gpu = plan.gpu
        try:
            await self._make_room(plan, report)
            attempt = await self._attempt(gpu, report)
            retried = attempt.ran_out
            if retried:
                report(5, f"{self._out_of_memory(attempt)}: making more room for a second try")
                await self._make_more_room(gpu)
                attempt = await self._attempt(gpu, report)
            await self._judge(attempt, retried=retried)
            return await self._result(attempt, retried=retried)
        finally:
            self._loader.keep_room(gpu, self._engine, 0)

    async def _make_room(self, plan: ReleasePlan, report: Report) -> None:
        if self._model.needs is None:
            return
        if plan.steps:
            report(1, f"making room: asking {', '.join(step.tenant for step in plan.steps)} to release memory")
            request = Request("make-room", plan.gpu, self._engine, plan.need, plan.rank)
            await self._loader.make_room(request)
        self._loader.keep_room(plan.gpu, self._engine, self._model.needs)

    async def _make_more_room(self, gpu: str) -> None:
        """Once, as much more as can be had: what was thought to be needed was too little, or somebody was faster."""
        situation = await self._loader.look(self._engine)
        if gpu not in situation.gpus or self._engine not in situation.tenants:
            return
        held = sum(situation.tenants[self._engine].holdings.values())
        needs = self._model.needs or 0
        everything = best_plan(
            situation, self._engine, gpu, _needing(self._model, needs + needs // MORE), self._manners
        )
        reach = held + max(0, situation.available(gpu, self._engine)) + everything.reclaimable
        need = min(everything.need, reach) if needs else reach
        request = Request("make-room", gpu, self._engine, need, everything.rank)
        if request.need > held + situation.available(gpu, self._engine):
            try:
                await self._loader.make_room(request)
            except SupervisorError as error:
                _LOG.warning("no more room could be made for %s: %s", self._engine, error)
        self._loader.keep_room(gpu, self._engine, request.need - held)

    async def _attempt(self, gpu: str, report: Report) -> _Attempt:
        before = await self._loader.measure(self._engine)
        gives_way = self._manners.replaces or self._manners.evicts
        attempt = _Attempt(gpu, self._model.needs, gives_way, before, self._clock.now())
        attempt.note(before)
        work = asyncio.ensure_future(self._ask())
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=POLL)
                attempt.note(await self._loader.measure(self._engine))
                self._tell(attempt, report)
            attempt.reply = work.result()
            attempt.duration = self._clock.now() - attempt.started
            if attempt.reply.outcome == "done":
                attempt.note(await self._loader.measure(self._engine))
        except BaseException:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            await asyncio.shield(self._clean_up())
            raise
        return attempt

    async def _ask(self) -> Reply:
        """The engine's answer, waited for to its end."""
        reply = await self._loader.load(self._engine, self._model.name)
        if reply.outcome == "started":
            return await self._follow()
        if reply.outcome == "done" and not await self._is_listed_soon():
            return Reply("failed", "it says that it is done, but does not list it as loaded")
        return reply

    async def _follow(self) -> Reply:
        """Wait for the end of a load that goes on in the background."""
        try:
            async with asyncio.timeout(PATIENCE):
                loading, told_at = False, self._clock.now()
                while True:
                    known, now = await self._loader.list_models(self._engine), self._clock.now()
                    model = known.find(self._model.name)
                    state = model.state if model else "unknown"
                    if state == "loaded":
                        return Reply("done")
                    if model and state == "not-loaded" and (loading or model.failed):
                        return Reply("failed", model.failed or "it stopped loading without giving a reason")
                    if state != "unknown":
                        told_at = now
                    elif now - told_at >= SILENCE * MICROSECONDS:
                        return Reply("failed", known.problem or "it no longer lists it")
                    loading |= state == "loading"
                    await asyncio.sleep(LIST_EVERY)
        except TimeoutError:
            return Reply("failed", f"it has not loaded it within {PATIENCE:.0f} s")

    async def _is_listed_soon(self) -> bool:
        """An engine's word is not proof, but its list names the model soon when it is true."""
        deadline = self._clock.now() + int(SETTLE * MICROSECONDS)
        while True:
            known = await self._loader.list_models(self._engine)
            model = known.find(self._model.name)
            if known.cannot("resident") or (model is not None and model.state in ("loaded", "unknown")):
                return True
            if self._clock.now() >= deadline:
                return model is None or model.state != "not-loaded"
            await asyncio.sleep(POLL)

    def _tell(self, attempt: _Attempt, report: Report) -> None:
        size, needs = sum(attempt.grown.values()), self._model.needs
        self._loader.keep_room(attempt.gpu, self._engine, max(0, (needs or 0) - size))
        if needs:
            report(10 + min(85, 85 * size // needs), f"{format_bytes(size)} of about {format_bytes(needs)} are loaded")
        else:
            report(10, f"{format_bytes(size)} are loaded")

    async def _clean_up(self) -> None:
        """What was begun at the engine is unloaded again, if it can; what was loaded before stays."""
        if self._model.state == "loaded" and not self._model.spilled:
            return
        known = await self._loader.list_models(self._engine)
        if known.cannot("unload"):
            return
        try:
            async with asyncio.timeout(CLEANING_UP):
                await self._loader.unload(self._engine, self._model.name)
        except TimeoutError:
            return

    def _out_of_memory(self, attempt: _Attempt) -> str:
        if attempt.reply.outcome == "out-of-memory":
            return f"{self._engine} is out of memory"
        return f"{self._engine} failed, probably for lack of memory ({attempt.failure})"

    async def _judge(self, attempt: _Attempt, *, retried: bool) -> None:
        """Raises when the model is not loaded."""
        if attempt.reply.outcome == "done":
            return
        name = harmless(self._model.name, 60)
        said = f": {attempt.failure}" if attempt.failure else ""
        if not attempt.ran_out:
            again = " on the second try" if retried else ""
            raise LoadFailed(f"{self._engine} did not load {name}{again}{said}.")
        holders = holders_on(await self._loader.look(self._engine), attempt.gpu)
        if attempt.reply.outcome == "out-of-memory":
            raise Blocked(f"{self._engine} was out of memory twice while loading {name}{said}. {holders}")
        raise Blocked(f"{self._engine} failed twice to load {name}, probably for lack of memory{said}. {holders}")

    async def _result(self, attempt: _Attempt, *, retried: bool) -> LoadResult:
        known = await self._loader.list_models(self._engine)
        model = known.find(self._model.name)
        spilled = model is not None and model.spilled
        taken = sum(attempt.grown.values())
        if taken and not spilled and self._others == self._beside(known):
            self._loader.measured(self._engine, model or self._model, taken)
        where = max(attempt.grown, key=lambda uuid: attempt.grown[uuid], default=attempt.gpu)
        return LoadResult(self._engine, self._model.name, where, taken, attempt.duration, spilled, retried)

    def _beside(self, known: EngineModels) -> frozenset[str]:
        """Its other models that are loaded: when they are the same afterwards, what it grew by is this model's."""
        loaded = (model.name for model in known.models if model.state != "not-loaded" and not model.remote)
        return frozenset(loaded) - {self._model.name}


def require_ready(situation: Situation, engine: str, manners: Manners, known: EngineModels) -> None:
    """Raises Busy when a load would disturb what the engine does, or might. known: its models.

    An engine that lists its models, has none loaded, and holds no VRAM has nothing that could be interrupted.
    """
    tenant = situation.tenants.get(engine)
    if tenant is None:
        raise GpuUnavailable(f"{engine} is gone.")
    if tenant.activity in ("busy", "claimed", "stirring", "stuck"):
        raise Busy(f"{engine} is {tenant.activity}, so nothing is loaded: {tenant.activity_reason}.")
    if manners.replaces and tenant.activity != "idle" and not _is_empty(tenant, known):
        raise Busy(
            f"It is unknown whether {engine} is working, and a load could interrupt it: {tenant.activity_reason}."
        )


def _is_empty(tenant: TenantSituation, known: EngineModels) -> bool:
    holds = any(tenant.holdings.values()) or bool(tenant.unknown_on)
    is_listed = not known.problem and not known.cannot("resident")
    return not holds and is_listed and all(model.state == "not-loaded" or model.remote for model in known.models)


def room_for(situation: Situation, engine: str, model: Model, manners: Manners) -> ReleasePlan:
    """The plan that makes room for a model on the best GPU; nothing is done.

    Raises GpuUnavailable, WontFit with the arithmetic, Blocked with who is in the way.
    """
    if not situation.gpus or engine not in situation.tenants:
        raise GpuUnavailable("No GPU can be read at the moment: try again later.")
    name = harmless(model.name, 60)
    wanted = _needing(model, model.needs or 0)
    limits = {uuid: ceiling_of(situation, uuid) for uuid in situation.gpus}
    possible = [uuid for uuid, ceiling in limits.items() if (model.needs or 0) <= ceiling.limit]
    if not possible:
        largest = max(limits.values(), key=lambda ceiling: ceiling.limit)
        raise WontFit(f"{name} will not fit: {too_large(model.needs or 0, largest)}.")
    held = situation.tenants[engine].holdings
    plans = [best_plan(situation, engine, uuid, wanted, manners) for uuid in possible]
    best = min(plans, key=lambda plan: (not plan.sufficient, -held.get(plan.gpu, 0), len(plan.steps), plan.shortfall))
    if not best.sufficient and model.needs is not None:
        if not best.fits:
            why = f"needs {format_bytes(model.needs)}; {beside_its_own(engine, situation.gpus[best.gpu].name)}"
            raise Blocked(f"There is no room for {name}, which {why}.")
        raise Blocked(f"There is no room for {name}. {best.summary}")
    return best


def _needing(model: Model, needs: int) -> Model:
    return Model(model.name, model.state, needs=needs, held=model.held, spilled=model.spilled)
