"""Telemetry as the rest of the service knows it: told what is seen and what happens, and asked."""

import asyncio
import contextlib
import functools
import statistics
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol

from gpusupervisor.arbitration.counters import Counters
from gpusupervisor.arbitration.events import Event
from gpusupervisor.arbitration.learned import KINDS, Fact, FactKind, LearnedFacts, Measured, by_day
from gpusupervisor.clock import UNKNOWN, Clock
from gpusupervisor.errors import Busy, InvalidArgument, NotSupported
from gpusupervisor.jobs import Job
from gpusupervisor.state import State
from gpusupervisor.telemetry import happenings
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.decisions import Decisions
from gpusupervisor.telemetry.downsample import SeriesPoint
from gpusupervisor.telemetry.gather import Gatherer
from gpusupervisor.telemetry.needs import Look, NeedLearner
from gpusupervisor.telemetry.questions import read_events, read_least, read_points, read_series
from gpusupervisor.telemetry.reader import Reader
from gpusupervisor.telemetry.records import (
    EVENT_KINDS,
    GPU_SERIES,
    TENANT_SERIES,
    Load,
    Recalled,
    Series,
    Span,
    StoredEvent,
    TelemetryEvent,
    countable,
)
from gpusupervisor.telemetry.status import StoreStatus
from gpusupervisor.telemetry.store import Store

FILE = "telemetry.sqlite"
MOST_POINTS = 2000
MOST_EVENTS = 1000
FORGET_PATIENCE = 5.0
"""Seconds to wait for the disk."""
LOADS = 8
"""Of the last so many loads the median speed counts, so that one odd load changes little."""
MODELS = 256
"""Of so many models of one tenant the need and the use are known."""
NOWHERE = "there is no state directory (systemd's StateDirectory=), so nothing is stored"


class TelemetryAnswers(Protocol):
    """What may be asked. Times are realtime microseconds. Every method raises SupervisorErrors only."""

    async def query(self, series: Series, start: int, end: int, points: int) -> list[SeriesPoint]:
        """A series over start <= t < end in at most so many points; start 0: the beginning, end 0: now."""

    async def series(self) -> list[Span]:
        """What there is."""

    async def events(self, start: int, end: int, kind: str, limit: int) -> list[StoredEvent]:
        """The last events of a time, the newest first; kind "": all, limit 0: as many as are allowed."""

    def learned(self) -> tuple[Fact, ...]:
        """Everything that was learned."""

    def is_stored(self, fact: Fact) -> bool:
        """Whether a fact is on the disk."""

    async def forget(self, tenant: str, kind: str) -> int:
        """Forget one kind ("": all) of what was learned of a tenant; returns how much that was."""


