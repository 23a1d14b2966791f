"""What waits to be sent is in order and bounded, and a socket that is full or gone raises nowhere."""

import asyncio
import io
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from dbus_fast import Message, MessageType
from dbus_fast._private.unmarshaller import Unmarshaller

from gpusupervisor.bus import outgoing
from gpusupervisor.bus.frame import header
from gpusupervisor.bus.outgoing import Outgoing


@dataclass
class Pipe:
    """A queue, and the other end of its socket."""

    queue: Outgoing
    other: socket.socket
    broken: list[OSError] = field(default_factory=list)

    def answer(self, peer: str, size: int, serial: int = 1) -> "asyncio.Future[None]":
        message = Message(
            message_type=MessageType.METHOD_RETURN, destination=peer, reply_serial=serial, serial=serial,
            signature="s", body=["x" * size],
        )  # fmt: skip
        return self.queue.send(message)[0]

    async def received(self, count: int) -> list[Message]:
        """So many messages, read to the end."""
        buffer = bytearray()
        found: list[Message] = []
        async with asyncio.timeout(30):
            while len(found) < count:
                buffer += await asyncio.get_running_loop().sock_recv(self.other, 1 << 20)
                while (frame := header(buffer, 0)) is not None and frame.end <= len(buffer):
                    message = Unmarshaller(io.BytesIO(buffer[: frame.end])).unmarshall()  # type: ignore[arg-type]
                    assert message is not None
                    found.append(message)
                    del buffer[: frame.end]
        return found


@pytest.fixture
async def pipe() -> AsyncIterator[Pipe]:
    ours, other = socket.socketpair()
    ours.setblocking(False)
    other.setblocking(False)
    broken: list[OSError] = []
    pipe = Pipe(Outgoing(ours, broken.append), other, broken)
    yield pipe
    pipe.queue.abandon()
    ours.close()
    other.close()


async def test_messages_larger_than_the_socket_arrive_whole_and_in_order(pipe: Pipe) -> None:
    sent = [pipe.answer(":1.1", 300_000, serial) for serial in range(1, 31)]
    assert pipe.queue.total > 0
    messages = await pipe.received(30)
    assert [message.reply_serial for message in messages] == list(range(1, 31))
    await asyncio.gather(*sent)
    assert pipe.queue.total == 0


async def test_what_one_peer_does_not_get_is_refused_and_another_peer_gets_its_own(pipe: Pipe) -> None:
    for serial in range(1, 60):
        pipe.answer(":1.1", 1 << 20, serial)
    assert pipe.queue.total <= outgoing.MOST_FOR_ONE + (1 << 20)
    pipe.answer(":1.2", 1000, 99)
    messages = await pipe.received(60)
    refused = [message for message in messages if message.message_type is MessageType.ERROR]
    assert {message.error_name for message in refused} == {"org.freedesktop.DBus.Error.LimitsExceeded"}
    assert len(refused) > 40
    assert messages[-1].destination == ":1.2"
    assert messages[-1].message_type is MessageType.METHOD_RETURN


async def test_all_that_waits_is_bounded_whoever_it_is_for(pipe: Pipe) -> None:
    for peer in range(200):
        pipe.answer(f":1.{peer}", 1 << 20)
    assert pipe.queue.total <= outgoing.MOST_IN_ALL + (1 << 20)


async def test_signals_beyond_the_bound_are_dropped_without_a_word(pipe: Pipe) -> None:
    dropped = [pipe.queue.send(Message.new_signal("/x", "a.B", "C", "s", ["x" * (1 << 20)])) for _ in range(60)]
    assert dropped[-1][1] == 0
    assert dropped[-1][0].done()
    assert pipe.queue.total <= outgoing.MOST_FOR_ONE + (1 << 20)


async def test_a_connection_that_is_gone_is_told_once_and_raises_nowhere(pipe: Pipe) -> None:
    pipe.other.close()
    sent = [pipe.answer(":1.1", 100_000, serial) for serial in range(1, 4)]
    assert pipe.broken
    assert all(each.done() for each in sent[:1])
    assert pipe.queue.total == 0
