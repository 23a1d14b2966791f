"""What dbus-fast's connection lacks: sending without a forgotten future, and calls that end."""

import asyncio

from dbus_fast import Message, MessageFlag, MessageType
from dbus_fast.aio import MessageBus

DRIVER_NAME = "org.freedesktop.DBus"
DRIVER_PATH = "/org/freedesktop/DBus"


def send(bus: MessageBus, message: Message) -> None:
    """Send and forget; nothing happens when the connection is gone. Raises when the body does not fit its signature."""
    if bus.connected:
        bus.send(message).add_done_callback(_forget)


def _forget(sent: "asyncio.Future[None]") -> None:
    """A connection that breaks is noticed where it is waited for; here it only has to count as seen."""
    if not sent.cancelled():
        sent.exception()


async def disconnection(bus: MessageBus) -> None:
    """Returns when we left the bus; raises when the connection broke."""
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


def driver_call(member: str, *arguments: str, reply: bool = True) -> Message:
    """A call of the bus itself, with string arguments."""
    return Message(
        destination=DRIVER_NAME,
        path=DRIVER_PATH,
        interface=DRIVER_NAME,
        member=member,
        signature="s" * len(arguments),
        body=list(arguments),
        flags=MessageFlag.NONE if reply else MessageFlag.NO_REPLY_EXPECTED,
    )


async def answer_of(bus: MessageBus, call: Message, patience: float) -> Message | None:
    """The answer to a call, an error too; None when there is none within `patience` seconds or the bus is gone."""
    try:
        async with asyncio.timeout(patience):  # wait_for would pass over a cancellation that comes with the answer
            return await bus.call(call)
    except (OSError, EOFError):  # TimeoutError is an OSError
        return None


async def user_of(bus: MessageBus, name: str, patience: float) -> int | None:
    """The uid of whoever has a bus name; None when the bus cannot tell, or not within `patience` seconds."""
    answer = await answer_of(bus, driver_call("GetConnectionUnixUser", name), patience)
    if answer is None or answer.message_type is not MessageType.METHOD_RETURN or answer.signature != "u":
        return None
    return int(answer.body[0])
