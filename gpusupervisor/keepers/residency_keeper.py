"""What is in RAM of models' files: kept up with in the background, and models read into it when somebody asks.

The tick shows what is known and waits for nothing. The reader is asked when the supervisor starts, now and then about
engines that run, after a load and after a warm-up, and when a caller wants a plan.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dbus_fast import Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import Busy, GpuUnavailable, InvalidArgument, NotSupported, SupervisorError, WontFit
from gpusupervisor.foreign_text import harmless
from gpusupervisor.jobs import Report, Work
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.memory import Memory, read_memory
from gpusupervisor.models.load_speed import LoadSpeeds
from gpusupervisor.models.model import Model
from gpusupervisor.models.residency import ModelResidency, Residency, find_files, residency_of, with_residency
from gpusupervisor.models.warm_plan import Candidate, Usage, WarmedUp, WarmStep, plan_warming
from gpusupervisor.peers.privileged_call import READER, call
from gpusupervisor.quantities import format_bytes
from gpusupervisor.state import EngineStatus
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.definition import TenantDefinition

LOOK = 5.0
"""Seconds between two looks at whether something is due."""
STALE_AFTER = 600 * MICROSECONDS
"""After so long, what is known of an engine that runs is asked anew."""
STALE_WHEN_IDLE = 3600 * MICROSECONDS
"""Likewise of one that is idle: every question starts the reader."""
FRESH = 60 * MICROSECONDS
"""What is so young is good enough for a plan, which anybody may ask for."""
EVERYTHING = 2**63
"""Bytes of one part of a warm-up without a limit: all that the time allows."""
PARTS_PER_SECOND = 10
LATELY = 30 * 86_400 * MICROSECONDS
"""A use that is longer ago counts no more."""
NOT_STAYED = 90
"""Percent that must be in RAM after a warm-up, or it has not helped."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Shown:
    """The models of an engine as they came, what they were joined with, and what came of it: as long as nothing of
    that changes, a tick costs nothing."""

    before: tuple[Model, ...]
    residency: Residency | None
    speeds: LoadSpeeds
    after: tuple[Model, ...]


