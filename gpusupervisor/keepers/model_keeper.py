"""Keeps the models of every engine: catalogue and fits at each tick, loads and unloads on request."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Protocol

from gpusupervisor.arbitration.arbiter import Arbiter
from gpusupervisor.arbitration.compose import Seen
from gpusupervisor.arbitration.execute import World
from gpusupervisor.arbitration.plan import Request
from gpusupervisor.arbitration.request import shortcoming
from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import NO_USERS, EngineHttp, is_local
from gpusupervisor.engines.model_apis.listing import Ability, Reply
from gpusupervisor.errors import (
    Blocked,
    Busy,
    EngineUnreachable,
    GpuUnavailable,
    NoSuchEngine,
    NoSuchModel,
    NotSupported,
    SupervisorError,
)
from gpusupervisor.foreign_text import harmless, unknown_name
from gpusupervisor.jobs import Report, Work
from gpusupervisor.models.catalogue import EngineFacts, EngineModels, ModelCatalogue
from gpusupervisor.models.fit import Least, Manners, nothing_watched
from gpusupervisor.models.fit_book import CardFit, FitBook
from gpusupervisor.models.growth import GrowthWatch
from gpusupervisor.models.holders import not_held
from gpusupervisor.models.load import Load, LoadResult, require_ready, room_for
from gpusupervisor.models.model import Model
from gpusupervisor.models.needs import Evidence, Needs
from gpusupervisor.models.residency import ModelResidency
from gpusupervisor.models.spill import to_reload
from gpusupervisor.models.unload import UnloadResult, unload
from gpusupervisor.state import EngineStatus
from gpusupervisor.tenants.activity.verdict import LIVELY
from gpusupervisor.tenants.census import Census

LISTED = 10
"""Models or engines named in an error."""
SETTLING = 5 * MICROSECONDS
"""After a load of ours its engine counts as stirring, for its memory has grown: for as long as the slowest of its
probes calls that recent. So much longer is waited at the most."""
POLL = 0.2
"""Seconds between two looks meanwhile."""
WAIT_FOR_PLAN = 60.0
"""Seconds that a load waits for a plan that is being carried out on its GPU."""

_LOG = logging.getLogger(__name__)

Spawn = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


class Books(Evidence, Protocol):
    """Who is told of measured loads, and knows what they have taught."""

    async def before(self, engine: str, model: str) -> ModelResidency | None:
        """What is in RAM of a model's files right before it is loaded."""

    def note(self, result: LoadResult, files: ModelResidency | None) -> None:
        """A load was measured. files: as they were before it."""

    def measured(self, engine: str, model: Model, size: int) -> None:
        """A whole load took so many bytes of VRAM."""


