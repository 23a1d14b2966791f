"""One HTTP/1.1 connection: h11 on an asyncio stream.

Not httpx, because a tick asks several engines: a request costs 0.3 ms of CPU here and 0.9 ms there, and what
httpx adds (redirects, cookies, proxies, decompression) is all unwanted.
"""

import asyncio
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import h11

from gpusupervisor.engine_http.address import is_own_address
from gpusupervisor.engine_http.answer import Answer, BadAnswer, NotAllowed, Unreachable

MAX_BODY = 1 << 20
"""Bytes of an answer that are read; a longer one is an error, never a truncated parse."""
MAX_HEAD = 32 << 10
CHUNK = 64 << 10


class Connection:
    """A connection to one address, for one exchange at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._protocol = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD)
        self._heard = False
        """Something of the answer has come."""
        self.idle_since = 0.0
        """When it was last put back, in seconds of the event loop's clock."""

    @classmethod
    async def open(cls, host: str, port: int, *, tls: bool, here: bool = False) -> "Connection":
        """Connect. here: nobody but this machine may be at the other end, whatever its name leads to.

        Raises Unreachable, BadAnswer, NotAllowed.
        """
        try:
            reader, writer = await asyncio.open_connection(host, port, limit=CHUNK, ssl=_unverified() if tls else None)
        except ssl.SSLError:
            raise BadAnswer("does not speak TLS") from None
        except UnicodeError:
            raise NotAllowed(f"{host} is not a name that a host can have") from None
        except OSError:
            raise _nobody(host, port) from None
        peer = writer.get_extra_info("peername")
        if peer is None:  # it hung up at once, as a container's port does while nothing listens in the container
            writer.transport.abort()
            raise _nobody(host, port)
        if here and not is_own_address(peer[0]):
            writer.transport.abort()
            raise NotAllowed(f"{host} should be this machine, but resolves to another")
        return cls(reader, writer)

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent: the last exchange ended well and the peer has not closed."""
        return self._protocol.our_state is h11.IDLE and not self._reader.at_eof()

    async def exchange(
        self, verb: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, largest: int = MAX_BODY
    ) -> Answer:
        """Send a request and read the whole answer, of `largest` bytes at most.

        Raises BadAnswer, NotAllowed (the request cannot be sent as described), EOFError when the peer closed
        without a word.
        """
        with _own_mistakes_told():
            request = h11.Request(method=verb, target=target, headers=list(headers))
            parts = (request, h11.Data(body), h11.EndOfMessage()) if body else (request, h11.EndOfMessage())
            data = b"".join(self._protocol.send(part) or b"" for part in parts)
        self._heard = False
        with self._peers_mistakes_told():
            self._writer.write(data)
            await self._writer.drain()
            answer = await self._read(largest)
            if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
                self._protocol.start_next_cycle()
        return answer

    async def _read(self, largest: int) -> Answer:
        response, body = await self._head(), bytearray()
        if 300 <= response.status_code < 400:
            raise BadAnswer("answered with a redirect, which is not followed")
        headers = dict(response.headers)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise BadAnswer("answered in a compression that was not asked for")
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > largest:
                raise BadAnswer(f"answered more than {largest >> 20} MiB")
        return Answer(response.status_code, bytes(body), headers.get(b"content-type", b"").decode("latin-1"))

    async def _head(self) -> h11.Response:
        while not isinstance(event := await self._event(), h11.Response):
            if not isinstance(event, h11.InformationalResponse):
                raise BadAnswer("closed the connection before a whole answer")
        return event

    async def _event(self) -> h11.Event:
        while (event := self._protocol.next_event()) is h11.NEED_DATA:
            data = await self._reader.read(CHUNK)
            if not data and not self._heard:
                raise EOFError
            self._heard = True
            self._protocol.receive_data(data)
        if not isinstance(event, h11.Event):  # h11.PAUSED
            raise BadAnswer("switched to another protocol")
        return event

    @contextmanager
    def _peers_mistakes_told(self) -> Iterator[None]:
        try:
            yield
        except (h11.RemoteProtocolError, OSError):
            if not self._heard:
                raise EOFError from None
            raise BadAnswer("closed the connection before a whole answer, or does not speak HTTP") from None

    def abort(self) -> None:
        """Drop it at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Drop it and wait until it is gone."""
        self.abort()
        try:
            await self._writer.wait_closed()
        except OSError:
            return  # the peer was faster


def _nobody(host: str, port: int) -> Unreachable:
    shown = f"[{host}]" if ":" in host else host
    return Unreachable(f"nothing listens at {shown}:{port}")


@contextmanager
def _own_mistakes_told() -> Iterator[None]:
    try:
        yield
    except (h11.LocalProtocolError, UnicodeEncodeError):
        raise NotAllowed("the request as described cannot be sent") from None


def _unverified() -> ssl.SSLContext:
    """Certificates are not checked: an engine's own on loopback is self-signed, and what another machine
    answers releases nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