class ResidencyKeeper:
    """Of all tenants that say where their models are."""

    def __init__(self, clock: Clock, facts: ModelFacts, memory: Callable[[], Memory | None] = read_memory) -> None:
        """memory: may block."""
        self._clock = clock
        self._facts = facts
        self._memory = memory
        self.shared = False
        """A GPU uses the machine's own memory: a warmed file and its copy on the GPU lie in the same."""
        self.residencies: Mapping[str, Residency] = {}
        """By tenant; replaced and never changed."""
        self._described: frozenset[str] = frozenset()
        self._running: Mapping[str, int] = {}
        """By tenant that runs: after how long its files are stale."""
        self._directories: Mapping[str, tuple[str, ...]] = {}
        """By tenant: where root has set that its models are."""
        self._named: dict[str, Mapping[str, str]] = {}
        """By tenant and model: the path that the engine names."""
        self._stale: set[str] = set()
        self._shown: dict[str, _Shown] = {}
        self._loaded: dict[str, frozenset[str]] = {}
        self._warming: set[tuple[str, str]] = set()
        self._bus: MessageBus | None = None
        self._wanted = asyncio.Event()
        self._asking = asyncio.Lock()

    def engines(
        self,
        engines: Mapping[str, EngineStatus],
        definitions: Mapping[str, TenantDefinition],
        activities: Mapping[str, Activity],
    ) -> dict[str, EngineStatus]:
        """The engines with what is known of their models' files; who runs, and what is in use, is noted."""
        described = frozenset(tenant for tenant, each in definitions.items() if each.models and each.models.directories)
        running = {
            tenant: STALE_WHEN_IDLE if seen.state == "idle" else STALE_AFTER
            for tenant in described
            if (seen := activities.get(tenant)) and seen.state not in ("absent", "unknown")
        }
        if described != self._described:
            self.residencies = {tenant: each for tenant, each in self.residencies.items() if tenant in described}
            self._wanted.set()
        self._described, self._running = described, running
        self._directories = {
            tenant: each.directories for tenant in described if (each := definitions[tenant].models) is not None
        }
        return {tenant: self._engine(status) for tenant, status in engines.items()}

    def invalidate(self, tenant: str) -> None:
        """What is known of a tenant's files is no longer so: something was read, or loaded."""
        self._stale.add(tenant)
        self._wanted.set()

    async def keep_up_for_ever(self, bus: MessageBus) -> None:
        """Ask the reader whenever something is due."""
        self._bus = bus
        while True:
            self._wanted.clear()
            for tenant in sorted(self._due()):
                await self.refresh(tenant)
            try:
                async with asyncio.timeout(LOOK):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def refresh(self, tenant: str) -> Residency:
        """Ask the reader about a tenant now; what came of it is known from then on. Never raises SupervisorErrors."""
        async with self._asking:
            self._stale.discard(tenant)
            now = self._clock.now()
            try:
                found = await self._ask(tenant, now)
            except SupervisorError as error:
                found = residency_of((), "", (str(error),), now)
                _LOG.debug("what is in RAM of %s's models is not known: %s", tenant, error)  # its check judges that
            self.residencies = {**self.residencies, tenant: found}
            return found

    async def plan_warming(self) -> tuple[WarmStep, ...]:
        """A verdict on every model, the worthiest first."""
        for tenant in sorted(self._described):
            known = self.residencies.get(tenant)
            if known is None or tenant in self._stale or self._clock.now() - known.read_at > FRESH:
                await self.refresh(tenant)
        memory = await asyncio.to_thread(self._memory)
        return plan_warming(
            self.candidates(self._described),
            memory.spare if memory and not memory.shortage else None,
            shared=self.shared,
        )

    def candidates(self, tenants: Collection[str]) -> list[Candidate]:
        """Every model of these tenants, as far as is known."""
        return [
            Candidate(tenant, model, usage.get(model.name))
            for tenant, residency in self.residencies.items()
            if tenant in tenants
            for usage in (self._usage_by_files(tenant, residency),)
            for model in residency.models.values()
        ]

    async def warm(self, tenant: str, model: str, rate: int) -> Work:
        """The work that reads a model into RAM, at `rate` bytes a second at most (0: as fast as it goes).

        Raises NotSupported, InvalidArgument, Busy, GpuUnavailable, WontFit.
        """
        if tenant not in self._described:
            raise NotSupported(f"No tenant file says where the models of {tenant} are: set directories in its [models]")
        residency = await self.refresh(tenant)
        files = self._files(tenant, residency, model)
        if files is None:
            if residency.problems and not residency.models:
                raise GpuUnavailable(f"The model files of {tenant} cannot be examined: {residency.problems[0]}")
            raise InvalidArgument(
                f"{tenant} has no model files called {harmless(model)!r}, or several: give the whole name"
            )
        self._refuse_twice(tenant, files)
        await self._refuse_without_room(files)

        async def work(report: Report) -> WarmedUp:
            return await self._warm(tenant, files, rate, report)

        return work

    async def _warm(self, tenant: str, files: ModelResidency, rate: int, report: Report) -> WarmedUp:
        self._refuse_twice(tenant, files)
        key = (tenant, files.name)
        self._warming.add(key)
        started = self._clock.now()
        try:
            reply = await self._call("BeginWarmUp", "ss", key, "t")
            total, position = int(reply[0]), 0
            while position < total:
                most = max(1, rate // PARTS_PER_SECOND) if rate else EVERYTHING
                position, stopped = await self._call("WarmPart", "sstt", (*key, position, most), "ts")
                if stopped:
                    raise WontFit(f"The warm-up was stopped before all of it was in RAM: {harmless(stopped)}")
                report(position * 100 // max(total, 1), f"reading {files.name} into RAM")
                if rate:
                    ahead = started + position * MICROSECONDS // rate - self._clock.now()
                    await asyncio.sleep(max(0, min(ahead, MICROSECONDS)) / MICROSECONDS)
        finally:
            self._warming.discard(key)
            self.invalidate(tenant)
        took = self._clock.now() - started
        now = (await self.refresh(tenant)).models.get(files.name)
        if now is not None and now.cached is not None and now.cached * 100 < now.size * NOT_STAYED:
            raise WontFit("All of it was read but did not stay in RAM: too little memory is available")
        return WarmedUp(tenant, files.name, total, took)

    async def _refuse_without_room(self, files: ModelResidency) -> None:
        """Where memory is shared, a warmed file must not take the room of its own copy on the GPU."""
        memory = await asyncio.to_thread(self._memory) if self.shared else None
        missing = max(0, files.size - (files.cached or 0))
        if memory is not None and missing and missing + files.size > memory.spare:
            raise WontFit(
                f"The GPU uses the machine's own memory, in which {files.name} takes {format_bytes(files.size)} as "
                f"files and as much again once it is loaded: {format_bytes(memory.spare)} can be used"
            )

    def _files(self, tenant: str, residency: Residency, model: str) -> ModelResidency | None:
        """The files of a model by any name that its engine or its files have for it; None when that is not sure."""
        file = self._named.get(tenant, {}).get(model, "")
        return find_files(residency, self._directories.get(tenant, ()), model, file)

    def _refuse_twice(self, tenant: str, files: ModelResidency) -> None:
        if (tenant, files.name) in self._warming:
            raise Busy(f"{files.name} is being read into RAM already")

    def _due(self) -> Collection[str]:
        """Those never asked about, those that have changed, and engines that run, of which something is old."""
        now = self._clock.now()
        known = self.residencies
        new = {tenant for tenant in self._described if tenant not in known}
        old = {
            tenant for tenant, stale in self._running.items() if tenant in known and now - known[tenant].read_at > stale
        }
        return new | old | (self._stale & self._described)

    def _engine(self, status: EngineStatus) -> EngineStatus:
        residency, speeds = self.residencies.get(status.id), self._facts.speeds(status.id)
        shown = self._shown.get(status.id)
        same = shown is not None and shown.residency is residency and shown.speeds == speeds
        if shown and same and (shown.before is status.models or shown.before == status.models):
            return replace(status, models=shown.after)
        self._note_usage(status)
        self._named[status.id] = {model.name: model.file for model in status.models if model.file}
        after = with_residency(status.models, residency, speeds, self._directories.get(status.id, ()))
        self._shown[status.id] = _Shown(status.models, residency, speeds, after)
        return replace(status, models=after)

    def _note_usage(self, status: EngineStatus) -> None:
        """What the first list of this life of the service has loaded was, as a rule, counted by an earlier one."""
        before = self._loaded.get(status.id)
        if before is None and not status.models:
            return
        counted = frozenset(name for name, _ in self._facts.uses(status.id)) if before is None else frozenset()
        before = before or frozenset()
        loaded = frozenset(
            model.name
            for model in status.models
            if model.state in ("loaded", "loading") or (model.state == "unknown" and model.name in before)
        )
        for name in loaded ^ before:
            self._facts.note_use(status.id, name, begins=name in loaded - counted)
        self._loaded[status.id] = loaded
        if loaded - before:
            self.invalidate(status.id)

    def _usage_by_files(self, tenant: str, residency: Residency) -> dict[str, Usage]:
        """How a tenant's models were used lately, by the names of their files."""
        now, loaded = self._clock.realtime(self._clock.now()), self._loaded.get(tenant, frozenset())
        found = {}
        for name, known in self._facts.uses(tenant):
            usage = replace(known, last_used=now) if name in loaded else known
            files = self._files(tenant, residency, name)
            if files is not None and now - usage.last_used < LATELY:
                found[files.name] = usage
        return found

    async def _ask(self, tenant: str, now: int) -> Residency:
        models, about = await self._call("Residency", "s", (tenant,), "aa{sv}a{sv}")
        found = (_model(entry) for entry in models)
        method, problems = about.get("method"), about.get("problems")
        return residency_of(
            found,
            str(method.value) if method else "",
            tuple(harmless(str(problem), 256) for problem in problems.value) if problems else (),
            now,
        )

    async def _call(self, member: str, signature: str, body: Collection[object], answer: str) -> list[Any]:
        if self._bus is None:
            raise GpuUnavailable("The supervisor is still starting: try again in a second")
        return list((await call(self._bus, READER, member, signature, list(body), answer)).body)


def _model(entry: Mapping[str, Variant]) -> ModelResidency:
    told = {name: value.value for name, value in entry.items()}
    return ModelResidency(
        harmless(str(told.get("model", "")), 256),
        int(told.get("size", 0)),
        told.get("cached"),
        harmless(str(told.get("problem", "")), 256),
    )
