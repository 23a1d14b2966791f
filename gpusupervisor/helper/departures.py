"""Learning that a caller has left the bus: of what it set, nobody is left to take care."""

from collections.abc import Callable

from dbus_fast import Message
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import DRIVER_NAME, answer_of, driver_call, send, user_of

PATIENCE = 5.0
"""Seconds in which the bus must answer; a caller of which it says nothing counts as gone."""


class Departures:
    """Follows callers by their unique names, which the bus never gives out twice."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self._there: set[str] = set()
        bus.add_message_handler(self._take)

    async def follow(self, name: str) -> Callable[[], bool]:
        """A function that tells whether the caller has left, now or at any later time."""
        if name not in self._there:
            self._there.add(name)
            await answer_of(self._bus, driver_call("AddMatch", _departure_of(name)), PATIENCE)
            if await user_of(self._bus, name, PATIENCE) is None:  # it may have left before we listened
                self._there.discard(name)
        return lambda: name not in self._there

    def _take(self, message: Message) -> None:
        if message.sender != DRIVER_NAME or message.member != "NameOwnerChanged":
            return
        name, _, owner = message.body
        if name in self._there and not owner:
            self._there.discard(name)
            send(self._bus, driver_call("RemoveMatch", _departure_of(name), reply=False))


def _departure_of(name: str) -> str:
    return f"type='signal',sender='{DRIVER_NAME}',member='NameOwnerChanged',arg0='{name}',arg2=''"
