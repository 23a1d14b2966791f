"""The one HTTP client with which engines are asked: bounded in time and size, and it follows nobody."""

import asyncio
from collections import deque
from collections.abc import Sequence
from urllib.parse import urlsplit

from gpusupervisor import __version__
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.engine_http.address import connectable, is_local
from gpusupervisor.engine_http.answer import Answer, BadAnswer, NotAllowed, TimedOut
from gpusupervisor.engine_http.connection import MAX_BODY, Connection
from gpusupervisor.engine_http.keys import ROOT, Header, has_key, read_headers
from gpusupervisor.foreign_text import harmless

KEEP_ALIVE = 30.0
"""Seconds an idle connection is kept: longer than the slowest cadence of looks."""
MAX_IDLE = 32
"""Idle connections that are kept."""

_HEADERS = (
    ("Accept", "application/json, text/plain;q=0.5"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", f"gpusupervisor/{__version__}"),
)


class EngineHttp:
    """Asks engines. One for the whole daemon, for concurrent tasks of one loop; keeps connections alive."""

    def __init__(self, key_owner: int = ROOT) -> None:
        """key_owner: who must own the files that hold keys; root but in tests."""
        self._key_owner = key_owner
        self._idle: deque[tuple[str, Connection]] = deque()
        """With the origin ("http://127.0.0.1:11434") of each."""

    async def get(
        self,
        base: str,
        path: str,
        *,
        timeout: int,  # noqa: ASYNC109
        headers: Sequence[Header] = (),
        remote: bool = False,
    ) -> Answer:
        """GET `path` at `base`; see `request`."""
        return await self.request("GET", base, path, timeout=timeout, headers=headers, remote=remote)

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
    ) -> Answer:
        """Send one request and read the whole answer.

        path: begins with "/", query included, already encoded. timeout: microseconds for everything,
        connecting included. headers: keys are read from their files now. remote: `base` may be another machine.
        largest: bytes of a body that are read.
        Redirects are not followed.
        Raises HttpError.
        """
        address = connectable(base)
        if not remote and not is_local(address):
            raise NotAllowed(f"{address} is not on this machine")
        parts = urlsplit(address)
        told = await self._told(headers)
        all_headers = [("Host", parts.netloc), *_HEADERS, *told]
        if body is not None or verb != "GET":
            all_headers.append(("Content-Length", str(len(body or b""))))
        origin = f"{parts.scheme}://{parts.netloc}"
        try:
            async with asyncio.timeout(timeout / MICROSECONDS):
                return await self._ask(origin, verb, parts.path + path, all_headers, body or b"", largest)
        except TimeoutError:
            raise TimedOut(f"did not answer {harmless(path, 60)} in time") from None

    async def aclose(self) -> None:
        """Close every connection; it can be used again afterwards."""
        idle = [connection for _, connection in self._idle]
        self._idle.clear()
        await asyncio.gather(*(connection.close() for connection in idle))

    async def _told(self, headers: Sequence[Header]) -> list[tuple[str, str]]:
        if has_key(headers):
            return await asyncio.to_thread(read_headers, headers, self._key_owner)
        return read_headers(headers)

    async def _ask(
        self, origin: str, verb: str, target: str, headers: Sequence[tuple[str, str]], body: bytes, largest: int
    ) -> Answer:
        kept = self._take(origin)
        if kept is not None:
            try:
                return await self._exchange(origin, kept, verb, target, headers, body, largest)
            except EOFError:
                if verb != "GET":  # it may have been heard all the same
                    raise BadAnswer("closed the connection without an answer") from None
        parts = urlsplit(origin)
        tls = parts.scheme == "https"
        here = is_local(origin)
        fresh = await Connection.open(parts.hostname or "", parts.port or (443 if tls else 80), tls=tls, here=here)
        try:
            return await self._exchange(origin, fresh, verb, target, headers, body, largest)
        except EOFError:
            raise BadAnswer("closed the connection without an answer") from None

    async def _exchange(
        self,
        origin: str,
        connection: Connection,
        verb: str,
        target: str,
        headers: Sequence[tuple[str, str]],
        body: bytes,
        largest: int,
    ) -> Answer:
        whole = False
        try:
            answer = await connection.exchange(verb, target, headers, body, largest)
            whole = connection.reusable
        finally:
            if whole:
                self._keep(origin, connection)
            else:
                connection.abort()
        return answer

    def _take(self, origin: str) -> Connection | None:
        """An idle connection that is still good; those that are not are dropped on the way."""
        oldest = asyncio.get_running_loop().time() - KEEP_ALIVE
        for _ in range(len(self._idle)):
            its_origin, connection = self._idle.popleft()
            if not connection.reusable or connection.idle_since < oldest:
                connection.abort()
            elif its_origin == origin:
                return connection
            else:
                self._idle.append((its_origin, connection))
        return None

    def _keep(self, origin: str, connection: Connection) -> None:
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append((origin, connection))
        if len(self._idle) > MAX_IDLE:
            self._idle.popleft()[1].abort()
