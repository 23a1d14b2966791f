"""A simulated card on a bench, with its fan control."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.helper.fans.controller import FanController
from gpusupervisor.helper.fans.report import Alert, FanReport
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import FanSetting
from gpusupervisor.simulation.nvml import Board, FanState, SimulatedGpu, World, installed

SECOND = 1_000_000
GPU = "GPU-aaaaaaaa"
SIXTY = FanSetting("fixed", percent=60)
CURVE = FanSetting("curve", points=((40, 30), (60, 50), (80, 100)), spin_down_delay=0)


class Bench:
    """One GPU, time that is moved by hand, and everything that was reported."""

    def __init__(
        self, world: World, controller: FanController, directory: Path, thread: NvmlThread, session: HardwareSession
    ) -> None:
        self.world = world
        self.thread = thread
        self.session = session
        self._directory = directory
        self.controller = controller
        self.now = 1000 * SECOND
        self.alerts: list[Alert] = []
        world.time = lambda: self.now / SECOND

    @property
    def board(self) -> Board:
        return self.world.gpus[0].board

    @property
    def fans(self) -> list[FanState]:
        return self.world.settings_of(self.world.gpus[0]).fans

    @property
    def manual(self) -> list[bool]:
        return [fan.manual for fan in self.fans]

    @property
    def targets(self) -> list[int]:
        return [fan.target for fan in self.fans]

    def marked(self) -> list[list[int]]:
        """The fans that every mark names."""
        return [json.loads(path.read_text())["fans"] for path in sorted(self._directory.glob("fans-*"))]

    async def reopen(self) -> None:
        """NVML is closed, and opened again by the next tick."""
        await self.thread.call(self.session.close, deadline=5.0)

    async def tick(self, ticks: int = 1) -> FanReport:
        """So many ticks, a second each; the last report."""
        for _ in range(ticks):
            self.now += SECOND
            report = await self.controller.tick(self.now)
            self.alerts += report.alerts
        return report

    def causes(self) -> list[str]:
        """The alerts since the last look."""
        found = [alert.cause for alert in self.alerts]
        self.alerts.clear()
        return [str(cause) for cause in found]

    def writes(self) -> list[str]:
        """The setters that were called since the last look."""
        found = [call for call in self.world.calls if "Fan" in call and "Set" in call]
        self.world.calls.clear()
        return found


@asynccontextmanager
async def bench(directory: Path, board: Board | None = None, *, deadline: float = 5.0) -> AsyncIterator[Bench]:
    """Set it up. directory: where the mark is kept."""
    thread = NvmlThread()
    with installed(World([SimulatedGpu(GPU, board=board or Board())])) as world:
        session = HardwareSession()
        controller = FanController(GPU, session, thread, directory, deadline=deadline)
        yield Bench(world, controller, directory, thread, session)
        world.release_hanging()
        await thread.close()
