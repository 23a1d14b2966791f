"""An event loop whose time is virtual: waiting costs nothing, so an hour passes in seconds."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from gpusupervisor.clock import MICROSECONDS

T = TypeVar("T")


class VirtualClock:
    """A clock that only moves when everybody waits. Microseconds."""

    def __init__(self, started_at: int) -> None:
        """started_at: wall-clock microseconds (Unix epoch) of instant `ORIGIN`."""
        self._now = ORIGIN
        self._started_at = started_at

    def now(self) -> int:
        """See `Clock`."""
        return self._now

    def realtime(self, instant: int) -> int:
        """See `Clock`."""
        return self._started_at + instant - ORIGIN

    def advance(self, span: int) -> None:
        """Let microseconds pass."""
        self._now += span


ORIGIN = 1000 * MICROSECONDS
"""The instant at which a film begins: the machine has been up for a while."""


class DeadlockError(RuntimeError):
    """Everybody waits, and nothing is due: waiting would never end."""


class _Leap(selectors.SelectSelector):
    """Instead of waiting for files, moves the clock to where the next timer is due."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """No file is ever ready. Raises DeadlockError where nothing is due."""
        if timeout is None:
            raise DeadlockError("everybody waits, and nothing is due")
        if timeout > 0:
            self._clock.advance(max(1, round(timeout * MICROSECONDS)))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Threads are not used: what would run in one runs at once."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_Leap(clock))
        self._clock = clock

    def time(self) -> float:
        """Seconds."""
        return self._clock.now() / MICROSECONDS

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: object) -> asyncio.Future[Any]:
        """Run it now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  (handed to whoever awaits it, as an executor does)
            done.set_exception(error)
        return done


def run(main: Callable[[VirtualClock], Coroutine[Any, Any, T]], started_at: int = 0) -> T:
    """Run a coroutine to its end in virtual time."""
    clock = VirtualClock(started_at)
    loop = VirtualLoop(clock)
    try:
        return loop.run_until_complete(main(clock))
    finally:
        loop.close()
