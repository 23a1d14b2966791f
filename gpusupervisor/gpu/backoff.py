"""How often NVML is initialised again after it failed."""

from gpusupervisor.clock import MICROSECONDS

FIRST = 1 * MICROSECONDS
LONGEST = 60 * MICROSECONDS


class Backoff:
    """1 s after the first failure, doubling to 60 s. Instants are microseconds of the domain clock."""

    def __init__(self) -> None:
        self._delay = FIRST
        self._retry_at: int | None = None

    def failed(self, now: int) -> None:
        """Plan the next attempt; one that is planned and not due yet stays as it is."""
        if self.waiting(now):
            return
        self._retry_at = now + self._delay
        self._delay = min(self._delay * 2, LONGEST)

    def succeeded(self) -> None:
        """All is well: the next failure starts over."""
        self._delay = FIRST
        self._retry_at = None

    def waiting(self, now: int) -> bool:
        """An attempt is planned and not due yet."""
        return self._retry_at is not None and now < self._retry_at

    def due(self, now: int) -> bool:
        """A planned attempt is due."""
        return self._retry_at is not None and now >= self._retry_at
