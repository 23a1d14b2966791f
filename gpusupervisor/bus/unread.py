"""What users have been sent and have not read, which the bus keeps for them at our expense.

dbus-daemon stops reading from a connection of which 127 MiB wait anywhere to be read: one peer that asks and never
reads would silence us for everybody. So whoever has been sent much is looked up in the bus's statistics before more is
made. dbus-broker, which has no such statistics, charges those who do not read.
"""

import asyncio

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import DRIVER_NAME, DRIVER_PATH, answer_of

MOST_UNREAD = 8 << 20
"""Bytes of one user."""
TRICKLE = 256 << 10
"""Bytes a second that are taken for read where the bus does not tell."""
PATIENCE = 5.0
STATISTICS = "org.freedesktop.DBus.Debug.Stats"


class Unread:
    """By user and connection."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._sent: dict[int, dict[str, int]] = {}
        """Bytes since it was last known how much of them was read, and those that were not read then."""
        self._looked_at: dict[int, float] = {}

    def sent(self, uid: int, name: str, size: int) -> None:
        """A connection of a user was sent so many bytes."""
        of_user = self._sent.setdefault(uid, {})
        of_user[name] = of_user.get(name, 0) + size

    def is_doubtful(self, uid: int) -> bool:
        """Whether a user may have left too much unread: `look` finds out."""
        return sum(self._sent.get(uid, {}).values()) > MOST_UNREAD

    def is_deaf(self, uid: int) -> bool:
        """Whether not even refusals are worth being sent any more."""
        return sum(self._sent.get(uid, {}).values()) > 2 * MOST_UNREAD

    async def look(self, uid: int) -> None:
        """Learn what a user has not read."""
        now = asyncio.get_running_loop().time()
        forgiven = int((now - self._looked_at.pop(uid, now)) * TRICKLE)
        for name, size in list(self._sent.get(uid, {}).items()):
            waiting = await self._waiting(name)
            if waiting is None:
                waiting = max(0, size - forgiven)
            if waiting:
                self._sent[uid][name] = waiting
            else:
                self._sent[uid].pop(name, None)
        if not self._sent.get(uid):
            self._sent.pop(uid, None)
        else:
            self._looked_at[uid] = now

    async def _waiting(self, name: str) -> int | None:
        """Bytes that the bus keeps for a connection, 0 for one that has left; None when it does not tell."""
        question = Message(
            DRIVER_NAME, DRIVER_PATH, STATISTICS, "GetConnectionStats", signature="s", body=[name]
        )  # fmt: skip
        answer = await answer_of(self._bus, question, PATIENCE)
        if answer is None:
            return None
        if answer.message_type is MessageType.ERROR:
            return 0 if (answer.error_name or "").endswith("NameHasNoOwner") else None
        told = answer.body[0].get("OutgoingBytes") if answer.signature == "a{sv}" else None
        return int(told.value) if told is not None and told.signature in ("u", "t") else None
