"""How much of our time a user may have: points that are spent by calls and come back with time."""

from collections.abc import Mapping

BURST = 600.0
"""Points that a user has after a pause."""
RATE = 60.0
"""Points that come back each second."""
BYTES_PER_POINT = 64 << 10
"""Of answers, which have to be made, and kept until they are read."""
UNANSWERED = 0.5
"""Points of a signal that somebody sends us, of which none is wanted."""
COSTS: Mapping[str, float] = {
    "Introspect": 2,
    "GetManagedObjects": 3,
    "PlanRelease": 5,
    "Explain": 5,
    "Recognise": 10,
    "CheckDefinition": 60,
    "Check": 20,
    "Query": 5,
    "Series": 5,
    "Events": 10,
    "Learned": 5,
    "WarmPlan": 10,
}
"""Points by method, where it is more than one: those that anybody may call and that give us work.

What polkit is asked about costs `AUTHORIZED`, for it gives polkit work too.
"""
HEAVY = frozenset({"Check", "CheckDefinition", "Recognise", "WarmPlan"})
"""Methods of which a user has `MOST_HEAVY` at a time: all users share what does their work."""
MOST_HEAVY = 2
AUTHORIZED = 5.0
OTHERWISE = 1.0


class Allowance:
    """Of one user. What costs more than is left is let in, and paid back before the next."""

    def __init__(self, now: float, burst: float = BURST, rate: float = RATE) -> None:
        """now: in seconds, as all times here."""
        self._burst = burst
        self._rate = rate
        self._points = burst
        self._at = now

    def wait(self, now: float) -> float:
        """Seconds until the next call is let in; 0 when it is now."""
        self._refill(now)
        return 0.0 if self._points > 0 else (1 - self._points) / self._rate

    def spend(self, points: float, now: float) -> None:
        """Take points; there may be less than none left."""
        self._refill(now)
        self._points -= points

    def is_full(self, now: float) -> bool:
        """Whether nothing was spent lately: it need not be remembered."""
        self._refill(now)
        return self._points >= self._burst

    def _refill(self, now: float) -> None:
        self._points = min(self._burst, self._points + (now - self._at) * self._rate)
        self._at = now
