"""When the next tick is due, and who waits to see what it shows."""

import asyncio

from gpusupervisor.clock import MICROSECONDS

SHOWN_WITHIN = 2.0
"""Seconds that a caller is kept waiting for what it changed to be seen; longer only when the driver hangs."""


class Pace:
    """Of one event loop."""

    def __init__(self) -> None:
        self._hurry = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._served: list[asyncio.Future[None]] = []
        """Those who wait for the tick that is under way."""

    def tick_begins(self) -> None:
        """Who has waited up to now is served by this tick."""
        self._served, self._waiting = self._waiting, []

    async def pause(self, interval: int) -> None:
        """The tick is published: wait for microseconds until the next is due; not at all when one was asked for."""
        for waiting in self._served:
            if not waiting.done():
                waiting.set_result(None)
        try:
            async with asyncio.timeout(interval / MICROSECONDS):
                await self._hurry.wait()
        except TimeoutError:
            return
        self._hurry.clear()

    async def shown(self) -> None:
        """Wait until a tick that begins from now on is published: a caller sees at once what it has changed."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._hurry.set()
        await asyncio.wait({waiting}, timeout=SHOWN_WITHIN)
