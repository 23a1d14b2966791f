"""A small HTTP/1.1 server on asyncio, enough to speak as the engines do."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

MAX_REQUEST = 8 << 20


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked."""

    method: str
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def json(self) -> dict[str, object]:
        """The body as a JSON object; raises ValueError when it is none."""
        parsed = json.loads(self.body)
        if not isinstance(parsed, dict):
            raise ValueError("not an object")  # noqa: TRY004
        return parsed


@dataclass(frozen=True, slots=True)
class Response:
    """What it is answered; with `stream`, in chunks."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    stream: AsyncIterator[bytes] | None = None


def json_response(value: object, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(status, json.dumps(value).encode(), "application/json; charset=utf-8")


Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class WebServer:
    """Routes "METHOD /path" to handlers; a key that ends in "*" takes every path that begins so."""

    routes: Mapping[str, Handler]
    gate: Callable[[Request], Response | None] = lambda _: None
    """Asked first; an answer of its own ends the matter."""
    port: int = 0
    _server: asyncio.Server | None = field(default=None, init=False)
    _connections: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def start(self, port: int) -> int:
        """Listen on 127.0.0.1; returns the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while request := await _read_request(reader):
                await _write_response(writer, await self._answer(request))
                if request.headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, ValueError):
            pass  # the client is gone, or does not speak HTTP
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, request: Request) -> Response:
        refused = self.gate(request)
        if refused is not None:
            return refused
        handler = self.routes.get(f"{request.method} {request.path}")
        if handler is None:
            prefixes = (key for key in self.routes if key.endswith("*"))
            key = next((key for key in prefixes if f"{request.method} {request.path}".startswith(key[:-1])), None)
            if key is None:
                return Response(404, b"404 page not found")
            handler = self.routes[key]
        return await handler(request)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request; None when the client has closed. Raises ValueError for what is no HTTP."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise ValueError("the head is too long") from None
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, target, _version = first.split(" ")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    length = int(headers.get("content-length", "0"))
    if length > MAX_REQUEST:
        raise ValueError("the body is too long")
    return Request(method, target.partition("?")[0], headers, await reader.readexactly(length))


async def _write_response(writer: asyncio.StreamWriter, response: Response) -> None:
    head = f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}\r\n"
    head += f"Content-Type: {response.content_type}\r\n"
    if response.stream is None:
        writer.write(f"{head}Content-Length: {len(response.body)}\r\n\r\n".encode() + response.body)
        await writer.drain()
        return
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
    async for chunk in response.stream:
        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
