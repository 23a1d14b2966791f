"""The one HTTP client with which engines are asked: bounded in time and size, and it follows nobody."""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from gpusupervisor import __version__
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.engine_http.address import connectable, is_local
from gpusupervisor.engine_http.answer import Answer, BadAnswer, ForeignSocket, HttpError, NotAllowed, NotTls, TimedOut
from gpusupervisor.engine_http.connection import MAX_BODY, Connection, Target
from gpusupervisor.engine_http.failures import slow_connect
from gpusupervisor.engine_http.keys import ROOT, Header, has_key, read_headers
from gpusupervisor.engine_http.peer import NO_USERS, Peer
from gpusupervisor.engine_http.refusals import Refusals
from gpusupervisor.foreign_text import harmless

KEEP_ALIVE = 30.0
"""Seconds an idle connection is kept: longer than the slowest cadence of looks."""
MAX_IDLE = 32
"""Idle connections that are kept."""
SHUNNED_FOR = 15.0
"""Seconds for which an address whose socket is not the tenant's is not connected to again."""
MAX_SHUNNED = 256
HANDSHAKE = 1.0
"""Seconds in which a server that closed a plain connection without a word must show that it speaks TLS."""

_HEADERS = (
    ("Accept", "application/json, text/plain;q=0.5"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", f"gpusupervisor/{__version__}"),
)


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a connection must agree in to be used for a request."""

    origin: str
    """ "http://127.0.0.1:11434", or "unix:/run/x.sock"."""
    peer: Peer
    has_key: bool

    def target(self) -> Target:
        """Where it leads."""
        parts = urlsplit(self.origin)
        return Target(
            host=parts.hostname or "",
            port=parts.port or _port(parts.scheme),
            tls=parts.scheme == "https",
            peer=self.peer,
            here=is_local(self.origin),
            has_key=self.has_key,
            path="" if parts.netloc else parts.path,
        )


Heard = Callable[[str, str, str, "Answer | HttpError"], None]
"""Takes verb, address, path, and what came of it."""


@dataclass(slots=True)
class _Exchange:
    """One request."""

    kind: _Kind
    verb: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: bytes
    largest: int
    until: re.Pattern[bytes] | None
    stage: Literal["connecting", "handshaking", "asking"] = "connecting"
    """What takes long."""

    def accepted(self) -> None:
        """The connection is there."""
        self.stage = "handshaking"


class EngineHttp:
    """Asks engines. One for the whole daemon, for concurrent tasks of one loop; keeps connections alive."""

    def __init__(self, key_owner: int = ROOT, heard: Heard | None = None) -> None:
        """key_owner: who must own the files that hold keys; root but in tests. heard: takes down what is answered."""
        self._key_owner = key_owner
        self._heard = heard
        self._idle: deque[tuple[_Kind, Connection]] = deque()
        self._shunned: dict[_Kind, tuple[float, ForeignSocket]] = {}
        """Until when, in seconds of the event loop's clock."""
        self._refusals = Refusals()

    def forget_refusals(self, base: str) -> None:
        """Ask the server at an address again what it refused, without waiting any longer."""
        with suppress(NotAllowed):  # where nobody can be asked, nothing was refused
            self._refusals.forget(connectable(base))

    async def get(
        self,
        base: str,
        path: str,
        *,
        timeout: int,  # noqa: ASYNC109
        headers: Sequence[Header] = (),
        remote: bool = False,
        peer: Peer = NO_USERS,
        until: re.Pattern[bytes] | None = None,
    ) -> Answer:
        """GET `path` at `base`; see `request`."""
        return await self.request(
            "GET", base, path, timeout=timeout, headers=headers, remote=remote, peer=peer, until=until
        )

    async def request(
        self,
        verb: str,
        base: str,
        path: str,
        *,
        timeout: int,  # noqa: ASYNC109  (microseconds, over the whole exchange)
        body: bytes | None = None,
        headers: Sequence[Header] = (),
        remote: bool = False,
        largest: int = MAX_BODY,
        peer: Peer = NO_USERS,
        until: re.Pattern[bytes] | None = None,
    ) -> Answer:
        """Send one request and read the whole answer.

        path: begins with "/", query included, already encoded. timeout: microseconds for everything,
        connecting included. headers: keys are read from their files now. remote: `base` may be another machine.
        largest: bytes of a body that are read. peer: what must be at the other end before anything is sent.
        until: of an answer without an end, read up to where this is found, which is the answer's body.
        Redirects are not followed. What a GET was refused (status 401, 403, 407 or 429) is answered from memory for a
        while, see `Refusals`.
        Raises HttpError.
        """
        address = connectable(base)
        if not remote and not is_local(address):
            raise NotAllowed(f"{address} is not on this machine")
        if self._heard is None:
            return await self._request(verb, address, path, timeout, body, headers, largest, peer, until)
        try:
            answer = await self._request(verb, address, path, timeout, body, headers, largest, peer, until)
        except HttpError as error:
            self._heard(verb, address, path, error)
            raise
        self._heard(verb, address, path, answer)
        return answer

    async def _request(
        self,
        verb: str,
        address: str,
        path: str,
        timeout: int,  # noqa: ASYNC109  (see `request`)
        body: bytes | None,
        headers: Sequence[Header],
        largest: int,
        peer: Peer,
        until: re.Pattern[bytes] | None,
    ) -> Answer:
        parts = urlsplit(address)
        host = parts.netloc or "localhost"
        told = await self._told(headers)
        loop = asyncio.get_running_loop()
        refused = self._refusals.remembered(address, path, told, loop.time()) if verb == "GET" else None
        all_headers = [("Host", host), *_HEADERS, *told]
        if body is not None or verb != "GET":
            all_headers.append(("Content-Length", str(len(body or b""))))
        prefix = parts.path if parts.netloc else ""
        kind = _Kind(address.removesuffix(prefix) if prefix else address, peer, has_key(headers))
        exchange = _Exchange(kind, verb, prefix + path, all_headers, body or b"", largest, until)
        try:
            async with asyncio.timeout(timeout / MICROSECONDS):
                if refused is not None:
                    await self._see(exchange)
                    return refused
                answer = await self._ask(exchange)
        except TimeoutError:
            if exchange.stage == "connecting" and parts.netloc:
                raise slow_connect(parts.hostname or "", parts.port or _port(parts.scheme)) from None
            if exchange.stage == "handshaking" and parts.scheme == "https":
                raise NotTls(f"ended no TLS handshake at {parts.netloc} in time: it may not speak TLS") from None
            raise TimedOut(f"did not answer {harmless(path, 60)} in time") from None
        if verb == "GET":
            self._refusals.note(address, path, told, answer, loop.time())
        return answer

    async def aclose(self) -> None:
        """Close every connection; it can be used again afterwards."""
        idle = [connection for _, connection in self._idle]
        self._idle.clear()
        await asyncio.gather(*(connection.close() for connection in idle))

    async def _told(self, headers: Sequence[Header]) -> list[tuple[str, str]]:
        if has_key(headers):
            return await asyncio.to_thread(read_headers, headers, self._key_owner)
        return read_headers(headers)

    async def _ask(self, exchange: "_Exchange") -> Answer:
        kept = self._take(exchange.kind)
        if kept is not None:
            exchange.stage = "asking"
            try:
                return await self._exchange(exchange, kept)
            except EOFError:
                if exchange.verb != "GET":  # it may have been heard all the same
                    raise BadAnswer("closed the connection without an answer") from None
        exchange.stage = "connecting"
        fresh = await self._open(exchange)
        exchange.stage = "asking"
        try:
            return await self._exchange(exchange, fresh)
        except EOFError:
            pass
        if await _speaks_tls(exchange.kind.target()):
            raise NotTls("speaks TLS: its address has to begin with https")
        raise BadAnswer("closed the connection without an answer")

    async def _see(self, exchange: "_Exchange") -> None:
        """See that the server is still there, and send it nothing. Raises HttpError."""
        connection = self._take(exchange.kind) or await self._open(exchange)
        self._keep(exchange.kind, connection)

    async def _open(self, exchange: "_Exchange") -> Connection:
        """A new connection. Raises HttpError; of an address that was foreign a moment ago without a try."""
        now, kind = asyncio.get_running_loop().time(), exchange.kind
        until, error = self._shunned.get(kind, (0.0, ForeignSocket()))
        if now < until:
            raise error
        self._shunned.pop(kind, None)
        try:
            return await Connection.open(kind.target(), exchange.accepted)
        except ForeignSocket as foreign:
            if len(self._shunned) >= MAX_SHUNNED:
                self._shunned.clear()
            self._shunned[kind] = (now + SHUNNED_FOR, ForeignSocket(str(foreign)))
            raise

    async def _exchange(self, exchange: "_Exchange", connection: Connection) -> Answer:
        whole = False
        try:
            answer = await connection.exchange(
                exchange.verb, exchange.target, exchange.headers, exchange.body, exchange.largest, exchange.until
            )
            whole = connection.reusable
        finally:
            if whole:
                self._keep(exchange.kind, connection)
            else:
                connection.abort()
        return answer

    def _take(self, kind: "_Kind") -> Connection | None:
        """An idle connection that is still good; those that are not are dropped on the way."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE
        for _ in range(len(self._idle)):
            its_kind, connection = self._idle.popleft()
            if not connection.reusable or connection.idle_since < oldest:
                connection.abort()
            elif its_kind == kind:
                return connection
            else:
                self._idle.append((its_kind, connection))
        return None

    def _keep(self, kind: "_Kind", connection: Connection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append((kind, connection))
        if len(self._idle) > MAX_IDLE:
            self._idle.popleft()[1].abort()


def _port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


async def _speaks_tls(target: Target) -> bool:
    """Whether a server that closed a plain connection without a word makes a TLS handshake."""
    if target.tls or target.path:
        return False
    peer = replace(target.peer, ca="", fingerprint="")
    try:
        async with asyncio.timeout(HANDSHAKE):
            connection = await Connection.open(replace(target, tls=True, here=True, has_key=False, peer=peer))
    except (HttpError, TimeoutError):
        return False
    connection.abort()
    return True
