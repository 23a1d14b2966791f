"""Probe `comfyui`.

Its queue says how much is left, but the thread that works it off can die and leave its entry there for ever
(https://github.com/Comfy-Org/ComfyUI/issues/16312), so the queue is believed only while the processes live.
"""

from dataclasses import dataclass

from gpusupervisor.engine_http import BadAnswer, HttpError
from gpusupervisor.tenants.activity.probes.base import ProbeContext, ask, count, unanswered
from gpusupervisor.tenants.activity.probes.life import CpuWatch, SmWatch, VramWatch
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec

UNWATCHED = 60_000_000
"""Microseconds between two looks from which on the machine was suspended: that no life was seen says nothing then."""
IMPACT = "it will run no job, and its memory cannot be released, because the dead worker would have to execute /free"


@dataclass(frozen=True, slots=True)
class QueueHead:
    """What /queue says, without anyone's prompts: they are never kept, logged or published."""

    running: tuple[str, ...]
    """Ids of the entries that claim to run."""
    pending: int


class ComfyUiProbe:
    """Busy while the queue holds something and life is seen; stuck once it has not been seen for too long."""

    kind = "comfyui"
    asks_engine = True
    wants_cpu = True

    def __init__(self, spec: ProbeSpec, stuck_after: int) -> None:
        self.timeout = 2 * spec.timeout
        self._request_timeout = spec.timeout
        self._stuck_after = stuck_after
        self._watches = (SmWatch(), CpuWatch(), VramWatch())
        self._remaining = 0
        self._looked_at = 0
        self._progress_at = 0
        self._head: QueueHead | None = None

    async def observe(self, context: ProbeContext) -> Observation:
        """See `Probe`."""
        for watch in self._watches:
            watch.look(context)
        if context.now - self._looked_at >= UNWATCHED:
            self._progress_at = context.now
        self._looked_at = context.now
        try:
            remaining = queue_remaining(await ask(context, "/prompt", self._request_timeout))
            self._note_progress(remaining, context.now)
            if not remaining:
                return Observation(self.kind, "idle", "its queue is empty", context.now)
            lifeless = context.now - self._last_life()
            if lifeless >= self._stuck_after // 2:
                await self._compare_head(context)
        except HttpError as error:
            return unanswered(self.kind, error, context)
        if context.now - self._last_life() >= self._stuck_after and self._watched_quiet():
            return self._stuck(context)
        prompts = "1 prompt" if remaining == 1 else f"{remaining} prompts"
        return Observation(self.kind, "busy", f"{prompts} in its queue", context.now)

    def _note_progress(self, remaining: int, now: int) -> None:
        """A queue that was empty, or has shrunk, is being worked off."""
        if not self._remaining or remaining < self._remaining:
            self._progress_at = now
            self._head = None
        self._remaining = remaining

    def _last_life(self) -> int:
        return max(self._progress_at, *(watch.live_at or 0 for watch in self._watches))

    def _watched_quiet(self) -> bool:
        """Whether GPU or CPU time could be read for all that time: flat VRAM alone proves nothing."""
        computing = self._watches[:2]
        return any(watch.quiet_for(self._stuck_after * 9 // 10) for watch in computing)

    async def _compare_head(self, context: ProbeContext) -> None:
        """Another prompt at the head than last time means that the worker lives."""
        try:
            head = queue_head(await ask(context, "/queue", self._request_timeout))
        except HttpError:
            return  # whole prompts make it larger than is read, perhaps: the signs of life decide alone
        if self._head is not None and head.running != self._head.running:
            self._progress_at = context.now
        self._head = head

    def _stuck(self, context: ProbeContext) -> Observation:
        waiting = self._head is not None and not self._head.running
        claim = "prompts wait in its queue" if waiting else "it claims to be running a prompt"
        reason = f"{claim}, but its processes show no activity: its worker has died"
        return Observation(
            self.kind, "stuck", reason, context.now, impact=IMPACT, remedy=f"restart it: {_restart(context)}"
        )


def queue_remaining(answer: object) -> int:
    """Prompts that run or wait. Raises BadAnswer."""
    info = answer.get("exec_info") if isinstance(answer, dict) else None
    remaining = count(info.get("queue_remaining")) if isinstance(info, dict) else None
    if remaining is None:
        raise BadAnswer("answered /prompt without the length of its queue")
    return remaining


def queue_head(answer: object) -> QueueHead:
    """What /queue says. Raises BadAnswer."""
    running = answer.get("queue_running") if isinstance(answer, dict) else None
    pending = answer.get("queue_pending") if isinstance(answer, dict) else None
    if not isinstance(running, list) or not isinstance(pending, list):
        raise BadAnswer("answered /queue without its lists")
    ids = (entry[1] if isinstance(entry, list) and len(entry) > 1 else None for entry in running)
    return QueueHead(tuple(known[:64] for known in ids if isinstance(known, str)), len(pending))


def _restart(context: ProbeContext) -> str:
    """How to restart it, by the unit of its processes where there is one."""
    for holder in context.presence.holders:
        if holder.identity and holder.identity.user_unit:
            return f"systemctl --user restart {holder.identity.user_unit}"
        if holder.identity and holder.identity.unit.endswith(".service"):
            return f"systemctl restart {holder.identity.unit}"
    pids = ", ".join(sorted({str(holder.pid) for holder in context.presence.holders}))
    return f"end process {pids} and start it again" if pids else "end its process and start it again"
