"""Blocking work in threads that may never return: a file system, or a user's process, that does not answer."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from gpusupervisor.errors import GpuUnavailable

PATIENCE = 20.0
"""Seconds for one piece of work; its own budgets are a few."""
MOST_HANGING = 4
"""Threads that hang at a time. After that nothing is begun until one returns: TasksMax= counts them."""

Answer = TypeVar("Answer")


class Threads:
    """Runs work in threads that neither keep callers waiting nor keep the process from ending."""

    def __init__(self, what: str, patience: float = PATIENCE) -> None:
        """what: the subject of an error's text, for example "The model files"."""
        self._what = what
        self._patience = patience
        self._hanging = 0

    async def run(self, work: Callable[[], Answer]) -> Answer:
        """Return what the work returns. Raises what it raises, and GpuUnavailable if it does not end in time."""
        if self._hanging >= MOST_HANGING:
            raise GpuUnavailable(f"{self._what} cannot be examined: {self._hanging} earlier attempts have not returned")
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answer] = loop.create_future()

        def settle(outcome: Callable[[], None]) -> None:
            if not done.cancelled():
                outcome()

        def report(outcome: Callable[[], None]) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, outcome)

        def in_thread() -> None:
            try:
                answer = work()
            except Exception as error:  # noqa: BLE001  (it is raised again, in the caller's task)
                report(partial(done.set_exception, error))
            else:
                report(partial(done.set_result, answer))

        threading.Thread(target=in_thread, daemon=True).start()
        try:
            async with asyncio.timeout(self._patience):
                return await asyncio.shield(done)
        except TimeoutError:
            if done.done():
                raise
            self._hanging += 1
            done.add_done_callback(self._returned)
            raise GpuUnavailable(
                f"{self._what} cannot be examined: that has not returned for {self._patience:g} s. "
                "A file system that does not answer (NFS, FUSE) is the usual cause"
            ) from None

    def _returned(self, done: "asyncio.Future[Answer]") -> None:
        self._hanging -= 1
        if not done.cancelled():
            done.exception()  # nobody waits for it any more
