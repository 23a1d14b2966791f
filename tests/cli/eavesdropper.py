"""Hears every call that is made to the service on a bus of one's own."""

import asyncio
import itertools

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus import names


class Eavesdropper:
    """Notes when each call was made, and which."""

    def __init__(self, bus: MessageBus) -> None:
        self._bus = bus
        self.calls: list[tuple[float, str]] = []
        """Seconds of the event loop's clock, and the member."""

    @classmethod
    async def on(cls, address: str) -> "Eavesdropper":
        bus = await MessageBus(address).connect()
        one = cls(bus)
        bus.add_message_handler(one._hear)
        monitoring = Message(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.Monitoring", "BecomeMonitor",
            signature="asu", body=[[f"type='method_call',destination='{names.BUS_NAME}'"], 0],
        )  # fmt: skip
        reply = await bus.call(monitoring)
        assert reply is not None
        assert reply.message_type is MessageType.METHOD_RETURN, reply.body
        return one

    def _hear(self, message: Message) -> bool:
        """True, as a monitor must not answer."""
        if message.message_type is MessageType.METHOD_CALL and message.destination == names.BUS_NAME:
            self.calls.append((asyncio.get_running_loop().time(), message.member or ""))
        return message.message_type is MessageType.METHOD_CALL

    @property
    def closest(self) -> float:
        """The shortest time between two calls."""
        times = [at for at, _ in self.calls]
        return min((later - earlier for earlier, later in itertools.pairwise(times)), default=float("inf"))

    async def close(self) -> None:
        self._bus.disconnect()
        await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
