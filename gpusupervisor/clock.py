"""The one clock of the domain.

Decisions use `CLOCK_BOOTTIME` in microseconds, which goes on counting while the machine sleeps, so that
"idle since" stays true over a suspend. What is published is converted to realtime at the very end.
"""

import time
from typing import Protocol

MICROSECONDS = 1_000_000
UNKNOWN = 2**64 - 1
"""The D-Bus and domain value for "not known" of an unsigned 64-bit figure."""


class Clock(Protocol):
    """Where "now" comes from; tests bring their own."""

    def now(self) -> int:
        """Microseconds since boot, sleep included."""

    def realtime(self, instant: int) -> int:
        """The wall-clock microseconds (Unix epoch) of an instant of this clock."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Microseconds since boot, sleep included."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000

    def realtime(self, instant: int) -> int:
        """The wall-clock microseconds (Unix epoch) of an instant of this clock."""
        return time.time_ns() // 1000 - (self.now() - instant)
