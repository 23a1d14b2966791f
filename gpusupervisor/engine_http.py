"""The one HTTP client with which engines are asked: bounded in time and size, and it follows nobody.

It sits on httpx's transport rather than on its `AsyncClient`: what the client adds (redirects, cookies,
proxies, authentication, decompression) is unwanted here, and costs a third of a request. httpx is imported
at the first request, off the event loop, so that the daemon is ready before.
"""

import asyncio
import ipaddress
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpusupervisor import __version__
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.foreign_text import harmless

if TYPE_CHECKING:
    import httpx

MAX_BODY = 1 << 20
"""Bytes of an answer that are read; a longer one is an error, never a truncated parse."""
KEEP_ALIVE = 30.0
"""Seconds an idle connection is kept: longer than the slowest cadence of looks."""
MAX_IDLE_CONNECTIONS = 32

_HOST_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_HEADERS = (
    ("Accept", "application/json, text/plain;q=0.5"),
    ("Accept-Encoding", "identity"),
    ("User-Agent", f"gpusupervisor/{__version__}"),
)


class HttpError(Exception):
    """No usable answer; the text is one clause for a person."""


class Unreachable(HttpError):  # noqa: N818  (read as states of the peer)
    """Nothing listens there."""


class TimedOut(HttpError):  # noqa: N818
    """No whole answer within the deadline."""


class BadAnswer(HttpError):  # noqa: N818
    """It answered, with something that cannot be used: too big, cut off, not JSON, a redirect."""


class NotAllowed(HttpError):  # noqa: N818
    """Never sent: not a usable address, or not on this machine."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered, whole and within the limits."""

    status: int
    body: bytes
    content_type: str

    @property
    def ok(self) -> bool:
        """A 2xx status."""
        return 200 <= self.status < 300

    def text(self) -> str:
        """The body as UTF-8. Raises BadAnswer."""
        try:
            return self.body.decode()
        except UnicodeDecodeError:
            raise BadAnswer("answered bytes that are not UTF-8") from None

    def json(self) -> object:
        """The body as JSON, whatever its content type. Raises BadAnswer."""
        if not self.body:
            raise BadAnswer("answered nothing where JSON was expected")
        try:
            parsed: object = json.loads(self.body, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            kind = harmless(self.content_type, 40) or "no content type"
            raise BadAnswer(f"answered something that is not JSON ({kind})") from None
        return parsed


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


@lru_cache(maxsize=256)
def connectable(url: str) -> str:
    """The address to connect to, e.g. "http://127.0.0.1:11434/base".

    Nothing but scheme, host, port and path; no trailing slash; wildcard addresses become loopback.
    Raises NotAllowed.
    """
    if not url:
        raise NotAllowed("no address is known")
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        raise NotAllowed(f"{harmless(url)!r} is not an address") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
        raise NotAllowed(f"{harmless(url)!r} is not an address of the form http://HOST:PORT")
    if not (parts.path + "/").isascii() or any(char <= " " for char in parts.path):
        raise NotAllowed(f"{harmless(url)!r} has a path that cannot be sent")
    host = _connectable_host(parts.hostname)
    suffix = f":{port}" if port is not None else ""
    return f"{parts.scheme}://{host}{suffix}{parts.path.rstrip('/')}"


def _connectable_host(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if not _HOST_NAME.fullmatch(host):
            raise NotAllowed(f"{harmless(host)!r} is not a host") from None
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"


@lru_cache(maxsize=256)
def is_local(url: str) -> bool:
    """Whether the address can only be this machine: "localhost", 127.0.0.0/8, ::1 or a wildcard."""
    try:
        host = urlsplit(connectable(url)).hostname or ""
    except NotAllowed:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class EngineHttp:
    """Asks engines. One for the whole daemon, for concurrent tasks of one loop; keeps connections alive."""

    def __init__(self) -> None:
        self._transport: httpx.AsyncHTTPTransport | None = None
        self._starting = asyncio.Lock()

    async def get(self, base: str, path: str, *, timeout: int, remote: bool = False) -> Answer:  # noqa: ASYNC109
        """GET `path` at `base`; see `request`."""
        return await self.request("GET", base, path, timeout=timeout, remote=remote)

    async def request(
        self,
        verb: str,
        base: str,
        path: str,
        *,
        timeout: int,  # noqa: ASYNC109  (microseconds, over the whole exchange)
        body: bytes | None = None,
        headers: Sequence[tuple[str, str]] = (),
        remote: bool = False,
    ) -> Answer:
        """Send one request and read the whole answer.

        path: begins with "/", query included, already encoded. timeout: microseconds for everything,
        connecting included. remote: `base` may be another machine. Raises HttpError.
        """
        address = connectable(base)
        if not remote and not is_local(address):
            raise NotAllowed(f"{address} is not on this machine")
        transport = self._transport or await self._start()
        try:
            async with asyncio.timeout(timeout / MICROSECONDS):
                return await _exchange(transport, verb, address + path, body, headers)
        except TimeoutError:
            raise TimedOut(f"did not answer {harmless(path, 60)} in time") from None

    async def aclose(self) -> None:
        """Close every connection; it can be used again afterwards."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    async def _start(self) -> "httpx.AsyncHTTPTransport":
        async with self._starting:
            if self._transport is None:
                self._transport = await asyncio.to_thread(_new_transport)
            return self._transport


def _new_transport() -> "httpx.AsyncHTTPTransport":
    """Certificates are not checked: an engine's own on loopback is self-signed, and what another machine
    answers releases nothing."""
    import httpx

    limits = httpx.Limits(
        max_connections=None, max_keepalive_connections=MAX_IDLE_CONNECTIONS, keepalive_expiry=KEEP_ALIVE
    )
    return httpx.AsyncHTTPTransport(verify=False, trust_env=False, limits=limits)


async def _exchange(
    transport: "httpx.AsyncHTTPTransport",
    verb: str,
    url: str,
    body: bytes | None,
    headers: Sequence[tuple[str, str]],
) -> Answer:
    import httpx

    try:
        if body is None and not headers:
            request = _plain_request(verb, url)
        else:
            request = httpx.Request(verb, url, headers=[*_HEADERS, *headers], content=body)
        response = await transport.handle_async_request(request)
        try:
            return await _read(response)
        finally:
            await response.aclose()
    except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError, UnicodeEncodeError):
        raise NotAllowed("the request as described cannot be sent") from None
    except httpx.ConnectError:
        raise Unreachable(f"nothing listens at {url.split('/', 3)[2]}") from None
    except httpx.TransportError:
        raise BadAnswer("closed the connection before a whole answer, or does not speak HTTP") from None


@lru_cache(maxsize=256)
def _plain_request(verb: str, url: str) -> "httpx.Request":
    """Kept, because building one costs as much as reading its answer; sending changes nothing in it."""
    import httpx

    return httpx.Request(verb, url, headers=_HEADERS)


async def _read(response: "httpx.Response") -> Answer:
    import httpx

    if 300 <= response.status_code < 400:
        raise BadAnswer("answered with a redirect, which is not followed")
    encoding = response.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise BadAnswer("answered in a compression that was not asked for")
    if not isinstance(response.stream, httpx.AsyncByteStream):  # pragma: no cover
        raise TypeError("the asynchronous transport gave a synchronous stream")
    body = bytearray()
    async for chunk in response.stream:
        body += chunk
        if len(body) > MAX_BODY:
            raise BadAnswer("answered more than 1 MiB")
    return Answer(response.status_code, bytes(body), response.headers.get("content-type", ""))
