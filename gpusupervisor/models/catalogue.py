"""The catalogue: which models every engine has, fetched in the background and no more often than needed."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import NO_USERS, EngineHttp, Peer
from gpusupervisor.engine_http.keys import Header
from gpusupervisor.engines.model_apis.api import ModelApi
from gpusupervisor.engines.model_apis.door import Door
from gpusupervisor.engines.model_apis.known import capabilities, model_api, shortcomings
from gpusupervisor.engines.model_apis.listing import Ability, Listed, Listing
from gpusupervisor.models.model import Model, find_model
from gpusupervisor.models.needs import Needs

REFRESH = 300 * MICROSECONDS
"""Between two looks at an engine of which nothing else says that its models have changed."""
RETRY = 30 * MICROSECONDS
"""The same when part of the last answer was missing."""
SOONEST = 2 * MICROSECONDS
"""Between two looks at one engine at least, whatever happens; also between those while a model loads."""
MOVE = 64 << 20
"""Bytes by which an engine's holdings change when it has loaded or unloaded a model."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the catalogue must know of an engine that runs."""

    engine: str
    """Its kind."""
    endpoint: str
    reachable: bool
    detail: str
    """Why it is not reachable."""
    holdings: Mapping[str, int]
    """Bytes by GPU."""
    signs: object
    """What changes when it loads or unloads though no VRAM moves; compared only."""
    headers: tuple[Header, ...] = ()
    peer: Peer = NO_USERS
    """Its keys."""
    off: frozenset[str] = frozenset()
    """Its settings that are known to be off."""


@dataclass(frozen=True, slots=True)
class EngineModels:
    """What is known of one engine's models."""

    models: tuple[Model, ...] = ()
    problem: str = ""
    """Which parts are unknown, and why; empty when nothing is."""
    capabilities: tuple[Ability, ...] = ()
    limits: tuple[str, ...] = ()
    """What it cannot do, each with the reason: "load: it serves the one model …"."""

    def find(self, name: str) -> Model | None:
        """The model of that name; Ollama's ":latest" may be left out."""
        return find_model(self.models, name)

    def cannot(self, ability: Ability) -> str:
        """Why it cannot do something; empty when it can."""
        start = f"{ability}: "
        return next((limit.removeprefix(start) for limit in self.limits if limit.startswith(start)), "")


@dataclass(slots=True)
class _Entry:
    """One engine."""

    facts: EngineFacts
    api: ModelApi
    known: EngineModels
    looked_at: EngineFacts | None = None
    """What was true of it when it was last looked at; None: it must be looked at."""
    due_at: int = 0
    soonest: int = 0
    task: "asyncio.Task[Listing] | None" = None


