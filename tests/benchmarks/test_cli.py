"""What the command line costs: from the start of the process to its end."""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpusupervisor.bus.service import BusService
from tests.benchmarks.conftest import Report
from tests.bus.builders import GIB, FakeClock, make_state, no_jobs
from tests.bus.conftest import PERMISSIVE, PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

pytestmark = pytest.mark.benchmark_suite
PROGRAM = Path(sys.executable).with_name("gpusupervisorctl")
RUNS = 15


async def test_status(figure: Report) -> None:
    bus = PrivateBus(PERMISSIVE)
    service = await BusService.start(
        bus.address, FakeController(), FakeHardware(), no_jobs(), "1.2.3", FakeClock(), lambda _bus: FixedAuthority()
    )
    for tenants, command, goal in (
        (3, "status", 100), (40, "status", 110), (40, "status --json", 100), (40, "complete zsh -- release ", 70),
        (40, "--help", 50), (40, "--version", 40),
    ):  # fmt: skip
        service.publish(make_state({f"tenant-{n}": GIB // 4 for n in range(tenants)}))
        runs = [await asyncio.to_thread(run, bus, *command.split(" ")) for _ in range(RUNS)]
        for what, times in zip(("time", "CPU time"), zip(*runs, strict=True), strict=True):
            name = f"gpusupervisorctl {command}, {tenants} tenants, {what}, median"
            figure(name, statistics.median(times), "ms", goal)
    await service.stop()
    bus.stop()


def run(bus: PrivateBus, *arguments: str) -> tuple[float, float]:
    """Milliseconds of one run, which ends well, and of CPU time in it, which other programs cannot lengthen."""
    environment = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([PROGRAM, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return took * 1000, used * 1000
