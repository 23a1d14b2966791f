"""A peer that speaks to the bus over a bare socket, as any user: it pipelines, floods, does not read, and dies."""

import asyncio
import io
import os
import socket
import time
from dataclasses import dataclass, field
from typing import Self

from dbus_fast import Message, MessageFlag, MessageType
from dbus_fast._private.unmarshaller import Unmarshaller

from gpusupervisor.bus import names
from gpusupervisor.bus.connection import driver_call
from gpusupervisor.bus.frame import header

ATTACKER, HONEST = 65534, 1
"""nobody and daemon, which every system has: the bus lets no user in whom the system does not know."""
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
PEER = "org.freedesktop.DBus.Peer"


def call_of(
    path: str, interface: str, member: str, signature: str = "", *body: object, silent: bool = False
) -> Message:
    """A call of the service. silent: no answer is wanted."""
    flags = MessageFlag.NO_REPLY_EXPECTED if silent else MessageFlag.NONE
    return Message(names.BUS_NAME, path, interface, member, signature=signature, body=list(body), flags=flags)


def everything() -> Message:
    """The largest answer that there is."""
    return call_of(names.ROOT, OBJECT_MANAGER, "GetManagedObjects")


@dataclass
class RawPeer:
    """A connection; made by `connect`."""

    sock: socket.socket
    name: str = ""
    _serial: int = 0
    _buffer: bytearray = field(default_factory=bytearray)

    @classmethod
    async def connect(cls, address: str, uid: int | None = None) -> Self:
        """Let in by the bus as a user, where we may be one."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.setblocking(False)
        us = os.geteuid()
        if uid is None or us != 0:
            uid = us
        os.seteuid(uid)  # the kernel notes who connects
        try:
            sock.connect(address.partition("=")[2].partition(",")[0])
        finally:
            os.seteuid(us)
        peer = cls(sock)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, b"\0AUTH EXTERNAL " + str(uid).encode().hex().encode() + b"\r\n")
        assert (await loop.sock_recv(sock, 512)).startswith(b"OK ")
        await loop.sock_sendall(sock, b"BEGIN\r\n")
        peer.name = (await peer.ask(driver_call("Hello"))).body[0]
        return peer

    def packed(self, *messages: Message) -> bytes:
        """The bytes of messages, with serials of their own."""
        packed = bytearray()
        for message in messages:
            self._serial += 1
            message.serial = self._serial
            packed += message._marshall(False)
        return bytes(packed)

    async def send(self, *messages: Message) -> None:
        """All at once."""
        await asyncio.get_running_loop().sock_sendall(self.sock, self.packed(*messages))

    async def receive(self) -> Message:
        """The next message."""
        while (frame := header(self._buffer, 0)) is None or frame.end > len(self._buffer):
            arrived = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 18)
            if not arrived:
                raise EOFError("the bus has closed the connection")
            self._buffer += arrived
        content = io.BytesIO(self._buffer[: frame.end])
        del self._buffer[: frame.end]
        message = Unmarshaller(content).unmarshall()  # type: ignore[arg-type]  # it only reads
        assert message is not None
        return message

    async def answers(self, count: int) -> list[Message]:
        """So many answers."""
        found: list[Message] = []
        while len(found) < count:
            message = await self.receive()
            if message.message_type in (MessageType.METHOD_RETURN, MessageType.ERROR):
                found.append(message)
        return found

    async def ask(self, call: Message) -> Message:
        """The answer to one call."""
        await self.send(call)
        serial = self._serial
        while True:
            message = await self.receive()
            if message.reply_serial == serial:
                return message

    def die(self) -> None:
        """Gone at once, with all that was unread."""
        self.sock.close()


@dataclass
class Watch:
    """What an honest client, which asks all the time, waits for its answers."""

    waits: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def slowest(self) -> float:
        """Seconds."""
        return max(self.waits, default=0.0)

    @property
    def p99(self) -> float:
        """Seconds, of all but the slowest hundredth."""
        return sorted(self.waits)[max(0, len(self.waits) * 99 // 100 - 1)] if self.waits else 0.0

    async def ask_for_ever(self, peer: RawPeer, pause: float, patience: float = 30.0) -> None:
        """Ask what `status` asks, again and again."""
        questions = (
            (names.TENANTS_PATH, f"{names.BUS_NAME}.Tenants", "List"),
            (names.ENGINES_PATH, f"{names.BUS_NAME}.Engines", "List"),
            (names.ROOT, PEER, "Ping"),
        )
        turn = 0
        while True:
            path, interface, member = questions[turn % len(questions)]
            turn += 1
            began = time.monotonic()
            try:
                async with asyncio.timeout(patience):
                    answer = await peer.ask(call_of(path, interface, member))
            except (TimeoutError, OSError, EOFError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                return
            self.waits.append(time.monotonic() - began)
            if answer.message_type is MessageType.ERROR:
                self.failures.append(f"{answer.error_name}: {answer.body}")
            await asyncio.sleep(pause)
