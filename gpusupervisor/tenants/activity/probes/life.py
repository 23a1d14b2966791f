"""Signs of life of a tenant's own processes: GPU time, CPU time, movement of its VRAM.

Never the GPU's whole utilisation: that is somebody's work, not this tenant's.
"""

from abc import ABC, abstractmethod

from gpusupervisor.tenants.activity.probes.base import ProbeContext
from gpusupervisor.tenants.census import TenantPresence

SM_QUIET = 2
"""Percent of SM time at or below which a process does nothing of note."""
CPU_QUIET = 5.0
"""Percent of one core: an idle server that answers our own questions stays far below."""
VRAM_QUIET = 1 << 20
"""Bytes of movement that are no sign of work."""
MIN_CPU_SPAN = 500_000
"""Microseconds between two readings of CPU time below which their difference is noise."""


class Watch(ABC):
    """One sign of life, followed over time. `look` says True (life), False (quiet) or None (cannot tell)."""

    def __init__(self) -> None:
        self.live_at: int | None = None
        """When life was last seen."""
        self.quiet_since: int | None = None
        """Since when every look found it quiet; None when the last one did not."""
        self.looked_at = -1
        self._last: bool | None = None

    def look(self, context: ProbeContext) -> bool | None:
        """Take in new figures; the same figures a second time change nothing."""
        instant = self._instant(context)
        if self._is_new(instant):
            self._last = self._live(context, instant)
            self.looked_at = instant
            if self._last:
                self.live_at = instant
            if self._last is not False:
                self.quiet_since = None
            elif self.quiet_since is None:
                self.quiet_since = instant
        return self._last

    def quiet_for(self, span: int) -> bool:
        """Whether every look found it quiet, two looks and `span` microseconds at least."""
        return self.quiet_since is not None and self.looked_at - self.quiet_since >= max(span, 1)

    def live_within(self, span: int) -> bool:
        """Whether life was seen less than `span` microseconds before the last look."""
        return self.live_at is not None and self.looked_at - self.live_at < span

    def _instant(self, context: ProbeContext) -> int:
        return context.measured_at

    def _is_new(self, instant: int) -> bool:
        return instant > self.looked_at

    @abstractmethod
    def _live(self, context: ProbeContext, instant: int) -> bool | None:
        """What the figures of this instant say."""


class SmWatch(Watch):
    """GPU time of the tenant's processes, each GPU's for itself."""

    def __init__(self, threshold: float = SM_QUIET) -> None:
        super().__init__()
        self._threshold = threshold

    def _live(self, context: ProbeContext, instant: int) -> bool | None:
        shares = [holder.sm_utilization for holder in context.presence.holders]
        if any(share is not None and share > self._threshold for share in shares):
            return True
        return None if not shares or None in shares else False


class VramWatch(Watch):
    """Movement of what the tenant holds, against a reference so that slow drift adds up.

    growth_only: memory that is given back is no sign of work, or every release would make its tenant busy.
    """

    def __init__(self, threshold: float = VRAM_QUIET, *, growth_only: bool = False) -> None:
        super().__init__()
        self._threshold = threshold
        self._growth_only = growth_only
        self._reference: dict[str, int] | None = None

    def _live(self, context: ProbeContext, instant: int) -> bool | None:
        if context.presence.unknown_on:
            self._reference = None
            return None
        held = dict(context.presence.holdings)
        before = self._reference
        if before is None:
            self._reference = held
            return False
        moves = [held.get(gpu, 0) - before.get(gpu, 0) for gpu in held.keys() | before.keys()]
        if not any(abs(move) > self._threshold for move in moves):
            return False
        self._reference = held
        return not self._growth_only or any(move > self._threshold for move in moves)


class CpuWatch(Watch):
    """CPU share of the tenant's processes between two looks, in percent of one core."""

    def __init__(self, threshold: float = CPU_QUIET) -> None:
        super().__init__()
        self._threshold = threshold
        self._before: tuple[int, int, frozenset[int]] | None = None

    def _instant(self, context: ProbeContext) -> int:
        return context.now

    def _is_new(self, instant: int) -> bool:
        return self._before is None or instant - self._before[0] >= MIN_CPU_SPAN

    def _live(self, context: ProbeContext, instant: int) -> bool | None:
        if context.cpu_time is None:
            self._before = None
            return None
        pids = process_ids(context.presence)
        before, self._before = self._before, (instant, context.cpu_time, pids)
        if before is None or before[2] != pids or context.cpu_time < before[1]:
            return None
        share = 100 * (context.cpu_time - before[1]) / (instant - before[0])
        return share > self._threshold


def process_ids(presence: TenantPresence) -> frozenset[int]:
    """PIDs of the tenant's processes that hold VRAM."""
    return frozenset(holder.pid for holder in presence.holders)
