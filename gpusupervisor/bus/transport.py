"""A connection to the bus that no peer can bring down: what goes out and what comes in passes here, bounded.

dbus-fast's own writer (5.2.0) takes a message that is half written for an empty queue, writes to a full socket, and
drops the connection on EAGAIN; its reader parses whatever arrives, of any size, until the socket is empty. This module
replaces both; with `outgoing` it is the only one that touches what dbus-fast does not promise to keep: how it opens a
socket, `_process_message`, `_finalize`, the unmarshaller and `Message._marshall`. dbus/doc/ has the patch for upstream.
"""

import asyncio
import io
import socket
from collections.abc import Callable

from dbus_fast import BusType, ErrorType, Message, MessageFlag, MessageType
from dbus_fast._private.unmarshaller import Unmarshaller
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError

from gpusupervisor.bus.connection import driver_call
from gpusupervisor.bus.frame import Frame, header
from gpusupervisor.bus.outgoing import Outgoing

LARGEST_CALL = 512 << 10
"""Bytes of a call or a signal that is parsed; answers to our own calls may be as large as the bus lets them be."""
READ_SIZE = 256 << 10
TURN = 0.005
"""Seconds of reading and parsing at a stretch; then everything else has its turn."""

Accept = Callable[[Frame], bool]
"""Whether a message may come in, by its header alone."""
Charge = Callable[[str, int, "asyncio.Future[None]"], None]
"""Takes a destination, empty for all, bytes, and a future that is done when they have left."""


def accept_all(_frame: Frame) -> bool:
    """Where everybody is trusted."""
    return True


def charge_nobody(_destination: str, _size: int, _done: "asyncio.Future[None]") -> None:
    """Where everybody is trusted."""


class BusConnection(MessageBus):
    """dbus-fast's connection with our own writer and reader. Takes no file descriptors."""

    def __init__(self, bus_address: str | None = None, bus_type: BusType = BusType.SYSTEM, *, patience: float) -> None:
        """patience: seconds for the bus to let us in."""
        super().__init__(bus_address, bus_type, auth_timeout=patience)
        self._again = (bus_address, bus_type, patience)
        self.accept: Accept = accept_all
        """Asked of every call and every signal that arrives, before it is parsed."""
        self.charge: Charge = charge_nobody
        """Called with every message that is sent."""
        self._link: socket.socket | None = None
        self._outgoing: Outgoing | None = None
        self._incoming = bytearray()
        self._skip = 0
        """Bytes that are still to come of a message that is not looked into."""
        self._resumed: asyncio.Handle | None = None

    @property
    def waiting(self) -> int:
        """Bytes that wait to be sent."""
        return self._outgoing.total if self._outgoing else 0

    async def connect(self) -> "BusConnection":
        """See MessageBus.

        Not by its means: its reader would already have bytes of the next message when ours took over.
        """
        link = await self._open()
        try:
            await self._authenticate()
            self._outgoing = Outgoing(link, self._finalize)
            self._loop.add_reader(link, self._read)
            hello = await self.call(driver_call("Hello"))
        except BaseException:
            self._give_up()
            raise
        if hello.message_type is not MessageType.METHOD_RETURN:
            self._give_up()
            raise AuthError(f"the bus refused us: {hello.error_name}")
        self.unique_name = hello.body[0]
        return self

    async def another(self) -> "BusConnection":
        """A second connection to the same bus. Raises as `connect` does."""
        address, bus_type, patience = self._again
        async with asyncio.timeout(patience):
            return await BusConnection(address, bus_type, patience=patience).connect()

    def _give_up(self) -> None:
        """Close what was opened; nobody waits for its end yet."""
        self._user_disconnect = True
        self._finalize()

    async def _open(self) -> socket.socket:
        """The socket, connected to the first address that can be reached; raises what the last one failed with."""
        failure: OSError = FileNotFoundError("no address of a bus")
        for transport, options in self._bus_address:
            sock, stream, address = self._create_socket_for_transport(transport, options)
            sock.setblocking(False)
            try:
                await self._loop.sock_connect(sock, address)
            except BaseException as error:
                stream.close()
                sock.close()
                if not isinstance(error, OSError):
                    raise
                failure = error
            else:
                self._sock = self._link = sock
                self._stream, self._fd = stream, sock.fileno()
                return sock
        raise failure

    def send(self, msg: Message) -> "asyncio.Future[None]":  # type: ignore[override]  # as in MessageBus
        """Send when the bus takes it; the future never fails. Raises when the body does not fit its signature."""
        if not msg.serial:
            msg.serial = self.next_serial()
        if self._outgoing is None or self._disconnected:
            done: asyncio.Future[None] = self._loop.create_future()
            done.set_result(None)
            return done
        done, size = self._outgoing.send(msg)
        self.charge(msg.destination or "", size, done)
        return done

    async def call(self, msg: Message) -> Message:
        """See MessageBus. Raises EOFError at once where the connection has ended."""
        if self._disconnected:
            raise EOFError("the connection to the bus has ended")
        return await super().call(msg)

    def _read(self) -> None:
        assert self._link is not None
        try:
            arrived = self._link.recv(READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._finalize(error)
            return
        if not arrived:
            self._finalize(EOFError())
            return
        skipped = min(self._skip, len(arrived))
        self._skip -= skipped
        self._incoming += arrived[skipped:]
        self._take_in()

    def _take_in(self) -> None:
        """Take messages in for one turn; reading pauses while some are left over."""
        self._resumed = None
        end = self._loop.time() + TURN
        position = 0
        try:
            while not self._disconnected and (frame := header(self._incoming, position)) is not None:
                if not (taken := self._take_frame(frame)):
                    break
                position += taken
                if self._loop.time() > end:
                    self._resumed = self._loop.call_soon(self._take_in)
                    break
        except ValueError as error:  # the stream has lost its thread: no message could be told from another any more
            self._finalize(error)
        if self._disconnected:
            self._incoming.clear()
            return
        del self._incoming[:position]
        assert self._link is not None
        if self._resumed:
            self._loop.remove_reader(self._link)
        else:
            self._loop.add_reader(self._link, self._read)

    def _take_frame(self, frame: Frame) -> int:
        """The bytes that are done with; 0 while the message is not all there."""
        there = min(frame.end, len(self._incoming))
        if not frame.is_answer and frame.size > LARGEST_CALL:
            self._skip = frame.end - there
            if self.accept(frame) and frame.wants_answer:
                why = f"A call may have {LARGEST_CALL >> 10} KiB at most; this one has {frame.size >> 10}."
                self.refuse(frame, why)
        elif frame.end > there:
            return 0
        elif frame.is_answer or self.accept(frame):
            self._process(frame)
        return there - frame.start

    def _process(self, frame: Frame) -> None:
        content = io.BytesIO(self._incoming[frame.start : frame.end])
        message = Unmarshaller(content).unmarshall()  # type: ignore[arg-type]  # it only reads
        if message is not None:
            self._process_message(message)

    def refuse(self, frame: Frame, why: str) -> None:
        """Answer a call without looking into it."""
        self.send(
            Message(
                message_type=MessageType.ERROR,
                flags=MessageFlag.NO_REPLY_EXPECTED,
                error_name=ErrorType.LIMITS_EXCEEDED,
                reply_serial=frame.serial,
                destination=frame.sender,
                signature="s",
                body=[why],
            )
        )

    def _finalize(self, err: Exception | None = None) -> None:
        if self._outgoing:
            self._outgoing.abandon()
        if self._resumed:
            self._resumed.cancel()
            self._resumed = None
        super()._finalize(err)