class Telemetry:
    """Of one event loop. Without a directory everything but storing works."""

    def __init__(self, directory: Path | None, limits: Limits, clock: Clock) -> None:
        self.facts = LearnedFacts(clock.realtime, self._keep)
        self.recalled = asyncio.Event()
        """What an earlier life of the service left is known now; never set while it cannot be read."""
        self.plans = 0
        """Number of the last plan of an earlier life."""
        self._clock = clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._store = Store(directory / FILE, limits, self._recalled_in_thread) if directory else None
        self._reader = Reader(self._store.path, self._store.suspect) if self._store else None
        self._unstored: dict[object, Future[None]] = {}
        self._gatherer = Gatherer()
        self.counters = Counters()
        """Of the branches that decisions take, what is learned among them."""
        self._needs = NeedLearner(self.facts, self._erase, self.counters)
        self._changes = happenings.Changes()
        self._decisions = Decisions()

    def start(self) -> None:
        """Begin to store; never waits for the disk."""
        self._loop = asyncio.get_running_loop()
        if self._store is None:
            self.recalled.set()
        else:
            self._store.start()

    async def close(self) -> None:
        """Write what waits."""
        if self._store is not None and self._reader is not None and self._loop is not None:
            if rest := self._decisions.rest(self._now()):
                self._store.put_event(rest)
            await self._reader.close()
            await asyncio.to_thread(self._store.close)

    def use(self, limits: Limits) -> None:
        """Keep by other limits from now on."""
        if self._store is not None:
            self._store.limits = limits

    @property
    def status(self) -> StoreStatus:
        """How the store is."""
        return self._store.status if self._store else StoreStatus("off", detail=NOWHERE)

    # Told

    def learn(self, look: Look) -> None:
        """What can be learned from one look."""
        if self.recalled.is_set():
            self._needs.observe(look, self._clock.realtime(look.situation.now))

    def observe(self, state: State) -> None:
        """One look: figures, and what has changed."""
        if self._store is None:
            return
        at = self._clock.realtime(state.situation.now)
        if points := self._gatherer.points(state, at):
            self._store.put_points(points)
        for event in self._changes.events(state, at):
            self._store.put_event(event)
        if counted := self._decisions.observe(state.counters, at):
            self._store.put_event(counted)

    def note(self, event: Event) -> None:
        """Something happened to a plan."""
        self._put(happenings.of_plan(event, self._now()))

    def note_job(self, job: Job) -> None:
        """Long work began or ended."""
        if job.state != "running" or not job.progress:
            self._put(happenings.of_job(job, self._now()))

    def note_drift(self, gpu: str, item: str, state: str, details: Mapping[str, object]) -> None:
        """A setting of a GPU is "drifted", "repaired" or "contested", or its drift has "ended"."""
        self._put(happenings.of_drift(gpu, item, state, details, self._now()))

    def note_load(self, load: Load) -> None:
        """A model was loaded: how fast, where it came from."""
        self._put(happenings.of_load(load, self._now()))

    def learn_speed(self, tenant: str, kind: FactKind, speed: int) -> None:
        """A load went so fast. kind: "load-cold" or "load-warm"; speed: bytes per second."""
        at, known = self._now(), self.facts.get(kind, tenant)
        evidence = (*(known.evidence if known else ()), Measured(at, speed))[-LOADS:]
        median = int(statistics.median(each.value for each in evidence))
        source = "its last load" if len(evidence) == 1 else f"the median of its last {len(evidence)} loads"
        self.facts.learn(Fact(kind, tenant, "", median, at, source, evidence=evidence))

    def learn_model_need(self, tenant: str, model: str, size: int, context: int | None) -> None:
        """A whole load of a model took so many bytes of VRAM, with so many tokens of context where that is known."""
        source = "what its last load took" + (f", with {context} tokens of context" if context else "")
        self._learn_of_model(Fact("model-need", tenant, "", size, self._now(), source, model=model))

    def learn_model_use(self, tenant: str, model: str, *, begins: bool) -> None:
        """A model is loaded from now on, or was until now."""
        known = self.facts.get("model-use", tenant, model=model)
        times = (known.value if known else 0) + begins
        source = "how often its engine's list was seen to name it as loaded"
        now = self._now()
        days = by_day((*(known.evidence if known else ()), Measured(now, times)))
        self._learn_of_model(Fact("model-use", tenant, "", times, now, source, evidence=days, model=model))

    def _learn_of_model(self, fact: Fact) -> None:
        """Of a limited number of models; those of which nothing was learned for the longest time are forgotten."""
        self.facts.learn(fact)
        for old in self.facts.of_kind(fact.kind, fact.tenant)[:-MODELS]:
            self.facts.drop(old)
            self._erase(old)

    def _put(self, event: TelemetryEvent) -> None:
        if self._store is not None:
            self._store.plans = max(self._store.plans, happenings.plan_number(event.plan))
            self._store.put_event(event)

    def _keep(self, fact: Fact) -> None:
        if self._store is not None:
            self._unstored[fact.key] = self._store.put_fact(fact.key, fact)

    def _erase(self, fact: Fact) -> "Future[None] | None":
        self._unstored.pop(fact.key, None)
        return self._store.put_fact(fact.key, None) if self._store is not None else None

    def _now(self) -> int:
        return self._clock.realtime(self._clock.now())

    # Recalled

    def _recalled_in_thread(self, found: Recalled) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._recall, found)

    def _recall(self, found: Recalled) -> None:
        self.facts.recall(found.facts)
        self.plans = max(self.plans, found.plans)
        self.recalled.set()

    # Asked

    async def query(self, series: Series, start: int, end: int, points: int) -> list[SeriesPoint]:
        """See `TelemetryAnswers`."""
        _check_series(series)
        if not 1 <= points <= MOST_POINTS:
            raise InvalidArgument(f"count is {points}; allowed: 1 to {MOST_POINTS}")
        start, end = self._range(start, end)
        return await self._asked().ask(
            functools.partial(read_points, series=series, start=start, end=end, count=points)
        )

    async def series(self) -> list[Span]:
        """See `TelemetryAnswers`."""
        return await self._asked().ask(read_series)

    async def events(self, start: int, end: int, kind: str, limit: int) -> list[StoredEvent]:
        """See `TelemetryAnswers`."""
        if kind and kind not in EVENT_KINDS:
            raise InvalidArgument(
                f"There is no kind of events {kind[:64]!r}; allowed: {', '.join(EVENT_KINDS)}, or none"
            )
        if limit > MOST_EVENTS:
            raise InvalidArgument(f"limit is {limit}; allowed: 1 to {MOST_EVENTS}, or 0 for {MOST_EVENTS}")
        start, end = self._range(start, end)
        return await self._asked().ask(
            functools.partial(read_events, start=start, end=end, kind=kind, limit=limit or MOST_EVENTS)
        )

    async def least_held(self, tenant: str, gpu: str, since: int) -> int | None:
        """The least that a tenant was seen to hold on a GPU since a time; None when nothing is stored of it."""
        return await self._asked().ask(
            functools.partial(read_least, series=Series("holding", gpu, tenant), since=countable(since))
        )

    def learned(self) -> tuple[Fact, ...]:
        """See `TelemetryAnswers`."""
        return self.facts.all()

    def is_stored(self, fact: Fact) -> bool:
        """See `TelemetryAnswers`."""
        if self._store is None:
            return False
        pending = self._unstored.get(fact.key)
        return pending is None or (pending.done() and not pending.cancelled())

    async def forget(self, tenant: str, kind: str) -> int:
        """See `TelemetryAnswers`."""
        wanted = next((each for each in KINDS if each == kind), None)
        if kind and wanted is None:
            raise InvalidArgument(f"Nothing of the kind {kind[:64]!r} is learned; allowed: {', '.join(KINDS)}, or none")
        if not self.recalled.is_set():
            raise Busy("What was learned earlier has not been read yet; the check telemetry says why if it takes long.")
        gone = self.facts.forget(tenant, wanted)
        if wanted in (None, "need", "need-usual"):
            self._needs.forget(tenant)
        if erased := [change for fact in gone if (change := self._erase(fact))]:
            await _patiently(erased)
        return len(gone)

    def _asked(self) -> Reader:
        if self._reader is None:
            raise NotSupported(f"Nothing can be told: {NOWHERE}.")
        return self._reader

    def _range(self, start: int, end: int) -> tuple[int, int]:
        now = self._now() + 1
        return countable(start), now if end in (0, UNKNOWN) else countable(end)


async def _patiently(changes: list[Future[None]]) -> None:
    """Raises Busy when the disk does not take them in time: they are tried again, and may come to nothing."""
    _, left = await asyncio.wait([asyncio.wrap_future(each) for each in changes], timeout=FORGET_PATIENCE)
    if left:
        raise Busy("It is forgotten for now, but the store cannot be written, so it may be remembered after a restart.")


def _check_series(series: Series) -> None:
    if series.name in GPU_SERIES:
        wrong = not series.gpu or bool(series.tenant)
        needs = "a gpu and no tenant"
    elif series.name in TENANT_SERIES:
        on_gpu = series.name in ("holding", "shortfall")
        wrong = not series.tenant or bool(series.gpu) is not on_gpu
        needs = "a gpu and a tenant" if on_gpu else "a tenant and no gpu"
    else:
        known = ", ".join((*GPU_SERIES, *TENANT_SERIES))
        raise InvalidArgument(f"There is no series {series.name[:64]!r}; allowed: {known}")
    if wrong:
        raise InvalidArgument(f"The series {series.name} needs {needs}; Series lists what there is")
