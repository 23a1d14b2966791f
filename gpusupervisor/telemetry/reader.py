"""Answers questions off the event loop: one at a time, with a deadline, and few in waiting."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from gpusupervisor.errors import Busy, SupervisorError
from gpusupervisor.telemetry.database import Damaged, of_sqlite

T = TypeVar("T")
DEADLINE = 2.0
"""Seconds that one answer may take."""
WAITING = 8
"""Questions that wait at most."""
STEPS = 1_000
"""Of SQLite's machine between two looks at the clock."""


class Reader:
    """Of one event loop."""

    def __init__(self, path: Path, suspect: Callable[[], None], deadline: float = DEADLINE) -> None:
        """suspect: called when damage was met."""
        self._path = path
        self._suspect = suspect
        self._deadline = deadline
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="telemetry-reader")
        self._waiting = 0

    async def ask(self, question: Callable[[sqlite3.Connection], T]) -> T:
        """The answer. Raises Busy, or SupervisorError when the store cannot be read."""
        if self._waiting >= WAITING:
            raise Busy("Too many questions about telemetry wait already: try again in a moment.")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._answer, question)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """Wait for what is being answered; the rest is not answered any more."""
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)

    def _answer(self, question: Callable[[sqlite3.Connection], T]) -> T:
        until = time.monotonic() + self._deadline
        try:
            connection = sqlite3.connect(f"file:{self._path}?mode=ro", uri=True, timeout=self._deadline)
        except sqlite3.Error as error:
            raise SupervisorError(f"No telemetry can be read: {error}. The check telemetry says more.") from error
        try:
            connection.set_progress_handler(lambda: int(time.monotonic() > until), STEPS)
            return question(connection)
        except sqlite3.Error as error:
            raise self._told(error) from error
        finally:
            connection.close()

    def _told(self, error: sqlite3.Error) -> SupervisorError:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return Busy(f"That takes longer than {self._deadline:g} s: ask for a shorter time.")
        if isinstance(of_sqlite(error), Damaged):
            self._suspect()
        return SupervisorError(f"No telemetry can be read: {error}. The check telemetry says more.")
