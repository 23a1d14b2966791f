"""Instants of the domain clock as wall-clock times that stand still."""

from gpusupervisor.clock import MICROSECONDS, UNKNOWN, Clock


class SteadyRealtime:
    """Converts instants with an offset that is kept until the wall clock was set.

    The two clocks are read one after the other, so each conversion alone would come out some microseconds
    different, and every property with a time in it would change at every tick.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = clock.realtime(0)

    def refresh(self) -> None:
        """Follow the wall clock when it has moved by a second or more against the domain's."""
        offset = self._clock.realtime(0)
        if abs(offset - self._offset) >= MICROSECONDS:
            self._offset = offset

    def __call__(self, instant: int | None) -> int:
        """Microseconds of the Unix epoch; unknown for None and for 0, the domain's "never"."""
        return self._offset + instant if instant else UNKNOWN
