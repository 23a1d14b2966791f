"""One tenant under observation: its probes, what they saw last, and what its processes do."""

import asyncio
import logging
from collections.abc import Set
from dataclasses import replace

from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.tenants.activity.judgement import Course, Evidence, judge
from gpusupervisor.tenants.activity.probes.base import Probe, ProbeContext
from gpusupervisor.tenants.activity.probes.build import build_probe
from gpusupervisor.tenants.activity.probes.process_activity import STEP, ProcessActivity, process_ids
from gpusupervisor.tenants.activity.verdict import LIVELY, UNOBSERVED, Activity, Observation
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec

LOCAL_PATIENCE = 500_000
"""Microseconds for what is read on this machine."""
PENDING = 1_000_000
"""Microseconds after which an answer that has not come is a sign of its own."""
SM_LIFE = 5
"""Percent of SM time that is worth a look at a tenant that was quiet."""
WANT_CPU = frozenset({"cpu", "ollama", "comfyui"})
"""Kinds of probe that need the CPU time of the processes: of others it is not known how much of it is work."""

log = logging.getLogger(__name__)


class Watched:
    """The mutable record that the tracker keeps of one tenant."""

    def __init__(self, presence: TenantPresence, spec: ActivitySpec | None, floor: int, now: int) -> None:
        self.presence = presence
        self.spec = spec
        self.floor = floor
        self.processes = ProcessActivity(spec)
        self._specs: tuple[ProbeSpec, ...] = spec.probes if spec else ()
        self.probes: tuple[Probe | None, ...] = tuple(build_probe(probe) for probe in self._specs)
        """In the order of the definition; None in place of one that only watches the processes."""
        self._answers = [
            Observation(probe.kind, "unknown", "not observed yet", now, answered=False if asks else None)
            for probe, asks in zip(self._specs, self.probes, strict=True)
        ]
        self.wants_cpu = any(probe.kind in WANT_CPU for probe in self._specs)
        self.patience = max((probe.timeout for probe in self.probes if probe), default=0) + LOCAL_PATIENCE
        """Microseconds within which a look has ended, one way or the other."""
        self.activity: Activity = UNOBSERVED
        self.measured_at = -1
        self.due_at = 0
        self.started_at = -1
        """When the last look began."""
        self.slow = False
        """Its last look took longer than the grace: it is not waited for."""
        self.task: asyncio.Task[None] | None = None
        self._course = Course()
        self._card_is_full = False
        self._has_news = True
        """Something was seen since the last verdict."""
        self._looked_at_presence: TenantPresence | None = None

    @property
    def in_flight(self) -> bool:
        """Whether a look is still under way."""
        return self.task is not None and not self.task.done()

    @property
    def version(self) -> str:
        """The engine's version, where a probe learned it."""
        return next((seen.version for seen in self._answers if seen.version), "")

    def take_census(self, presence: TenantPresence, measured_at: int, unread: Set[str], full: Set[str]) -> None:
        """Note a new census; the same one again changes nothing.

        unread: GPUs that could not be read. full: GPUs with next to no free memory.
        """
        self._has_news = self._has_news or bool(presence.holders) or presence != self.presence
        self.presence = presence
        if measured_at <= self.measured_at:
            return
        self.measured_at = measured_at
        self._card_is_full = bool(full and (not presence.holders or full & {each.gpu for each in presence.holders}))
        self.processes.take_census(presence, measured_at, unread, full)

    def is_due(self, now: int) -> bool:
        """Whether it should be looked at: its time has come, or its processes do something."""
        return bool(self.probes) and not self.in_flight and (now >= self.due_at or self._stirs())

    def _stirs(self) -> bool:
        before, presence = self._looked_at_presence, self.presence
        if before is None or process_ids(before) != process_ids(presence):
            return True
        if any(
            abs(presence.holdings.get(gpu, 0) - before.holdings.get(gpu, 0)) >= STEP
            for gpu in presence.holdings.keys() | before.holdings.keys()
        ):
            return True
        return self.activity.state not in LIVELY and any(
            (holder.sm_utilization or 0) >= SM_LIFE for holder in presence.holders
        )

    async def observe(self, context: ProbeContext) -> None:
        """Run every probe once, each result kept as soon as it is there."""
        before, self._looked_at_presence = self._looked_at_presence, context.presence
        if before is not None and _processes(before) != _processes(context.presence):
            context.http.forget_refusals(context.presence.endpoint)
        asking = [(number, probe) for number, probe in enumerate(self.probes) if probe]
        await asyncio.gather(*(self._observe_one(number, probe, context) for number, probe in asking))

    async def _observe_one(self, number: int, probe: Probe, context: ProbeContext) -> None:
        outcome = (await asyncio.gather(probe.observe(context), return_exceptions=True))[0]
        self._has_news = True
        if isinstance(outcome, Observation):
            self._answers[number] = replace(outcome, answered=_answered(outcome))
        elif isinstance(outcome, Exception):
            log.error("Probe %s of tenant %s failed", probe.kind, self.presence.id, exc_info=outcome)
            reason = f"this probe failed because of a bug ({type(outcome).__name__}): please report it"
            self._answers[number] = Observation(probe.kind, "unknown", reason, context.now)

    def distrust_engine(self, now: int) -> None:
        """Forget what the engine's API said: only what it says from now on counts. Until then it is not away."""
        self._has_news = True
        for number, probe in enumerate(self.probes):
            if probe:
                self._answers[number] = Observation(
                    probe.kind, "unknown", "its API does not answer right now", now,
                    answered=self._answers[number].answered,
                )  # fmt: skip

    def observations(self, now: int) -> tuple[Observation, ...]:
        """The latest of each probe, in the order of the definition.

        Rest that an engine reported is not believed while it lets the next question wait: it may be waking up.
        """
        waits = self.in_flight and now - self.started_at >= PENDING
        return tuple(
            (_unheard(answer) if waits and answer.state == "idle" and answer.observed_at < self.started_at else answer)
            if probe
            else self.processes.observe(spec, self.presence)
            for spec, probe, answer in zip(self._specs, self.probes, self._answers, strict=True)
        )

    def judge(self, now: int, freshness: int) -> Activity:
        """The verdict on what was seen until now. One that nothing can have changed is not made again."""
        if not self._has_news and not self.in_flight and self.activity.state == "absent":
            return self.activity
        evidence = Evidence(
            self.observations(now), self.presence, self.processes.signs(), card_is_full=self._card_is_full,
            stuck_after=self.spec.stuck_after if self.spec else None, floor=self.floor,
        )  # fmt: skip
        self.activity, self._course = judge(evidence, self.activity, self._course, now=now, freshness=freshness)
        self._has_news = False
        return self.activity


def _processes(presence: TenantPresence) -> frozenset[ProcessKey]:
    """Its servers and holders: what another one of these answers is not known."""
    holders = (each.identity for each in presence.holders)
    return frozenset(each.key for each in (*presence.servers, *holders) if each is not None)


def _unheard(seen: Observation) -> Observation:
    return replace(seen, state="unknown", reason=f"its API has not answered yet ({seen.state} before)")


def _answered(seen: Observation) -> bool:
    """Whether a probe that asks the engine had any answer: one that cannot be used, or wants a key, is one too."""
    return seen.trouble in ("nonsense", "needs-key", "not-tls") or (not seen.trouble and seen.state != "absent")
