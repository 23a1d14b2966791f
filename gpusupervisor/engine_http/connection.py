"""One HTTP/1.1 connection: h11 on an asyncio stream.

Not httpx, because a tick asks several engines: a request costs 0.3 ms of CPU here and 0.9 ms there, and what
httpx adds (redirects, cookies, proxies, decompression) is all unwanted.
"""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import h11

from gpusupervisor.engine_http.address import is_own_address
from gpusupervisor.engine_http.answer import Answer, BadAnswer, HttpError, NoRoute, NotAllowed, NotTls, Unreachable
from gpusupervisor.engine_http.failures import connect_failure, place, tls_failure, unix_failure
from gpusupervisor.engine_http.peer import Peer
from gpusupervisor.engine_http.tls import check_fingerprint, context_for

MAX_BODY = 1 << 20
"""Bytes of an answer that are read; a longer one is an error, never a truncated parse."""
MAX_HEAD = 32 << 10
CHUNK = 64 << 10
MAX_ADDRESSES = 4
"""Addresses of one name that are tried."""
_TLS_ALERT = b"\x15\x03"

_Resolved = tuple[socket.AddressFamily, tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a connection leads, and what must be there."""

    host: str
    port: int
    tls: bool
    peer: Peer
    here: bool
    """The address is this machine's, so nothing else may be at the other end."""
    has_key: bool = False
    """A key will be sent."""
    path: str = ""
    """Of a Unix socket, in the place of host and port."""

    @property
    def where(self) -> str:
        """The address for a person."""
        return self.path or place(self.host, self.port)


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
    async def open(cls, target: Target, accepted: Callable[[], None] = lambda: None) -> "Connection":
        """Connect, and make sure that what is at the other end may be asked. Nothing is sent before that.

        accepted: called when the connection is accepted, before a TLS handshake.

        Raises HttpError, TimeoutError.
        """
        connected = await _connect(target)
        accepted()
        try:
            await _verify(connected, target)
            reader, writer = await asyncio.open_connection(sock=connected, limit=CHUNK)
        except BaseException:
            connected.close()
            raise
        if target.tls:
            try:
                await _start_tls(writer, target)
            except BaseException:
                writer.transport.abort()
                raise
        return cls(reader, writer)

    @property
    def reusable(self) -> bool:
        """Whether another request can be sent: the last exchange ended well and the peer has not closed."""
        return self._protocol.our_state is h11.IDLE and not self._reader.at_eof()

    async def exchange(
        self,
        verb: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        largest: int = MAX_BODY,
        until: re.Pattern[bytes] | None = None,
    ) -> Answer:
        """Send a request and read the whole answer, of `largest` bytes at most. until: of an answer without an
        end, read up to where this is found; what was found is the answer's body.

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
            answer = await self._read(largest, until)
            if self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE:
                self._protocol.start_next_cycle()
        return answer

    async def _read(self, largest: int, until: re.Pattern[bytes] | None) -> Answer:
        response, body = await self._head(), bytearray()
        if 300 <= response.status_code < 400:
            raise BadAnswer("answered with a redirect, which is not followed")
        headers = dict(response.headers)
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise BadAnswer("answered in a compression that was not asked for")
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if until is not None and (found := until.search(body)):
                body = bytearray(found[0])
                break
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
            if not self._heard and data.startswith(_TLS_ALERT):
                raise NotTls("speaks TLS: its address has to begin with https")
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


@contextmanager
def _own_mistakes_told() -> Iterator[None]:
    try:
        yield
    except (h11.LocalProtocolError, UnicodeEncodeError):
        raise NotAllowed("the request as described cannot be sent") from None


async def _connect(target: Target) -> socket.socket:
    """A connected socket. Raises HttpError: of several addresses, for the last one."""
    loop = asyncio.get_running_loop()
    if target.path:
        return await _connect_one(socket.AF_UNIX, target.path, lambda error: unix_failure(error, target.path))
    failure: HttpError = NoRoute(f"cannot be reached: the name {target.host} does not resolve")
    for family, address in await _resolve(loop, target):
        try:
            return await _connect_one(family, address, lambda error: connect_failure(error, target.host, target.port))
        except HttpError as error:
            failure = error
    raise failure


async def _connect_one(
    family: socket.AddressFamily, address: tuple[Any, ...] | str, meaning: Callable[[OSError], HttpError]
) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, address)
    except OSError as error:
        connecting.close()
        raise meaning(error) from None
    except BaseException:
        connecting.close()
        raise
    return connecting


async def _resolve(loop: asyncio.AbstractEventLoop, target: Target) -> list[_Resolved]:
    try:
        version = ipaddress.ip_address(target.host).version
    except ValueError:
        pass
    else:
        return [(socket.AF_INET if version == 4 else socket.AF_INET6, (target.host, target.port))]
    try:
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise NotAllowed(f"{target.host} is not a name that a host can have") from None
    except OSError as error:
        raise connect_failure(error, target.host, target.port) from None
    return [(family, address) for family, _, _, _, address in found[:MAX_ADDRESSES]]


async def _verify(connected: socket.socket, target: Target) -> None:
    """Raise HttpError unless the other end may be asked."""
    if not target.path:
        try:
            address = connected.getpeername()[0]
        except OSError:  # it hung up at once, as a container's port does while nothing listens in the container
            raise Unreachable(f"nothing listens at {target.where}") from None
        if not is_own_address(address.partition("%")[0]):
            if target.here:
                raise NotAllowed(f"{target.host} should be this machine, but resolves to another")
            return
    await asyncio.to_thread(target.peer.verify, connected, target.where, has_key=target.has_key)


async def _start_tls(writer: asyncio.StreamWriter, target: Target) -> None:
    context = await asyncio.to_thread(context_for, target.peer, here=target.here)
    try:
        await writer.start_tls(context, server_hostname=target.host)
    except ssl.SSLError as error:
        raise tls_failure(error, target.where) from None
    except OSError:
        raise NotTls(f"does not speak TLS at {target.where}, or ended the handshake") from None
    check_fingerprint(target.peer, writer.get_extra_info("ssl_object"), target.where)
