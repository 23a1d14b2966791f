"""A probe over one sign of life: busy while it moves, idle once it has been quiet for long enough."""

from dataclasses import dataclass

from gpusupervisor.tenants.activity.probes.base import ProbeContext
from gpusupervisor.tenants.activity.probes.life import Watch
from gpusupervisor.tenants.activity.verdict import Observation


@dataclass(frozen=True, slots=True)
class Phrases:
    """The reasons of one kind."""

    live: str
    recent: str
    quiet: str
    cannot_tell: str


class WindowProbe:
    """Probes `vram`, `sm-utilization` and `cpu`: the same judgement over different figures."""

    asks_engine = False
    timeout = 0

    def __init__(self, kind: str, watch: Watch, idle_after: int, phrases: Phrases, *, wants_cpu: bool = False) -> None:
        self.kind = kind
        self.wants_cpu = wants_cpu
        self._watch = watch
        self._idle_after = idle_after
        self._phrases = phrases

    async def observe(self, context: ProbeContext) -> Observation:
        """See `Probe`."""
        if not context.presence.holders:
            return Observation(self.kind, "absent", context.presence.absence, context.measured_at)
        watch, phrases = self._watch, self._phrases
        live = watch.look(context)
        if live is None:
            return Observation(self.kind, "unknown", phrases.cannot_tell, watch.looked_at)
        if live:
            return Observation(self.kind, "busy", phrases.live, watch.looked_at)
        if watch.live_within(self._idle_after):
            return Observation(self.kind, "busy", phrases.recent, watch.looked_at)
        if watch.quiet_for(self._idle_after):
            return Observation(self.kind, "idle", phrases.quiet, watch.looked_at)
        return Observation(self.kind, "unknown", "quiet, but not watched for long enough yet", watch.looked_at)
