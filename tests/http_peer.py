"""A real HTTP server on a real socket that answers exactly what a test tells it to, well-formed or not."""

import asyncio
import json
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any

REDIRECT = b"HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n"
HTML = b"<!doctype html><title>Sign in</title><p>Welcome"


def reply(body: bytes, status: int = 200, content_type: str = "application/json") -> bytes:
    """A whole answer."""
    head = f"HTTP/1.1 {status} Any\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    verb: str
    target: str
    head: str
    body: bytes


@dataclass
class Peer:
    """Answers by path (query cut off); a path without an answer is a 404, one of `silent` gets none at all."""

    answers: dict[str, bytes] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    trickling: set[str] = field(default_factory=set)
    """Paths whose answer comes a byte at a time and never ends."""
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a request has come in."""
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets the silent paths answer."""
    _server: asyncio.Server | None = None
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        """Paths asked for, in order."""
        return [asked.target for asked in self.asked]

    def says(self, path: str, value: object, status: int = 200) -> None:
        """Answer JSON."""
        self.answers[path] = reply(json.dumps(value).encode(), status)

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def start_on(self, listening: socket.socket) -> None:
        """Serve on a socket that listens already."""
        self._server = await asyncio.start_server(self._serve, sock=listening)
        self.port = listening.getsockname()[1] if listening.family != socket.AF_UNIX else 0

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        verb, target, _ = head.split(" ", 2)
        length = next((int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-length:")), 0)
        self.asked.append(Asked(verb, target, head, await reader.readexactly(length)))
        self.arrived.set()
        path = target.partition("?")[0]
        if path in self.silent:
            await self.released.wait()
        if path in self.trickling:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        answer = self.answers.get(path, reply(b"404 page not found", 404, "text/plain"))
        writer.write(answer)
        await writer.drain()
        whole = answer.startswith(b"HTTP/1.1") and b"Transfer-Encoding" not in answer
        head_part, _, body = answer.partition(b"\r\n\r\n")
        told = next(
            (int(line[15:]) for line in head_part.split(b"\r\n") if line.lower().startswith(b"content-length:")),
            -1,
        )
        return whole and told == len(body)
