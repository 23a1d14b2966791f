"""Hours of the real daemon in minutes: its clock leaps from tick to tick while things go wrong around it.

Real are the daemon (in this process, so that it can be looked into), the bus, the helper and the engines (processes,
killed and stopped by signals), HTTP and polkit's absence; simulated are NVML and the clock.
"""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import astuple, dataclass
from pathlib import Path

import pytest

from gpusupervisor import daemon as daemon_module
from gpusupervisor.bus import names
from gpusupervisor.clock import SystemClock
from gpusupervisor.daemon import Daemon, Surroundings
from gpusupervisor.jobs import Report
from gpusupervisor.simulation.daemon import AnybodyMay
from gpusupervisor.simulation.engines.third_app import API_AS_TENANT
from gpusupervisor.simulation.nvml import CardWorld, SimulatedGpu, installed
from gpusupervisor.supervisor import Supervisor
from gpusupervisor.telemetry.store import BATCH_ROWS, Store
from tests.daemon.conftest import hang_up
from tests.daemon.observer import CallFailed, Observer, observer_of
from tests.daemon.station import Engine, Station

CARD = SimulatedGpu().uuid
BOX = f"""\
title = "Box"
priority = 20
min-residency = "0"
cooldown = "0"
release-budget = 1000
[match]
command-lines = ["*engines.third_app*"]
{API_AS_TENANT}"""
BROKEN = 'priority = "very"\n'


@dataclass(frozen=True)
class Footprint:
    """What the process has."""

    descriptors: int
    tasks: int
    objects: int
    resident: int
    """Bytes."""
    rows: int
    """Of telemetry, on their way to the disk."""


async def footprint() -> Footprint:
    """Now, with everything collected that can be."""
    tasks = len(asyncio.all_tasks())
    return await asyncio.to_thread(_footprint, tasks)


def _footprint(tasks: int) -> Footprint:
    gc.collect()
    objects = gc.get_objects()
    rows = sum(len(each._points) + len(each._events) for each in objects if isinstance(each, Store))
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return Footprint(len(os.listdir("/proc/self/fd")), tasks, len(objects), resident, rows)


class LeapingClock(SystemClock):
    """The machine's clock, put forward at every pause."""

    ahead = 0

    def now(self) -> int:
        return super().now() + LeapingClock.ahead