class ModelCatalogue:
    """Of every engine. `follow` never waits for any of them."""

    def __init__(self, http: EngineHttp, clock: Clock, needs: Needs) -> None:
        self._http = http
        self._clock = clock
        self._needs = needs
        self._entries: dict[str, _Entry] = {}
        self._leaving: set[asyncio.Task[Listing]] = set()
        self._revision: object = None
        """Of the evidence that the needs in `known` rest on."""

    def follow(self, engines: Mapping[str, EngineFacts]) -> None:
        """Know of these engines and no others; look at those that are due."""
        for gone in self._entries.keys() - engines.keys():
            self._retire(self._entries.pop(gone))
        self._renew_needs()
        now = self._clock.now()
        for engine, facts in engines.items():
            entry = self._entries.get(engine)
            if entry is None or (entry.facts.engine, entry.facts.endpoint) != (facts.engine, facts.endpoint):
                entry = self._replaced(engine, facts)
            entry.facts = facts
            if not facts.reachable:
                entry.known, entry.looked_at = _out_of_reach(entry.known, facts.detail), None
            elif entry.task is None and now >= entry.soonest and (now >= entry.due_at or _moved(entry)):
                self._start(engine, entry)

    def of(self, engine: str) -> EngineModels:
        """What is known of an engine; the very same value for as long as nothing changes."""
        entry = self._entries.get(engine)
        return entry.known if entry else EngineModels()

    def api(self, engine: str) -> ModelApi:
        """How an engine is asked; of one that is unknown: an adapter that can do nothing."""
        entry = self._entries.get(engine)
        return entry.api if entry else model_api("")

    def door(self, engine: str) -> Door:
        """Where an engine is asked."""
        entry = self._entries.get(engine)
        return self._door(entry.facts) if entry else Door(self._http, "")

    async def look(self, engine: str) -> EngineModels:
        """Look now, after whatever look is under way; returns what is known then."""
        entry = self._entries.get(engine)
        if entry is None:
            return EngineModels()
        if entry.task is not None:
            await asyncio.wait({entry.task})
        if entry.task is None and self._entries.get(engine) is entry:
            self._start(engine, entry)
        if entry.task is not None:
            await asyncio.wait({entry.task})
        return self.of(engine)

    async def close(self) -> None:
        """End every look that is under way."""
        for entry in self._entries.values():
            self._retire(entry)
        self._entries.clear()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def _door(self, facts: EngineFacts) -> Door:
        return Door(self._http, facts.endpoint, facts.headers, facts.peer, facts.off)

    def _replaced(self, engine: str, facts: EngineFacts) -> _Entry:
        if engine in self._entries:
            self._retire(self._entries[engine])
        api = model_api(facts.engine)
        entry = _Entry(facts, api, EngineModels((), "not asked yet", *_abilities(api, Listing())))
        self._entries[engine] = entry
        return entry

    def _retire(self, entry: _Entry) -> None:
        if entry.task is not None:
            entry.task.cancel()
            self._leaving.add(entry.task)
            entry.task.add_done_callback(self._leaving.discard)

    def _start(self, engine: str, entry: _Entry) -> None:
        now = self._clock.now()
        entry.looked_at, entry.soonest, entry.due_at = entry.facts, now + SOONEST, now + REFRESH
        door = self._door(entry.facts)
        entry.task = asyncio.create_task(self._look(engine, entry, door), name=f"models of {engine}")
        entry.task.add_done_callback(lambda task: self._take(engine, entry, task))

    async def _look(self, engine: str, entry: _Entry, door: Door) -> Listing:
        outcome = (await asyncio.gather(entry.api.look(door), return_exceptions=True))[0]
        if isinstance(outcome, Exception):
            _LOG.error("the models of %s cannot be listed because of a bug", engine, exc_info=outcome)
            return Listing((), ("its models are unknown because of a bug in gpusupervisor",))
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def _take(self, engine: str, entry: _Entry, task: "asyncio.Task[Listing]") -> None:
        entry.task = None
        if task.cancelled() or not entry.facts.reachable:
            return
        listing = task.result()
        models = tuple(self._model(engine, entry, listed) for listed in listing.models)
        if not models and listing.problems:
            models = _unsure(entry.known.models)
        known = EngineModels(models, "; ".join(listing.problems), *_abilities(entry.api, listing))
        if known.problem:
            entry.due_at = min(entry.due_at, self._clock.now() + RETRY)
        if any(model.state == "loading" for model in known.models):
            entry.due_at = entry.soonest
        if known != entry.known:
            entry.known = known

    def _model(self, engine: str, entry: _Entry, listed: Listed) -> Model:
        self._needs.note(engine, listed.name, listed.wants)
        model = Model(
            name=listed.name,
            state=listed.state,
            size=listed.size,
            held=listed.held,
            spilled=listed.spilled,
            pinned=listed.pinned,
            remote=listed.remote,
            failed=listed.failed,
            context=listed.context,
            file=listed.file,
        )
        return self._with_need(engine, entry, model)

    def _renew_needs(self) -> None:
        """What was learned or forgotten, and files that were found, show at once and not only after the next look."""
        revision = self._needs.evidence.revision()
        if revision == self._revision:
            return
        self._revision = revision
        for engine, entry in self._entries.items():
            models = tuple(self._with_need(engine, entry, model) for model in entry.known.models)
            if models != entry.known.models:
                entry.known = replace(entry.known, models=models)

    def _with_need(self, engine: str, entry: _Entry, model: Model) -> Model:
        if model.remote:
            return model
        size = model.size
        if size is None and "load" not in entry.api.cannot:  # else room is never made for one model alone
            size = self._needs.evidence.size(engine, model.name)
        needs, source = self._needs.of(engine, model.name, size)
        return replace(model, needs=needs, needs_source=source)


def _abilities(api: ModelApi, listing: Listing) -> tuple[tuple[Ability, ...], tuple[str, ...]]:
    return capabilities(api, listing), tuple(f"{what}: {why}" for what, why in shortcomings(api, listing).items())


def _moved(entry: _Entry) -> bool:
    """Whether something says that it may have loaded or unloaded since the last look."""
    before, now = entry.looked_at, entry.facts
    if before is None or (before.signs, before.off) != (now.signs, now.off):
        return True
    gpus = before.holdings.keys() | now.holdings.keys()
    return any(abs(now.holdings.get(gpu, 0) - before.holdings.get(gpu, 0)) >= MOVE for gpu in gpus)


def _unsure(models: tuple[Model, ...]) -> tuple[Model, ...]:
    """The same models, of whose state nobody knows."""
    if all(model.state == "unknown" for model in models):
        return models
    return tuple(
        model if model.remote else replace(model, state="unknown", held=None, spilled=False, pinned=False, context=None)
        for model in models
    )


def _out_of_reach(known: EngineModels, detail: str) -> EngineModels:
    problem = detail or "it does not answer"
    models = _unsure(known.models)
    same = models is known.models and problem == known.problem
    return known if same else replace(known, models=models, problem=problem)
