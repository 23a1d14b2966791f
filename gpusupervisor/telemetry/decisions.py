"""How often each branch of the decisions was taken, as events of a bounded number and size. Pure, but for remembering.

The counters begin anew with each life of the service; an event has what was added since the one before, so that those
of any period can be summed up.
"""

from collections.abc import Mapping

from gpusupervisor.telemetry.records import TelemetryEvent, bounded, countable

EVERY = 600_000_000
"""Microseconds from one event to the next; none is made of a time in which nothing was counted."""
MOST = 64
"""Branches in one event, those that were taken most often first."""


class Decisions:
    """Remembers what was noted."""

    def __init__(self) -> None:
        self._noted: Mapping[str, int] = {}
        self._counters: Mapping[str, int] = {}
        self._since: int | None = None

    def observe(self, counters: Mapping[str, int], at: int) -> TelemetryEvent | None:
        """What was counted since the last event, when one is due.

        counters: since the service started. at: realtime.
        """
        self._counters = counters
        if self._since is None:
            self._since = at
        if 0 <= at - self._since < EVERY:
            return None
        return self.rest(at)

    def rest(self, at: int) -> TelemetryEvent | None:
        """What was counted since the last event; None when nothing was."""
        since, self._since = self._since, at
        added = {name: count - self._noted.get(name, 0) for name, count in self._counters.items()}
        counts = sorted(
            ((name, count) for name, count in added.items() if count > 0), key=lambda each: (-each[1], each)
        )
        self._noted = self._counters
        if not counts or since is None:
            return None
        shown = {str(bounded(name, 64)): countable(count) for name, count in counts[:MOST]}
        return TelemetryEvent("decisions", at, details={"since": since, "counts": shown})
