"""A simulated application of nobody's: it holds VRAM, and has a small API of its own.

GET /status {"jobs": 0}; POST /work {"seconds": 5}; POST /drop gives its memory back, 409 while it works.
"""

import argparse
import asyncio

from gpusupervisor.simulation.engines.process import announce, for_ever, options, run, size
from gpusupervisor.simulation.engines.vram import Vram
from gpusupervisor.simulation.engines.web import Request, Response, WebServer, json_response

SM_AT_WORK = 60

API_AS_TENANT = """\
[endpoint]
url = "{url}"

[[activity.probes]]
kind = "http"
get = "/status"
busy-when = "jobs > `0`"

[[release]]
method = "http"
post = "/drop"
success-when = "dropped"
when-busy = "refused"
"""
"""How a tenant file describes this API; the URL is to be filled in."""


class ThirdApp:
    """Something that a user wrote."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._vram = Vram(arguments.card, arguments.gpu)
        self._jobs: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve until cancelled."""
        self._vram.hold_what_fits(self._arguments.hold)
        server = WebServer({"GET /status": self._status, "POST /work": self._work, "POST /drop": self._drop})
        announce(f"listening on 127.0.0.1:{await server.start(self._arguments.port)}")
        try:
            await for_ever()
        finally:
            await server.close()
            self._vram.hold(0)

    async def _status(self, _: Request) -> Response:
        return json_response({"jobs": len(self._jobs), "cached": self._vram.held > self._arguments.floor})

    async def _work(self, request: Request) -> Response:
        try:
            duration = float(str(request.json().get("seconds", 1)))
        except ValueError:
            return json_response({"error": "seconds must be a number"}, 400)
        job = asyncio.create_task(self._job(duration))
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return json_response({"jobs": len(self._jobs)}, 202)

    async def _job(self, duration: float) -> None:
        self._vram.hold_what_fits(self._arguments.hold, sm=SM_AT_WORK)
        await asyncio.sleep(duration)
        self._vram.hold(self._vram.held)

    async def _drop(self, _: Request) -> Response:
        if self._jobs:
            return json_response({"dropped": False}, 409)
        loop = asyncio.get_running_loop()
        loop.call_later(self._arguments.return_delay, self._vram.hold, self._arguments.floor)
        return json_response({"dropped": True})


def main() -> None:
    """The command line."""
    parser = options("A simulated application that nobody has described yet")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--hold", type=size, default=size("4G"))
    parser.add_argument("--floor", type=size, default=size("200M"))
    arguments = parser.parse_args()
    run(lambda: ThirdApp(arguments).run())


if __name__ == "__main__":
    main()
