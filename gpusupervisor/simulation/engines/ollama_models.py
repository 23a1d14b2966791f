"""Models of the simulated Ollama: how they are written on the wire, and one that is loaded."""

import asyncio
import hashlib
import math
import os
import socket
import sys
import time
from asyncio.subprocess import Process
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from gpusupervisor.quantities import parse_duration
from gpusupervisor.simulation.engines.launch import environment

FOR_EVER = 2**63 - 1
"""Nanoseconds that Ollama adds for keep_alive = -1: about 292 years."""


def timestamp(instant: int) -> str:
    """A Unix time in nanoseconds as Go writes it."""
    whole, fraction = divmod(instant, 1_000_000_000)
    text = datetime.fromtimestamp(whole, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{fraction:09d}".rstrip("0").rstrip(".") + "Z"


def keep_alive_of(value: object, default: float) -> float:
    """Seconds of a `keep_alive`: a number, "5m", or negative for ever; raises ValueError for anything else."""
    if value is None:
        return default
    if isinstance(value, int | float):
        return math.inf if value < 0 else float(value)
    text = str(value)
    return math.inf if text.startswith("-") else parse_duration(text) / 1_000_000


def details(size: int) -> dict[str, object]:
    """The `details` of a model."""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": "llama",
        "families": ["llama"],
        "parameter_size": f"{size / 1e9:.1f}B",
        "quantization_level": "Q4_K_M",
    }


def digest(name: str) -> str:
    """A digest that is always the same for a name."""
    return hashlib.sha256(name.encode()).hexdigest()


def free_port() -> int:
    """A port that nobody listens on, as Ollama picks one for its runner."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class LoadedModel:
    """A model and its runner."""

    name: str
    size: int
    size_vram: int
    port: int
    process: Process
    keep_alive: float
    expires_at: int
    """Unix nanoseconds; set when a request ends, so it lies in the past during a long one."""
    loading: bool = True
    running: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Count the keep-alive from now."""
        span = FOR_EVER if math.isinf(self.keep_alive) else int(self.keep_alive * 1e9)
        self.expires_at = time.time_ns() + span

    def entry(self) -> dict[str, object]:
        """Its entry in /api/ps."""
        if self.loading:
            self.touch()
        return {
            "name": self.name,
            "model": self.name,
            "size": self.size,
            "digest": digest(self.name),
            "details": details(self.size),
            "expires_at": timestamp(self.expires_at),
            "size_vram": self.size_vram,
            "context_length": 4096,
        }


async def start_runner(executable: Path | None, arguments: list[str]) -> Process:
    """Start a runner, by a disguised interpreter if one is given; it ends when this process does."""
    return await asyncio.create_subprocess_exec(
        executable or sys.executable,
        "-m",
        "gpusupervisor.simulation.engines.runner",
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment() if executable else {})},
    )


async def post(port: int, path: str, body: bytes) -> bytes:
    """POST to a runner on this machine and return the whole answer, head included. Raises ConnectionError."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"POST {path} HTTP/1.1\r\nHost: runner\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return await reader.read()
    finally:
        writer.close()