class ModelKeeper:
    """Of one supervisor. Also the world in which loads and unloads are carried out."""

    def __init__(
        self,
        http: EngineHttp,
        clock: Clock,
        world: World,
        arbiter: Arbiter,
        spawn: Spawn,
        books: Books,
        least: Least = nothing_watched,
    ) -> None:
        """books: told of measured loads. least: what is known of tenants' least holdings."""
        self._clock = clock
        self._world = world
        self._arbiter = arbiter
        self._spawn = spawn
        self._books = books
        self._catalogue = ModelCatalogue(http, clock, Needs(books))
        self._growth = GrowthWatch()
        self._fits = FitBook(least)
        self._engines: Mapping[str, EngineStatus] = {}
        self._situation: Situation | None = None
        self._held: dict[str, Mapping[str, int]] = {}
        """By engine: what it held on each GPU when it was measured last."""
        self._reloaded: dict[str, dict[str, int]] = {}
        """By engine: when a spilled model of it was last unloaded, by name."""
        self._loaded_at: dict[str, int] = {}
        """By engine: when the last load of ours had ended."""
        self._recent: Mapping[str, int] = {}
        """By engine: microseconds for which its probes may go on calling it busy when it has come to rest."""
        self._tasks: set[asyncio.Task[None]] = set()

    # At each tick

    def dress(self, engines: Mapping[str, EngineStatus], seen: Seen, situation: Situation) -> dict[str, EngineStatus]:
        """The engines with what is known of their models; looks at those that are due in the background."""
        self._catalogue.follow({engine: _facts(status, seen) for engine, status in engines.items()})
        known = {engine: self._catalogue.of(engine) for engine in engines}
        self._fits.update(situation, {engine: (each, self._manners(engine)) for engine, each in known.items()})
        self._engines, self._situation = engines, situation
        specs = {engine: seen.definitions[engine].activity for engine in engines}
        self._recent = {
            engine: max((probe.idle_after for probe in spec.probes), default=0)
            for engine, spec in specs.items()
            if spec
        }
        self._learn_from_growth(known, situation)
        return {engine: self._dressed(status, known[engine], seen.census) for engine, status in engines.items()}

    @property
    def cards(self) -> Mapping[str, CardFit]:
        """What each GPU could ever offer to one more model."""
        return self._fits.cards

    def reload_spilled(self, seen: Seen, situation: Situation) -> None:
        """Unload idle models that spilled and would fit whole now, where their tenant wants that."""
        for engine, status in self._engines.items():
            if not seen.definitions[engine].reload_spilled or not status.reachable:
                continue
            tried = self._reloaded.setdefault(engine, {})
            for model in to_reload(situation, engine, self._catalogue.of(engine).models, tried)[:1]:
                tried[model.name] = situation.now
                task = self._spawn(self._reload(engine, model))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """End what is under way in the background."""
        for task in self._tasks:
            task.cancel()
        await self._catalogue.close()

    # On request

    def load_work(self, engine: str, name: str, needs: int) -> Work:
        """See `state.Controller`."""
        model = self._require(engine, name, "load")
        if needs:
            model = replace(model, needs=needs)
        if self._situation is None:
            raise GpuUnavailable("The driver has not answered yet: try again in a second.")
        if used_by := self._arbiter.used_by(engine):  # of this moment, not of the last tick
            raise Busy(f"{engine} is in use: {used_by}.")
        manners = self._manners(engine)
        if not self._is_settling(engine):
            require_ready(self._situation, engine, manners, self._catalogue.of(engine))
        room_for(self._situation, engine, model, manners)

        async def work(report: Report) -> LoadResult:
            with self._arbiter.using(engine, f"{harmless(model.name, 60)} is being loaded"):
                await self._settle(engine, lambda: report(0, "waiting until the engine is idle after the load before"))
                wanted = model
                if model.spilled and not self._catalogue.of(engine).cannot("unload"):
                    report(1, "unloading it first, because part of it is in system memory")
                    await unload(engine, model, self, self._clock)
                    wanted = replace(model, state="not-loaded", held=None, spilled=False)
                files = await self._books.before(engine, model.name)
                try:
                    result = await Load(engine, wanted, manners, self, self._clock).run(report)
                finally:
                    self._loaded_at[engine] = self._clock.now()
            if result.taken:  # else it was loaded already, and that it went fast teaches nothing
                self._books.note(result, files)
            await self._catalogue.look(engine)  # with what was learned of its need
            return result

        return work

    async def unload_model(self, engine: str, name: str) -> UnloadResult:
        """See `state.Controller`."""
        model = self._require(engine, name, "unload")
        with self._arbiter.using(engine, f"{harmless(model.name, 60)} is being unloaded"):
            await self._settle(engine)
            return await unload(engine, model, self, self._clock)

    # The world of loads and unloads

    async def look(self, engine: str) -> Situation:
        """See `Loader`."""
        situation = await self._world.look(engine)
        tenant = situation.tenants.get(engine)
        self._held[engine] = dict(tenant.holdings) if tenant else {}
        return situation

    async def measure(self, engine: str) -> Mapping[str, Measurement]:
        """See `Loader`."""
        gpus = tuple(self._situation.gpus) if self._situation else ()
        measured = await self._world.measure(engine, gpus)
        self._held[engine] = {gpu: seen.holding or 0 for gpu, seen in measured.items()}
        return measured

    async def make_room(self, request: Request) -> None:
        """See `Loader`."""
        try:
            async with asyncio.timeout(WAIT_FOR_PLAN):
                situation = await self._world.look("")
                while request.gpu in self._arbiter.running:  # another one may begin while we look
                    await self._arbiter.wait_for_plan(request.gpu)
                    situation = await self._world.look("")
        except TimeoutError:
            raise Busy("Other plans are still being carried out on this GPU: try again when they have ended.") from None
        plan = self._arbiter.plan(situation, request)
        if not plan.sufficient:
            raise Blocked(plan.summary)
        if plan.steps:
            result = await self._arbiter.carry_out(plan)
            if result.outcome != "satisfied":
                raise shortcoming(result)

    def keep_room(self, gpu: str, engine: str, size: int) -> None:
        """See `Loader`."""
        held = self._held.get(engine, {}).get(gpu, 0)
        self._arbiter.reservations.keep(gpu, engine, size, held, self._clock.now())

    async def list_models(self, engine: str) -> EngineModels:
        """See `Loader`."""
        return await self._catalogue.look(engine)

    async def load(self, engine: str, model: str) -> Reply:
        """See `Loader`."""
        return await self._catalogue.api(engine).load(self._catalogue.door(engine), model)

    async def unload(self, engine: str, model: str) -> Reply:
        """See `Loader`."""
        return await self._catalogue.api(engine).unload(self._catalogue.door(engine), model)

    def measured(self, engine: str, model: Model, size: int) -> None:
        """See `Loader`."""
        self._books.measured(engine, model, size)

    # Details

    def _learn_from_growth(self, known: Mapping[str, EngineModels], situation: Situation) -> None:
        """What engines load by themselves is a measurement too."""
        self._growth.keep_only(known.keys())
        for engine, each in known.items():
            held, free = _held_and_free(engine, situation)
            growth = self._growth.observe(engine, each.models, held, free, situation.now)
            if growth is not None:
                self._books.measured(engine, growth.model, growth.size)

    def _is_settling(self, engine: str) -> bool:
        ended = self._loaded_at.get(engine)
        return ended is not None and self._clock.now() - ended < SETTLING + self._recent.get(engine, 0)

    async def _settle(self, engine: str, tell: Callable[[], None] = lambda: None) -> None:
        """Wait until an engine shows no life of what we had it load; one that does something else goes on."""
        while self._is_settling(engine):
            tenant = (await self.look(engine)).tenants.get(engine)
            if tenant is None or tenant.activity not in LIVELY:
                return
            tell()
            await asyncio.sleep(POLL)

    def _manners(self, engine: str) -> Manners:
        api = self._catalogue.api(engine)
        return Manners(api.replaces, api.evicts)

    def _dressed(self, status: EngineStatus, known: EngineModels, census: Census) -> EngineStatus:
        ghosts = not_held(known.models, status.id, census) if is_local(status.endpoint) else ""
        return replace(
            status,
            models=known.models,
            fits=self._fits.fits(status.id),
            models_problem="; ".join(part for part in (known.problem, ghosts) if part),
            capabilities=known.capabilities,
            limits=known.limits,
        )

    def _require(self, engine: str, name: str, ability: Ability) -> Model:
        """The model, when its engine can be asked for that. Raises SupervisorError."""
        status, known = self._engines.get(engine), self._catalogue.of(engine)
        if status is None:
            raise NoSuchEngine(unknown_name("engine", engine, self._engines))
        if not status.reachable:
            raise EngineUnreachable(f"{engine} does not answer: {status.detail or 'it has not been asked yet'}.")
        if not is_local(status.endpoint):
            raise NotSupported(f"{engine} is on another machine, whose memory is not managed here.")
        if why := known.cannot(ability):
            raise NotSupported(f"{engine} cannot {ability} {harmless(name, 60)}: {why}.")
        model = known.find(name)
        if model is None:
            there = ", ".join(harmless(each.name, 60) for each in known.models[:LISTED])
            problem = f" ({known.problem})" if known.problem else ""
            raise NoSuchModel(
                f"{engine} has no model {harmless(name, 60)!r}{problem}. There are: {there or 'none'}"
                + (f" and {len(known.models) - LISTED} more." if len(known.models) > LISTED else ".")
            )
        if model.remote:
            raise NotSupported(f"{harmless(name, 60)} runs on another machine: there is nothing to {ability} here.")
        return model

    async def _reload(self, engine: str, model: Model) -> None:
        try:
            result = await self.unload_model(engine, model.name)
            _LOG.info("%s: %s had spilled and fits now; unloaded: %s", engine, harmless(model.name, 60), result.detail)
        except SupervisorError as error:
            _LOG.warning("%s: a model that spilled was not unloaded: %s", engine, error)


