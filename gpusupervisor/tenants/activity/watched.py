"""One tenant under observation: its probes, what they saw last, and what its memory did."""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Set
from dataclasses import replace

from gpusupervisor.tenants.activity.probes.base import Probe, ProbeContext
from gpusupervisor.tenants.activity.probes.build import build_probes
from gpusupervisor.tenants.activity.probes.life import process_ids
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, Observation
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ActivitySpec

GROWTH = 64 << 20
"""Bytes by which memory grows when something is loaded."""
GROWTH_SPAN = 3_000_000
"""Microseconds over which growth is summed up, so that a fast cadence does not hide a slow load."""
MOVE = 16 << 20
"""Bytes of change that are worth a look at once."""
LOCAL_PATIENCE = 500_000
"""Microseconds for what is read on this machine."""
SM_LIFE = 5
"""Percent of SM time that is worth a look at a tenant that was quiet."""

log = logging.getLogger(__name__)


class Watched:
    """The mutable record that the tracker keeps of one tenant."""

    def __init__(self, presence: TenantPresence, spec: ActivitySpec | None, now: int) -> None:
        self.presence = presence
        self.spec = spec
        self.probes: tuple[Probe, ...] = build_probes(spec) if spec else ()
        self.observations = [
            Observation(probe.kind, "unknown", "not observed yet", now, answered=False if probe.asks_engine else None)
            for probe in self.probes
        ]
        self.activity: Activity = UNOBSERVED
        self.growth = False
        self.measured_at = -1
        self.due_at = 0
        self.started_at = -1
        """When the last look began."""
        self.slow = False
        """Its last look took longer than the grace: it is not waited for."""
        self.task: asyncio.Task[None] | None = None
        self._looked_at_presence: TenantPresence | None = None
        self._history: deque[tuple[int, Mapping[str, int]]] = deque(maxlen=256)

    @property
    def in_flight(self) -> bool:
        """Whether a look is still under way."""
        return self.task is not None and not self.task.done()

    @property
    def patience(self) -> int:
        """Microseconds within which a look has ended, one way or the other."""
        return max((probe.timeout for probe in self.probes), default=0) + LOCAL_PATIENCE

    @property
    def wants_cpu(self) -> bool:
        """Whether a probe needs CPU time."""
        return any(probe.wants_cpu for probe in self.probes)

    @property
    def version(self) -> str:
        """The engine's version, where a probe learned it."""
        return next((seen.version for seen in self.observations if seen.version), "")

    def take_census(self, presence: TenantPresence, measured_at: int, unread: Set[str]) -> None:
        """Note a new census; the same one again changes nothing.

        unread: GPUs that could not be read. What was held there counts as held: it has not grown when it is seen again.
        """
        self.presence = presence
        if measured_at <= self.measured_at:
            return
        self.measured_at = measured_at
        while len(self._history) > 1 and self._history[1][0] <= measured_at - GROWTH_SPAN:
            self._history.popleft()
        self.growth = any(
            held - min(before.get(gpu, 0) for _, before in self._history) >= GROWTH
            for gpu, held in presence.holdings.items()
            if self._history
        )
        before = self._history[-1][1] if self._history else {}
        kept = {gpu: held for gpu, held in before.items() if gpu in unread}
        self._history.append((measured_at, {**kept, **presence.holdings}))

    def is_due(self, now: int) -> bool:
        """Whether it should be looked at: its time has come, or its processes do something."""
        return bool(self.probes) and not self.in_flight and (now >= self.due_at or self._stirs())

    def _stirs(self) -> bool:
        before, presence = self._looked_at_presence, self.presence
        if before is None or process_ids(before) != process_ids(presence):
            return True
        if any(
            abs(presence.holdings.get(gpu, 0) - before.holdings.get(gpu, 0)) >= MOVE
            for gpu in presence.holdings.keys() | before.holdings.keys()
        ):
            return True
        return self.activity.state != "busy" and any(
            (holder.sm_utilization or 0) >= SM_LIFE for holder in presence.holders
        )

    async def observe(self, context: ProbeContext) -> None:
        """Run every probe once, each result kept as soon as it is there."""
        self._looked_at_presence = context.presence
        await asyncio.gather(*(self._observe_one(number, context) for number in range(len(self.probes))))

    async def _observe_one(self, number: int, context: ProbeContext) -> None:
        probe = self.probes[number]
        outcome = (await asyncio.gather(probe.observe(context), return_exceptions=True))[0]
        if isinstance(outcome, Observation):
            self.observations[number] = replace(outcome, answered=_answered(outcome)) if probe.asks_engine else outcome
        elif isinstance(outcome, Exception):
            log.error("Probe %s of tenant %s failed", probe.kind, self.presence.id, exc_info=outcome)
            reason = f"this probe failed because of a bug ({type(outcome).__name__}): please report it"
            self.observations[number] = Observation(probe.kind, "unknown", reason, context.now)

    def distrust_engine(self, now: int) -> None:
        """Forget what the engine's API said: only what it says from now on counts. Until then it is not away."""
        for number, probe in enumerate(self.probes):
            if probe.asks_engine:
                self.observations[number] = Observation(
                    probe.kind, "unknown", "its API does not answer right now", now,
                    answered=self.observations[number].answered,
                )  # fmt: skip


def _answered(seen: Observation) -> bool:
    """Whether a probe that asks the engine had any answer: one that cannot be used, or wants a key, is one too."""
    return seen.trouble in ("nonsense", "needs-key", "not-tls") or (not seen.trouble and seen.state != "absent")
