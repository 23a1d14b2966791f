"""Whose a connection is: asked of the bus once, and remembered, for a unique name is never given twice."""

import asyncio
from collections.abc import Callable

from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import user_of

PATIENCE = 5.0
"""Seconds for the bus to say it."""
MOST_KNOWN = 4096
"""Connections that are remembered."""


class Users:
    """Of all who have called."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._uids: dict[str, int] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def of(self, sender: str) -> int | None:
        """The uid of a connection; None when it is not known (yet)."""
        return self._uids.get(sender)

    def look_up(self, sender: str, then: Callable[[str, int | None], None]) -> None:
        """Find out and call `then`: with None when the bus does not know. No-op while that is being done."""
        if sender not in self._tasks:
            self._tasks[sender] = asyncio.get_running_loop().create_task(self._ask(sender, then))

    async def _ask(self, sender: str, then: Callable[[str, int | None], None]) -> None:
        try:
            uid = await user_of(self._bus, sender, PATIENCE)
        finally:
            del self._tasks[sender]
        if uid is not None:
            if len(self._uids) >= MOST_KNOWN:
                del self._uids[next(iter(self._uids))]
            self._uids[sender] = uid
        then(sender, uid)

    async def close(self) -> None:
        """Ask no more."""
        tasks = list(self._tasks.values())
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
