"""A simulated Ollama: its HTTP, its keep-alive, and a runner process for each loaded model.

A model is loaded with as much of it in VRAM as is free (`size_vram` below `size`: it spilled). A generation takes
`options.num_predict` tokens at `--tokens-per-second`, or slower where a power limit holds the card's clock down.
With `--whole` nothing spills, as where a request names `num_gpu`: a load that does not fit fails, and its runner ends.
POST /simulation/out-of-memory with a `count` has so many loads from then on fail as they do when the driver refuses
the memory.
"""

import argparse
import asyncio
import json
import math
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from gpusupervisor.simulation.engines.launch import disguised_python
from gpusupervisor.simulation.engines.ollama_models import (
    LoadedModel,
    details,
    digest,
    free_port,
    keep_alive_of,
    post,
    start_runner,
    timestamp,
)
from gpusupervisor.simulation.engines.process import announce, for_ever, options, run, seconds, size
from gpusupervisor.simulation.engines.vram import Vram
from gpusupervisor.simulation.engines.web import Request, Response, WebServer, json_response

DEFAULT_TOKENS = 40
FILE_SHARE = 90
"""Percent of what a model holds when loaded that its file has: the rest is context and buffers."""
OUT_OF_MEMORY = "llama runner process has terminated: cudaMalloc failed: out of memory"


class NoMemoryError(Exception):
    """The runner could not get what it wanted."""


class Ollama:
    """`ollama serve`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._vram = Vram(arguments.card, arguments.gpu)
        self._models = {_full_name(name): size for name, size in arguments.model}
        self._loaded: dict[str, LoadedModel] = {}
        self._leaving: dict[Process, asyncio.Task[int]] = {}
        self._scheduler = asyncio.Lock()
        self._failures = 0
        """Loads that fail from now on."""

    async def run(self) -> None:
        """Serve until cancelled; the runners end with it."""
        server = WebServer(
            {
                "GET /": self._root,
                "HEAD /": self._root,
                "GET /api/version": self._version,
                "GET /api/ps": self._ps,
                "GET /api/tags": self._tags,
                "POST /api/generate": self._generate,
                "POST /simulation/out-of-memory": self._fail_loads,
            }
        )
        announce(f"listening on 127.0.0.1:{await server.start(self._arguments.port)}")
        try:
            await for_ever()
        finally:
            await server.close()
            for model in list(self._loaded.values()):
                self._unload(model)
            await asyncio.gather(*self._leaving.values())

    async def _root(self, request: Request) -> Response:
        return Response(200, b"Ollama is running" if request.method == "GET" else b"")

    async def _version(self, _: Request) -> Response:
        return json_response({"version": self._arguments.version})

    async def _ps(self, _: Request) -> Response:
        models = sorted(self._loaded.values(), key=lambda model: model.expires_at, reverse=True)
        return json_response({"models": [model.entry() for model in models]})

    async def _tags(self, _: Request) -> Response:
        modified = timestamp(time.time_ns())
        models = [
            {
                "name": name,
                "model": name,
                "modified_at": modified,
                "size": size * FILE_SHARE // 100,
                "digest": digest(name),
                "details": details(size),
            }
            for name, size in self._models.items()
        ]
        return json_response({"models": models})

    async def _generate(self, request: Request) -> Response:
        try:
            body = request.json()
            asked = str(body.get("model", ""))
            keep_alive = keep_alive_of(body.get("keep_alive"), self._arguments.keep_alive)
        except ValueError as error:
            return json_response({"error": str(error)}, 400)
        name = _full_name(asked)
        if name not in self._models:
            return json_response({"error": f"model '{asked}' not found"}, 404)
        prompt = body.get("prompt")
        if not prompt and keep_alive == 0:
            self._ask_to_unload(name)
            return json_response(_answer(asked, "unload"))
        if not prompt:
            try:
                await self._load(name, keep_alive)
            except NoMemoryError:
                return json_response({"error": OUT_OF_MEMORY}, 500)
            return json_response(_answer(asked, "load"))
        work = self._stream(asked, name, keep_alive, _tokens(body))
        if body.get("stream", True):
            return Response(200, content_type="application/x-ndjson", stream=work)
        return Response(200, [chunk async for chunk in work][-1].strip(), "application/json; charset=utf-8")

    async def _fail_loads(self, request: Request) -> Response:
        self._failures = int(str(request.json().get("count", 0)))
        return json_response({})

    async def _stream(self, asked: str, name: str, keep_alive: float, tokens: int) -> AsyncIterator[bytes]:
        try:
            model = await self._load(name, keep_alive, for_request=True)
        except NoMemoryError:
            yield json.dumps({"error": OUT_OF_MEMORY}).encode()
            return
        try:
            piece = {"model": asked, "created_at": timestamp(time.time_ns()), "response": "…", "done": False}
            yield json.dumps(piece).encode() + b"\n"
            took = 0
            with suppress(ConnectionError, IndexError):  # the runner was killed
                answer = await post(model.port, "/completion", json.dumps({"n_predict": tokens}).encode())
                timings = json.loads(answer.split(b"\r\n\r\n", 1)[1])["timings"]
                took = int(timings["predicted_ms"] * 1_000_000)
        finally:
            model.running -= 1
            self._keep(model)
        yield json.dumps({**_answer(asked, "stop"), "eval_count": tokens, "eval_duration": took}).encode() + b"\n"

    async def _load(self, name: str, keep_alive: float, *, for_request: bool = False) -> LoadedModel:
        """The model, loaded now if it was not; one at a time, as Ollama's scheduler does."""
        async with self._scheduler:
            model = self._loaded.get(name)
            if model is not None and model.process.returncode is not None:
                self._forget(model)  # its runner was killed; Ollama notices at the next request
                model = None
            if model is None and self._failures > 0:
                self._failures -= 1
                raise NoMemoryError
            if model is None:
                model = await self._start(name, keep_alive)
            model.keep_alive = keep_alive
            model.running += for_request
        if not model.running:
            self._keep(model)
        return model

    async def _start(self, name: str, keep_alive: float) -> LoadedModel:
        size = self._models[name]
        await self._evict_for(size)
        size_vram = size if self._arguments.whole else min(size, self._vram.free())
        port = free_port()
        process = await start_runner(self._runner_executable(), self._runner_arguments(name, port, size_vram))
        model = LoadedModel(name, size, size_vram, port, process, keep_alive, 0)
        self._loaded[name] = model
        while not await _is_up(port):
            if process.returncode is not None and self._arguments.whole:
                self._forget(model)
                raise NoMemoryError
            if process.returncode is not None:
                break  # killed while it loaded
            await asyncio.sleep(0.02)
        model.loading = False
        return model

    def _runner_executable(self) -> Path | None:
        home: Path | None = self._arguments.home
        return disguised_python(home / "lib/ollama/llama-server") if home else None

    def _runner_arguments(self, name: str, port: int, size_vram: int) -> list[str]:
        told = self._arguments
        arguments = {
            "--model": f"/srv/ollama/models/blobs/sha256-{digest(name)}",
            "--port": port,
            "--host": "127.0.0.1",
            "--card": told.card,
            "--gpu": self._vram.uuid,
            "--vram": size_vram,
            "--load-time": told.load_time,
            "--return-delay": told.return_delay,
            "--tokens-per-second": told.tokens_per_second,
        }
        return [str(part) for pair in arguments.items() for part in pair] + ["--whole"] * told.whole

    async def _evict_for(self, size: int) -> None:
        """Unload idle models, the one that expires first before the others, until the new one fits."""
        idle = sorted(
            (model for model in self._loaded.values() if not model.running), key=lambda model: model.expires_at
        )
        for model in idle:
            if self._vram.free() >= size:
                return
            self._unload(model)
            await self._leaving[model.process]

    def _ask_to_unload(self, name: str) -> None:
        """keep_alive = 0: at once, or when the running request ends."""
        model = self._loaded.get(name)
        if model is None:
            return
        model.keep_alive = 0
        self._keep(model)

    def _keep(self, model: LoadedModel) -> None:
        """Count the keep-alive from now; what has none left and does nothing is unloaded."""
        model.touch()
        if model.timer is not None:
            model.timer.cancel()
        if self._loaded.get(model.name) is not model or model.running or math.isinf(model.keep_alive):
            return
        if model.keep_alive == 0:
            self._unload(model)
        else:
            loop = asyncio.get_running_loop()
            model.timer = loop.call_later(model.keep_alive, self._expire, model)

    def _expire(self, model: LoadedModel) -> None:
        if not model.running:
            self._unload(model)

    def _unload(self, model: LoadedModel) -> None:
        self._forget(model)
        if model.process.returncode is None:
            model.process.terminate()
        ending = asyncio.ensure_future(model.process.wait())
        self._leaving[model.process] = ending
        ending.add_done_callback(lambda _: self._leaving.pop(model.process, None))

    def _forget(self, model: LoadedModel) -> None:
        if model.timer is not None:
            model.timer.cancel()
        if self._loaded.get(model.name) is model:
            del self._loaded[model.name]


