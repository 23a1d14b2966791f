"""When the next tick is due, and who waits to see what it shows.

A load that fails may be over within a second. So between two ticks memory alone is glanced at, and while a tenant grows
ticks follow each other quickly.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from gpusupervisor.clock import MICROSECONDS

SHOWN_WITHIN = 2.0
"""Seconds that a caller is kept waiting for what it changed to be seen; longer only when the driver hangs."""
GLANCE = MICROSECONDS // 2
"""Microseconds between two glances at memory."""
BRISK = MICROSECONDS // 4
"""Microseconds from tick to tick while a tenant grows."""
GROWTH = 64 << 20
"""Bytes from one tick to the next that only a load takes."""
GROWS_FOR = 2 * MICROSECONDS
"""After a tenant grew it may grow on, or fail, for so long."""
LONGEST_GROWTH = 30 * MICROSECONDS
"""A load that takes longer than this is looked at as everything else: it is not over within a second."""


class Pace:
    """Of one event loop."""

    def __init__(self) -> None:
        self._hurry = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._served: list[asyncio.Future[None]] = []
        """Those who wait for the tick that is under way."""
        self._held: Mapping[str, int] | None = None
        """By tenant; None before the first tick."""
        self._grew_at = self._grows_since = -LONGEST_GROWTH

    def tick_begins(self) -> None:
        """Who has waited up to now is served by this tick."""
        self._served, self._waiting = self._waiting, []

    def looked(self, now: int, held: Mapping[str, int]) -> None:
        """A tick has seen what each tenant holds, in bytes."""
        before = held if self._held is None else self._held
        if any(size - before.get(tenant, 0) >= GROWTH for tenant, size in held.items()):
            if now - self._grew_at >= GROWS_FOR:
                self._grows_since = now
            self._grew_at = now
        self._held = held

    def interval(self, now: int, usual: int) -> int:
        """Microseconds until the next tick. usual: unless a tenant grows."""
        grows = now - self._grew_at < GROWS_FOR and now - self._grows_since < LONGEST_GROWTH
        return min(usual, BRISK) if grows else usual

    async def pause(self, interval: int, moved: Callable[[], Awaitable[bool]] | None = None) -> None:
        """The tick is published: wait for microseconds until the next is due; not at all when one was asked for.

        moved: glances at memory; when much of it has moved, the next tick is due at once. None: nobody glances.
        """
        for waiting in self._served:
            if not waiting.done():
                waiting.set_result(None)
        left = interval
        while left > 0 and not await self._hurried(min(left, GLANCE) if moved else left):
            left -= GLANCE if moved else left
            if moved and left > 0 and await moved():
                return

    async def _hurried(self, within: int) -> bool:
        """Wait for microseconds; whether a tick was asked for meanwhile."""
        try:
            async with asyncio.timeout(within / MICROSECONDS):
                await self._hurry.wait()
        except TimeoutError:
            return False
        self._hurry.clear()
        return True

    async def shown(self) -> None:
        """Wait until a tick that begins from now on is published: a caller sees at once what it has changed."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        self._hurry.set()
        await asyncio.wait({waiting}, timeout=SHOWN_WITHIN)
