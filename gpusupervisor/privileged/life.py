"""The life of a privileged service: ready, watchdog, idle exit, termination."""

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine, Sequence

from gpusupervisor.clock import Clock
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import BusLost
from gpusupervisor.notify import Notifier
from gpusupervisor.privileged.service import PrivilegedService

EXIT_BUS_LOST = 1
TICK = 1.0
"""Seconds between two checks for idleness, and two watchdog notifications."""
IDLE_AFTER = 60.0
"""Seconds without a call after which the service exits, unless it holds something."""
AGAIN = 0.5
"""Seconds until a task is cancelled again: a library may swallow a cancellation, and systemd would wait."""
SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"

Spawn = Callable[[Coroutine[object, object, None]], asyncio.Task[None]]

_LOG = logging.getLogger(__name__)


class Life:
    """One run. SIGTERM and SIGINT end it."""

    def __init__(self, clock: Clock, idle_after: float, tick: float) -> None:
        self.notifier = Notifier(clock)
        self._idle_after = idle_after
        self._tick = tick
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._finish, 0)

    async def serve(
        self, service: PrivilegedService, begin: Callable[[Spawn], None], held: Callable[[], Sequence[str]], idle: str
    ) -> int:
        """Serve until it is ended, idle or without a bus; return the exit code.

        begin: starts the service's own tasks. held: what it controls, which keeps it running. idle: STATUS= while it
        controls nothing.
        """
        background: list[asyncio.Task[None]] = []
        async with asyncio.TaskGroup() as tasks:

            def spawn(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
                background.append(tasks.create_task(work))
                return background[-1]

            begin(spawn)
            spawn(self._tick_for_ever(service, held, idle))
            spawn(self._notice_loss_of(service))
            self.notifier.ready()
            code = await self._end
            while left := [task for task in background if not task.done()]:
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=AGAIN)
        return code

    def _finish(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    async def _tick_for_ever(self, service: PrivilegedService, held: Callable[[], Sequence[str]], idle: str) -> None:
        while True:
            holding = held()
            self.notifier.status(f"controls {', '.join(holding)}" if holding else idle)
            self.notifier.alive()
            if not holding and asyncio.get_running_loop().time() - service.last_call >= self._idle_after:
                await self._end_idle(service)
                return
            await asyncio.sleep(self._tick)

    async def _end_idle(self, service: PrivilegedService) -> None:
        """Send STOPPING=1 before the name is given up, so that a later call starts the unit again."""
        _LOG.debug("nothing is controlled and nobody calls: exiting until the next call")
        self.notifier.stopping()
        await service.leave()
        self._finish(0)

    async def _notice_loss_of(self, service: PrivilegedService) -> None:
        write(BusLost(await service.wait_lost()))
        self._finish(EXIT_BUS_LOST)