class Soak:
    """One daemon, and what is done to it."""

    def __init__(self, station: Station, daemon: Daemon, observer: Observer) -> None:
        self.station = station
        self.ticks = 0
        self.virtual = 0
        """Microseconds that have passed for the daemon between ticks."""
        self._daemon = daemon
        self._observer = observer
        self._ticked = asyncio.Event()
        self._box: Engine | None = None

    def tick(self, interval: int) -> None:
        """The daemon has ticked and leaps."""
        self.ticks += 1
        self.virtual += interval
        LeapingClock.ahead += interval
        self._ticked.set()

    async def let_pass(self, ticks: int) -> None:
        """Wait for so many more ticks."""
        wanted = self.ticks + ticks
        async with asyncio.timeout(60):
            while self.ticks < wanted:
                self._ticked.clear()
                await self._ticked.wait()

    async def footprint(self) -> Footprint:
        """The least of a few moments: what comes and goes with a request does not count."""
        seen = []
        for _ in range(5):
            seen.append(await footprint())
            await self.let_pass(2)
        least = zip(*map(astuple, seen), strict=True)
        return Footprint(*map(min, least))

    async def cycle(self, ticks: int) -> None:
        """Everything that can go wrong, once, over so many ticks."""
        faults: tuple[Callable[[], Awaitable[None]], ...] = (
            self._engine_dies, self._engine_hangs, self._gpu_is_lost, self._helper_is_killed, self._bad_reload,
            self._subscribers_come_and_go, self._jobs_begin_and_end, self._callers_call,
        )  # fmt: skip
        for fault in faults:
            began = self.ticks
            await fault()
            await self.let_pass(max(1, ticks // len(faults) - (self.ticks - began)))

    async def start_box(self) -> None:
        """An engine comes."""
        self._box = await asyncio.to_thread(self.station.engine, "third_app", "--port", "0")
        await asyncio.to_thread(self.station.describe, {"box": BOX.format(url=self._box.url)})
        await self._observer.manager("Reload")

    async def _engine_dies(self) -> None:
        assert self._box is not None
        self._box.process.kill()
        await asyncio.to_thread(self._box.process.communicate)
        self.station._engines.remove(self._box)
        await self.let_pass(3)
        await self.start_box()

    async def _engine_hangs(self) -> None:
        assert self._box is not None
        self._box.process.send_signal(signal.SIGSTOP)
        await self.let_pass(5)
        self._box.process.send_signal(signal.SIGCONT)

    async def _gpu_is_lost(self) -> None:
        await asyncio.to_thread(self.station.card.change_gpu, CARD, lost=True)
        await self.let_pass(5)
        await asyncio.to_thread(self.station.card.change_gpu, CARD, lost=False)
        await asyncio.to_thread(self.station.card.change, errors={"nvmlDeviceGetComputeRunningProcesses_v3": 4})
        await self.let_pass(5)
        await asyncio.to_thread(self.station.card.change, errors={})

    async def _helper_is_killed(self) -> None:
        helper = await asyncio.to_thread(self.station.helper)
        await self.let_pass(5)
        helper.kill()
        await asyncio.to_thread(helper.wait)

    async def _bad_reload(self) -> None:
        await asyncio.to_thread(self.station.describe, {"broken": BROKEN})
        with pytest.raises(CallFailed):
            await self._observer.manager("Reload")
        await self.let_pass(2)
        await asyncio.to_thread(self.station.describe, {"broken": ""})
        await self._observer.manager("Reload")

    async def _subscribers_come_and_go(self) -> None:
        comers = [await observer_of(self.station.bus.address) for _ in range(5)]
        for comer in comers:
            await comer.ask(names.ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
        await self.let_pass(2)
        for comer in comers:
            await hang_up(comer)

    async def _jobs_begin_and_end(self) -> None:
        async def work(report: Report) -> object:
            report(10, "at work")
            await asyncio.Event().wait()
            return None

        jobs = self._daemon._jobs
        for _ in range(3):
            number = jobs.start("soak", work, "nothing").id
            await self.let_pass(1)
            jobs.cancel(number)
        await self.let_pass(1)

    async def _callers_call(self) -> None:
        await asyncio.gather(
            *(self._observer.ask(names.HEALTH_PATH, f"{names.BUS_NAME}.Health", "Check") for _ in "abc")
        )
        await self._observer.manager("PlanRelease", "sst", "", "", 1 << 30)
        for call in (self._observer.release("box"), self._observer.release("nobody")):
            try:
                await call
            except CallFailed:
                continue  # busy, nothing to give back, nobody: what matters is that nothing is left of it
        self._observer.signals.clear()


@asynccontextmanager
async def soak(station: Station, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Soak]:
    """A daemon that leaps through time, with one engine."""
    monkeypatch.setattr(daemon_module, "SystemClock", LeapingClock)
    surroundings = Surroundings(
        bus_address=station.bus.address, tenant_layers=(station.tenants,), settings_layers=(station.settings,),
        state_directory=station.state, sysfs_root=station.card.directory / "sysfs", authority=AnybodyMay,
    )  # fmt: skip
    log = logging.getLogger("gpusupervisor")
    monkeypatch.setattr(log, "propagate", False)  # pytest would keep every entry
    monkeypatch.setattr(log, "handlers", [logging.NullHandler()])
    interval = Supervisor._interval
    running: list[Soak] = []

    def leap(supervisor: Supervisor) -> int:
        for each in running:
            each.tick(interval(supervisor))
        return 100

    monkeypatch.setattr(Supervisor, "_interval", leap)
    await asyncio.to_thread(station.settings.write_text, 'reserve = "0"\n')
    world = await asyncio.to_thread(CardWorld, station.card.directory)
    with installed(world):
        daemon = Daemon(surroundings)
        life = asyncio.create_task(daemon.run())
        observer = await observer_of(station.bus.address)
        try:
            await observer.sees(names.ROOT, "Manager", "a first look", Driver=lambda state: state == "ok")
            one = Soak(station, daemon, observer)
            running.append(one)
            await one.start_box()
            yield one
        finally:
            await hang_up(observer)
            life.cancel()
            await asyncio.wait({life})
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                asyncio.get_running_loop().remove_signal_handler(number)


def assert_no_growth(before: Footprint, after: Footprint, objects: int) -> None:
    """The process has what it had, but for a few objects of caches that fill."""
    assert after.descriptors <= before.descriptors + 2, (before, after)
    assert after.tasks <= before.tasks + 2, (before, after)
    assert after.objects <= before.objects + objects, (before, after)
    assert after.rows <= 2 * BATCH_ROWS, (before, after)
    assert after.resident <= before.resident + (16 << 20), (before, after)
