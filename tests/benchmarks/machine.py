"""A small machine in this process: a simulated card, real processes that hold its memory, real HTTP, the supervisor."""

import asyncio
import json
import subprocess
import time
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType

from gpusupervisor.arbitration.events import Event
from gpusupervisor.automatic import AutomaticSwitch
from gpusupervisor.autotune.run import Rules
from gpusupervisor.clock import SystemClock
from gpusupervisor.effective import Configuration, telemetry_limits
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.gpu.monitor import GpuMonitor
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.keepers.autotuner import Autotuner
from gpusupervisor.observatory import Observatory
from gpusupervisor.peers.hardware_client import HardwareClient
from gpusupervisor.peers.unit_client import UnitClient
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.settings import Settings
from gpusupervisor.simulation.nvml import GIB, SimulatedGpu, SimulatedProcess, World, installed
from gpusupervisor.supervisor import Supervisor
from gpusupervisor.telemetry.service import Telemetry
from gpusupervisor.tenants.catalog import Catalog, load_catalog

DEFINITION = """\
title = "{name}"
priority = 50
min-residency = "0"
[match]
command-lines = ["sleep 86400.{number}*"]
[endpoint]
url = "http://127.0.0.1:{port}"
[[activity.probes]]
kind = "http"
get = "/{name}/status"
busy-when = "busy"
[[release]]
method = "http"
post = "/{name}/drop"
"""


class SkippingClock(SystemClock):
    """The machine's clock, which can be put forward."""

    def __init__(self) -> None:
        self.ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


class Machine:
    """Tenants t0, t1, t2; t0 can be made busy and hungry; everything they hold is in `world`."""

    def __init__(self, directory: Path, processes: int) -> None:
        self.clock = SkippingClock()
        self.busy: set[str] = set()
        self.dropped_at = 0.0
        """time.perf_counter() of the last release request."""
        self.dropped = asyncio.Event()
        self.events: list[tuple[float, Event]] = []
        self.supervisor: Supervisor
        self.telemetry: Telemetry
        self._directory = directory
        self._count = processes
        self._stack = AsyncExitStack()
        self._tasks = asyncio.TaskGroup()
        self._processes: list[subprocess.Popen[bytes]] = []
        self.gpu = SimulatedGpu(name="NVIDIA GeForce RTX 4090", total=24 * GIB)
        self.world = World([self.gpu])

    async def __aenter__(self) -> "Machine":
        self._processes = await asyncio.to_thread(self._spawn)
        for number, process in enumerate(self._processes):
            size = 8 * GIB if number == 1 else GIB // 8
            self.gpu.processes.append(SimulatedProcess(process.pid, size))
        self._stack.enter_context(installed(self.world))
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._stack.push_async_callback(server.wait_closed)
        self._stack.callback(server.close)
        catalog = await asyncio.to_thread(self._describe, server.sockets[0].getsockname()[1])
        await self._tasks.__aenter__()
        self.telemetry = Telemetry(self._directory / "state", telemetry_limits(Settings()), self.clock)
        self.telemetry.start()
        await self.telemetry.recalled.wait()
        self.supervisor = self._supervise(catalog)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._tasks.__aexit__(kind, error, trace)
        await self._observatory.close()
        await self._http.aclose()
        await self.telemetry.close()
        await self._stack.aclose()
        for process in self._processes:
            process.kill()
            process.wait()

    async def heard(self, kind: type) -> float:
        """Wait until such an event was announced; returns when, as time.perf_counter()."""
        async with asyncio.timeout(10):
            while not (found := [at for at, event in self.events if isinstance(event, kind)]):
                await asyncio.sleep(0.001)
        return found[0]

    def work(self, tenant: str) -> None:
        """A tenant reports work, and its process computes on the GPU."""
        self.busy.add(tenant)
        self.gpu.processes[int(tenant[1:])].sm = 80

    def rest(self) -> None:
        """Nobody works."""
        self.busy.clear()
        for process in self.gpu.processes:
            process.sm = 0

    def give_back(self) -> None:
        """t1 gives its memory back."""
        self.gpu.processes[1].used = 0

    def hoard(self) -> None:
        """t1 holds it again."""
        self.gpu.processes[1].used = 18 * GIB

    def _spawn(self) -> list[subprocess.Popen[bytes]]:
        return [
            subprocess.Popen(["sleep", f"86400.{number}"], stdout=subprocess.DEVNULL) for number in range(self._count)
        ]

    def _describe(self, port: int) -> Catalog:
        for number in range(3):
            text = DEFINITION.format(number=number, port=port, name=f"t{number}")
            if number == 0:
                text = 'needs-vram = "12G"\n' + text
            (self._directory / f"t{number}.toml").write_text(text)
        catalog = load_catalog([self._directory])
        assert not catalog.problems
        return catalog

    def _supervise(self, catalog: Catalog) -> Supervisor:
        self._http = EngineHttp()
        monitor = GpuMonitor(
            NvmlReader(self.clock), NvmlThread(self.clock), self.clock, sysfs_root=self._directory / "sysfs"
        )
        configuration = Configuration(Settings(reserve=0), catalog, ())
        self._observatory = Observatory(
            monitor, ProcessReader(), self._http, configuration.catalog, self.clock, UnitClient()
        )
        return Supervisor(
            configuration,
            lambda: configuration,
            self._observatory,
            self._http,
            self.clock,
            AutomaticSwitch(None, True),
            lambda event: self.events.append((time.perf_counter(), event)),
            self._tasks,
            Autotuner(HardwareClient(), self._http, self.clock, Rules()),
            telemetry=self.telemetry,
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Status and drop of every tenant, keep-alive."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                verb, path, *_ = head.decode().split()
                name = path.split("/")[1]
                if verb == "POST":
                    self.dropped_at = time.perf_counter()
                    self.dropped.set()
                body = json.dumps({"busy": name in self.busy}).encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
