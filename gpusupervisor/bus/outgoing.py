"""What waits to be sent on a connection: in order, bounded by peer and in total, and never a reason to raise."""

import asyncio
import socket
from collections import Counter, deque
from collections.abc import Callable

from dbus_fast import ErrorType, Message, MessageType

MOST_FOR_ONE = 16 << 20
"""Bytes that wait for one peer; what is sent to all counts for a peer of its own."""
MOST_IN_ALL = 48 << 20
"""Bytes that wait for the bus."""
MESSAGE_OVERHEAD = 512
"""Bytes that a waiting message costs us beside its own."""


class Outgoing:
    """A queue before a socket. A connection that breaks is noticed where it is waited for, not here."""

    def __init__(self, sock: socket.socket, broken: Callable[[OSError], None]) -> None:
        """sock: connected, and not blocking. broken: called when it is no more."""
        self._sock = sock
        self._broken = broken
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[memoryview, str, asyncio.Future[None]]] = deque()
        self._offset = 0
        """Bytes of the first message that are sent."""
        self._waiting: Counter[str] = Counter()
        """Bytes by peer."""
        self._total = 0
        self._is_watching = False

    @property
    def total(self) -> int:
        """Bytes that wait."""
        return self._total

    def has_room(self, destination: str, size: int) -> bool:
        """Whether a message of so many bytes may still wait for a peer."""
        cost = size + MESSAGE_OVERHEAD
        return self._waiting[destination] + cost <= MOST_FOR_ONE and self._total + cost <= MOST_IN_ALL

    def send(self, message: Message) -> "tuple[asyncio.Future[None], int]":
        """Send as soon as the bus takes it; a future that is done when it is sent or dropped, and the bytes.

        Raises what marshalling raises when the body does not fit its signature.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        destination = message.destination or ""
        content = _marshalled(message)
        if not self.has_room(destination, len(content)):
            refusal = _too_much(message)
            if refusal is None or not self._has_margin(destination):
                done.set_result(None)
                return done, 0
            content = _marshalled(refusal)
        cost = len(content) + MESSAGE_OVERHEAD
        self._waiting[destination] += cost
        self._total += cost
        self._queue.append((content, destination, done))
        if not self._is_watching:
            self._write()
        return done, len(content)

    def _has_margin(self, destination: str) -> bool:
        """Whether a refusal may still wait, where what was asked for may not."""
        return self._waiting[destination] < 2 * MOST_FOR_ONE and self._total < 2 * MOST_IN_ALL

    def _write(self) -> None:
        """Send until the socket is full."""
        try:
            while self._queue:
                content, destination, done = self._queue[0]
                self._offset += self._sock.send(content[self._offset :])
                if self._offset < len(content):
                    continue
                self._offset = 0
                self._queue.popleft()
                cost = len(content) + MESSAGE_OVERHEAD
                self._total -= cost
                self._waiting[destination] -= cost
                if not self._waiting[destination]:
                    del self._waiting[destination]
                _finish(done)
        except (BlockingIOError, InterruptedError):
            self._watch()
            return
        except OSError as error:
            self.abandon()
            self._broken(error)
            return
        self._unwatch()

    def _watch(self) -> None:
        if not self._is_watching:
            self._is_watching = True
            self._loop.add_writer(self._sock.fileno(), self._write)

    def _unwatch(self) -> None:
        if self._is_watching:
            self._is_watching = False
            self._loop.remove_writer(self._sock.fileno())

    def abandon(self) -> None:
        """The connection has ended: whoever waits for a message to be sent waits no longer."""
        self._is_watching = False
        for _, _, done in self._queue:
            _finish(done)
        self._queue.clear()
        self._waiting.clear()
        self._total = self._offset = 0


def _finish(done: "asyncio.Future[None]") -> None:
    if not done.done():
        done.set_result(None)


def _marshalled(message: Message) -> memoryview:
    return memoryview(message._marshall(False))  # noqa: SLF001  (there is no other way to learn a message's size)


def _too_much(message: Message) -> Message | None:
    """What is sent in place of an answer for which there is no room; None for what nobody waits for."""
    if message.message_type not in (MessageType.METHOD_RETURN, MessageType.ERROR):
        return None
    return Message(
        message_type=MessageType.ERROR,
        error_name=ErrorType.LIMITS_EXCEEDED,
        reply_serial=message.reply_serial,
        destination=message.destination,
        serial=message.serial,
        signature="s",
        body=["Too much waits to be read by you: read the answers that you have asked for, then ask again."],
    )
