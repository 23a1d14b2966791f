"""Keeps every tenant's activity up to date without ever waiting for a slow engine."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Set
from dataclasses import dataclass

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.cpu_time import cpu_time_of
from gpusupervisor.tenants.activity.probes.base import ProbeContext
from gpusupervisor.tenants.activity.verdict import LIVELY, UNOBSERVED, Activity, ActivityState
from gpusupervisor.tenants.activity.watched import Watched
from gpusupervisor.tenants.census import Census, TenantPresence
from gpusupervisor.tenants.definition import TenantDefinition

CpuTime = Callable[[TenantPresence], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Cadence:
    """How often tenants are looked at, in microseconds; what shows life or has just changed, at every call."""

    quiet: int = 5_000_000
    """Idle, absent and stuck ones."""
    unknown: int = 2_000_000
    grace: int = 100_000
    """How long one call of `look` waits for answers; later ones are used at the next call."""
    slack: int = 250_000
    """How much early a look may be, so that a tick of the same length does not miss every second one."""

    def interval(self, state: ActivityState) -> int:
        """Time until the next look at a tenant of this state."""
        if state in LIVELY:
            return 0
        return self.unknown if state == "unknown" else self.quiet


DEFAULT_CADENCE = Cadence()


class ActivityTracker:
    """Runs the probes of all tenants; at most one look per tenant is under way at any time."""

    def __init__(
        self,
        clock: Clock,
        http: EngineHttp,
        *,
        cpu_time: CpuTime = cpu_time_of,
        cadence: Cadence = DEFAULT_CADENCE,
    ) -> None:
        self._clock = clock
        self._http = http
        self._cpu_time = cpu_time
        self._cadence = cadence
        self._watched: dict[str, Watched] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self.counters: Counter[str] = Counter()
        """How often a tenant came into each branch of the judgement: "activity-" and the branch."""

    async def look(
        self,
        census: Census,
        definitions: Mapping[str, TenantDefinition],
        measured_at: int,
        full: Set[str] = frozenset(),
    ) -> Mapping[str, Activity]:
        """Look at the tenants that are due and return what is known of all of them, by tenant id.

        measured_at: when the driver was asked for what the census holds. full: GPUs with next to no free memory.
        """
        self._follow(census, definitions, measured_at, full)
        now = self._clock.now()
        started = [watched for watched in self._watched.values() if watched.is_due(now + self._cadence.slack)]
        looks = [(watched.slow, self._start(watched)) for watched in started]
        awaited = [task for slow, task in looks if not slow]
        if awaited:
            await asyncio.wait(awaited, timeout=self._cadence.grace / MICROSECONDS)
        for watched in self._watched.values():
            self._judge(watched)
        return self.activities()

    def forget_refusals(self, tenant: str) -> None:
        """Ask a tenant's engine again what it refused, without waiting any longer."""
        watched = self._watched.get(tenant)
        if watched is not None:
            self._http.forget_refusals(watched.presence.endpoint)

    async def recheck(self, tenant_id: str) -> Activity:
        """A fresh verdict: what the engine's API said before this call does not count.

        Takes no longer than the probes' timeouts. Unknown when the tenant is not watched.
        """
        watched = self._watched.get(tenant_id)
        if watched is None:
            return UNOBSERVED
        called_at, earlier = self._clock.now(), watched.task
        await self._finish(watched)
        if watched.probes and watched.task is earlier and not watched.in_flight:
            watched.distrust_engine(called_at)
            self._start(watched)
        await self._finish(watched)
        if watched.in_flight:
            watched.distrust_engine(called_at)
        self._judge(watched)
        return watched.activity

    def activities(self) -> Mapping[str, Activity]:
        """What is known of every tenant, by id."""
        return {tenant_id: watched.activity for tenant_id, watched in self._watched.items()}

    def version(self, tenant_id: str) -> str:
        """The version of a tenant's engine, where a probe learned it; empty otherwise."""
        watched = self._watched.get(tenant_id)
        return watched.version if watched else ""

    async def close(self) -> None:
        """End every look that is under way; the HTTP client stays open."""
        for watched in self._watched.values():
            self._retire(watched)
        self._watched.clear()
        await asyncio.gather(*self._leaving, return_exceptions=True)

    def _follow(
        self, census: Census, definitions: Mapping[str, TenantDefinition], measured_at: int, full: Set[str]
    ) -> None:
        """Watch the tenants of the census and no others; a changed description starts afresh."""
        for tenant_id in self._watched.keys() - census.tenants.keys():
            self._retire(self._watched.pop(tenant_id))
        unread = census.unread
        for tenant_id, presence in census.tenants.items():
            spec, floor = definitions[tenant_id].activity, definitions[tenant_id].floor
            watched = self._watched.get(tenant_id)
            if watched is None or watched.spec != spec or watched.presence.endpoint != presence.endpoint:
                watched = self._replace(tenant_id, Watched(presence, spec, floor, self._clock.now()))
            watched.floor = floor
            watched.take_census(presence, measured_at, unread, full)

    def _replace(self, tenant_id: str, fresh: Watched) -> Watched:
        old = self._watched.get(tenant_id)
        if old is not None:
            self._retire(old)
            fresh.activity = old.activity
        self._watched[tenant_id] = fresh
        return fresh

    def _retire(self, watched: Watched) -> None:
        if watched.task is not None and watched.in_flight:
            watched.task.cancel()
            self._leaving.add(watched.task)
            watched.task.add_done_callback(self._leaving.discard)

    def _start(self, watched: Watched) -> asyncio.Task[None]:
        watched.started_at = self._clock.now()
        watched.task = asyncio.create_task(self._observe(watched), name=f"look at {watched.presence.id}")
        return watched.task

    async def _observe(self, watched: Watched) -> None:
        presence, measured_at = watched.presence, watched.measured_at
        cpu_time = await self._cpu_time(presence) if watched.wants_cpu else None
        now = self._clock.now()
        if watched.wants_cpu:
            watched.processes.cpu.update(presence, cpu_time, now)
        signs = watched.processes.signs()
        await watched.observe(ProbeContext(now, self._clock.realtime(now), presence, measured_at, self._http, signs))
        watched.slow = self._clock.now() - watched.started_at > self._cadence.grace

    async def _finish(self, watched: Watched) -> None:
        if watched.task is not None and watched.in_flight:
            await asyncio.wait({watched.task}, timeout=watched.patience / MICROSECONDS)

    def _judge(self, watched: Watched) -> None:
        before, freshness = watched.activity, 3 * self._cadence.quiet + watched.patience
        activity = watched.judge(self._clock.now(), freshness)
        if activity.branch and activity.branch != before.branch:
            self.counters[f"activity-{activity.branch}"] += 1
        interval = self._cadence.interval(activity.state) if before.state == activity.state else 0
        watched.due_at = watched.started_at + interval