def _held_and_free(engine: str, situation: Situation) -> tuple[int | None, int]:
    """Bytes that an engine holds, and the least free on a GPU that it uses; None where that is not known for sure, or
    where something of ours has it load or unload."""
    tenant = situation.tenants.get(engine)
    if tenant is None or tenant.used_by or tenant.releasing or tenant.remote or tenant.unknown_on or tenant.orphan_on:
        return None, 0
    gpus = [situation.gpus.get(uuid) for uuid in tenant.holdings]
    if any(gpu is None or gpu.attribution_problem for gpu in gpus):
        return None, 0
    return sum(tenant.holdings.values()), min((gpu.free for gpu in gpus if gpu is not None), default=0)


def _facts(status: EngineStatus, seen: Seen) -> EngineFacts:
    presence, activity = seen.census.tenants.get(status.id), seen.activities.get(status.id)
    holdings = presence.holdings if presence else {}
    signs: tuple[object, ...] = ()
    if activity is not None:
        # Where no VRAM is held, none moves when a model comes or goes: what the probe says must do.
        signs = (activity.placement, activity.pinned, "" if holdings else activity.reason)
    headers, peer = (presence.headers, presence.peer) if presence else ((), NO_USERS)
    off = frozenset(setting.name for setting in status.settings if setting.value == "false")
    return EngineFacts(
        status.engine, status.endpoint, status.reachable, status.detail, holdings, signs, headers, peer, off
    )
