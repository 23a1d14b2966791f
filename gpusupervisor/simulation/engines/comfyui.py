"""A simulated ComfyUI: its queue, its one worker, and /free, which only that worker executes.

A prompt's nodes say what it does: class `SimulatedSampler` with inputs `seconds` and `vram` ("8G"), or class
`SimulatedDefect`, whose exception kills the worker and leaves the entry in the queue for ever.
"""

import argparse
import asyncio
import platform
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from gpusupervisor.simulation.engines.process import announce, for_ever, options, run, size
from gpusupervisor.simulation.engines.vram import Vram
from gpusupervisor.simulation.engines.web import Handler, Request, Response, WebServer, json_response

SM_AT_WORK = 98
KNOWN_NODES = ("SimulatedSampler", "SimulatedDefect")
BROKEN = Response(500, b"500 Internal Server Error\n\nServer got itself in trouble")


class WorkerDiedError(Exception):
    """What a node of class SimulatedDefect raises; nothing in ComfyUI catches it either."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A prompt in the queue."""

    number: int
    id: str
    prompt: Mapping[str, object]
    client: str

    def row(self) -> list[object]:
        """Its entry in /queue, with the whole prompt as ComfyUI has it."""
        created = {"client_id": self.client, "create_time": int(time.time() * 1000)}
        return [self.number, self.id, self.prompt, created, list(self.prompt)]


class ComfyUi:
    """`main.py`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._vram = Vram(arguments.card, arguments.gpu)
        self._pending: list[Entry] = []
        self._running: list[Entry] = []
        self._history: dict[str, object] = {}
        self._free_flags: dict[str, bool] = {}
        self._work = asyncio.Event()
        self._count = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        self._vram.hold_what_fits(self._arguments.context)
        server = WebServer(self._routes(), gate=_refuse_foreign_origin)
        announce(f"listening on 127.0.0.1:{await server.start(self._arguments.port)}")
        worker = asyncio.create_task(self._worker())
        try:
            await for_ever()
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            await server.close()
            self._vram.hold(0)

    def _routes(self) -> Mapping[str, Handler]:
        """Every route is there under /api too."""
        routes: dict[str, Handler] = {
            "GET /prompt": self._length,
            "POST /prompt": self._submit,
            "GET /queue": self._queue,
            "GET /history": self._get_history,
            "GET /system_stats": self._system_stats,
            "GET /models": self._folders,
            "GET /models/checkpoints": self._checkpoints,
            "POST /free": self._free,
        }
        return routes | {key.replace(" /", " /api/"): handler for key, handler in routes.items()}

    async def _folders(self, _: Request) -> Response:
        return json_response(["checkpoints"])

    async def _checkpoints(self, _: Request) -> Response:
        return json_response(["flux1-dev-fp8.safetensors"])

    async def _length(self, _: Request) -> Response:
        return json_response({"exec_info": {"queue_remaining": len(self._running) + len(self._pending)}})

    async def _submit(self, request: Request) -> Response:
        try:
            body = request.json()
        except ValueError:
            return BROKEN
        prompt = body.get("prompt")
        if not isinstance(prompt, dict) or not prompt:
            return _rejected("prompt_no_outputs", "Prompt has no outputs")
        for node_id, node in prompt.items():
            kind = node.get("class_type") if isinstance(node, dict) else None
            if kind not in KNOWN_NODES:
                return _rejected(
                    "invalid_prompt",
                    f"Cannot execute because node {kind} does not exist.",
                    f"Node ID '#{node_id}'",
                )
        entry = Entry(self._count, str(uuid.uuid4()), prompt, str(body.get("client_id", "")))
        self._count += 1
        self._pending.append(entry)
        self._work.set()
        return json_response({"prompt_id": entry.id, "number": entry.number, "node_errors": {}})

    async def _queue(self, _: Request) -> Response:
        return json_response(
            {
                "queue_running": [entry.row() for entry in self._running],
                "queue_pending": [entry.row() for entry in self._pending],
            }
        )

    async def _get_history(self, _: Request) -> Response:
        return json_response(self._history)

    async def _system_stats(self, _: Request) -> Response:
        free = self._vram.free()
        device = {
            "name": "cuda:0 NVIDIA GeForce RTX 4090 : cudaMallocAsync",
            "type": "cuda",
            "index": 0,
            "vram_total": free + self._vram.held,
            "vram_free": free,
            "torch_vram_total": self._vram.held,
            "torch_vram_free": 0,
        }
        system = {
            "os": "posix",
            "comfyui_version": self._arguments.version,
            "python_version": platform.python_version(),
            "pytorch_version": "2.9.0+cu130",
            "embedded_python": False,
            "argv": ["main.py", "--port", str(self._arguments.port)],
        }
        return json_response({"system": system, "devices": [device]})

    async def _free(self, request: Request) -> Response:
        """Only notes what the worker shall do."""
        try:
            body = request.json()
        except ValueError:
            return BROKEN
        for flag in ("unload_models", "free_memory"):
            if body.get(flag, False):
                self._free_flags[flag] = True
        if self._free_flags:
            self._work.set()
        return Response(200)

    async def _worker(self) -> None:
        """One prompt after the other, and between two of them what /free asked for."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._pending:
                self._running.append(self._pending.pop(0))
                await self._execute(self._running[0])
                self._running.clear()
                await self._do_free()
            await self._do_free()

    async def _execute(self, entry: Entry) -> None:
        for node in entry.prompt.values():
            assert isinstance(node, dict)
            if node["class_type"] == "SimulatedDefect":
                raise WorkerDiedError
            inputs = node.get("inputs", {})
            wanted = self._arguments.context + size(str(inputs.get("vram", "0")))
            self._vram.hold_what_fits(max(wanted, self._vram.held), sm=SM_AT_WORK)
            await asyncio.sleep(float(inputs.get("seconds", 1)))
            self._vram.hold(self._vram.held)
        status = {"status_str": "success", "completed": True, "messages": []}
        self._history[entry.id] = {"prompt": entry.row(), "outputs": {}, "status": status, "meta": {}}

    async def _do_free(self) -> None:
        flags, self._free_flags = self._free_flags, {}
        if flags.get("unload_models", flags.get("free_memory", False)):
            await asyncio.sleep(self._arguments.return_delay)
            self._vram.hold(min(self._vram.held, self._arguments.context))


def _rejected(kind: str, message: str, detail: str = "") -> Response:
    error = {"type": kind, "message": message, "details": detail, "extra_info": {}}
    return json_response({"error": error, "node_errors": {}}, 400)


def _refuse_foreign_origin(request: Request) -> Response | None:
    origin = request.headers.get("origin")
    if origin is None or origin.partition("://")[2] == request.headers.get("host"):
        return None
    return Response(403)


def main() -> None:
    """The command line."""
    parser = options("A simulated ComfyUI")
    parser.add_argument("--port", type=int, default=8188)
    parser.add_argument("--context", type=size, default=size("500M"), help="what it holds from the start")
    parser.add_argument("--version", default="0.3.64")
    arguments = parser.parse_args()
    run(lambda: ComfyUi(arguments).run())


if __name__ == "__main__":
    main()