async def _is_up(port: int) -> bool:
    """Whether a runner has loaded its model."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    try:
        writer.write(b"GET /health HTTP/1.1\r\nHost: runner\r\nConnection: close\r\n\r\n")
        return (await reader.readline()).startswith(b"HTTP/1.1 200")
    finally:
        writer.close()


def _full_name(name: str) -> str:
    return name if ":" in name else f"{name}:latest"


def _answer(model: str, why: str) -> dict[str, object]:
    now = timestamp(time.time_ns())
    return {"model": model, "created_at": now, "response": "", "done": True, "done_reason": why}


def _tokens(body: dict[str, object]) -> int:
    told = body.get("options")
    tokens = told.get("num_predict") if isinstance(told, dict) else None
    return tokens if isinstance(tokens, int) and tokens > 0 else DEFAULT_TOKENS


def _model(text: str) -> tuple[str, int]:
    name, _, size_text = text.rpartition("=")
    return name, size(size_text)


def main() -> None:
    """The command line."""
    parser = options("A simulated Ollama")
    parser.add_argument("--port", type=int, default=11434)
    parser.add_argument("--model", type=_model, action="append", default=[], metavar="NAME=SIZE")
    parser.add_argument("--version", default="0.33.0")
    parser.add_argument("--keep-alive", type=seconds, default=300.0, metavar="TIME")
    parser.add_argument("--whole", action="store_true", help="no model spills: what does not fit is not loaded")
    parser.add_argument("--load-time", type=seconds, default=0.4, metavar="TIME")
    parser.add_argument("--tokens-per-second", type=float, default=20.0)
    parser.add_argument("--home", type=Path, metavar="DIR", help="the runner is run as DIR/lib/ollama/llama-server")
    arguments = parser.parse_args()
    run(lambda: Ollama(arguments).run())


if __name__ == "__main__":
    main()
