"""The process that holds a model's VRAM for the simulated Ollama: a llama-server, as Ollama has used since 0.30.

It ends when its parent does: its standard input is closed then.
"""

import argparse
import asyncio
import contextlib
import sys

from gpusupervisor.simulation.engines.process import options, run, seconds, size
from gpusupervisor.simulation.engines.vram import Vram
from gpusupervisor.simulation.engines.web import Request, Response, WebServer, json_response

LOAD_STEPS = 8
SM_AT_WORK = 95
LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


class Runner:
    """One model in VRAM, one slot."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._vram = Vram(arguments.card, arguments.gpu)
        self._loaded = False
        self._slot = asyncio.Lock()

    async def run(self) -> None:
        """Serve until told to end; the memory comes back a little later."""
        server = WebServer(
            {
                "GET /health": self._health,
                "GET /slots": self._slots,
                "POST /completion": self._completion,
            }
        )
        await server.start(self._arguments.port)
        try:
            await self._load()
            await _parent_gone()
        finally:
            await server.close()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(self._arguments.return_delay)
            self._vram.hold(0)

    async def _load(self) -> None:
        """Raises SystemExit when all of it is wanted on the GPU and the driver refuses a part."""
        for step in range(1, LOAD_STEPS + 1):
            await asyncio.sleep(self._arguments.load_time / LOAD_STEPS)
            wanted = self._arguments.vram * step // LOAD_STEPS
            if self._arguments.whole and wanted > self._vram.held + self._vram.free():
                sys.exit("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory")
            self._vram.hold(wanted)
        self._loaded = True

    async def _health(self, _: Request) -> Response:
        return json_response({"status": "ok"}) if self._loaded else json_response(LOADING, 503)

    async def _slots(self, _: Request) -> Response:
        if not self._loaded:
            return json_response(LOADING, 503)
        slot = {"id": 0, "n_ctx": 4096, "speculative": False, "is_processing": self._slot.locked()}
        return json_response([slot])

    async def _completion(self, request: Request) -> Response:
        tokens = request.json().get("n_predict")
        if not isinstance(tokens, int):
            return json_response({"error": {"code": 400, "message": "n_predict is missing"}}, 400)
        async with self._slot:
            self._vram.hold(self._arguments.vram, sm=SM_AT_WORK)
            took = tokens / self._arguments.tokens_per_second / self._vram.speed()
            await asyncio.sleep(took)
            self._vram.hold(self._arguments.vram)
        answer = {"content": "…", "tokens_predicted": tokens, "stop": True, "timings": {"predicted_ms": took * 1000}}
        return json_response(answer)


async def _parent_gone() -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    await reader.read()


def main() -> None:
    """The command line, as much of llama-server's as is needed."""
    parser = options("A simulated llama-server beneath a simulated Ollama")
    parser.add_argument("--model", required=True, metavar="PATH", help="the blob, for the command line's sake")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--vram", type=size, required=True, help="bytes it holds once loaded")
    parser.add_argument("--whole", action="store_true", help="end where the driver refuses memory")
    parser.add_argument("--load-time", type=seconds, default=0.0)
    parser.add_argument("--tokens-per-second", type=float, default=20.0)
    arguments = parser.parse_args()
    run(lambda: Runner(arguments).run())


if __name__ == "__main__":
    main()
