"""What the command line costs: from the start of the process to its end."""

import asyncio
import os
import statistics
import subprocess
import sys
import time

import pytest

from gpusupervisor.bus.service import BusService
from tests.benchmarks.conftest import Report
from tests.bus.builders import GIB, FakeClock, make_state, no_jobs
from tests.bus.conftest import PERMISSIVE, PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

pytestmark = pytest.mark.benchmark_suite
RUNS = 15
TENANTS = 40


async def test_status(figure: Report) -> None:
    bus = PrivateBus(PERMISSIVE)
    service = await BusService.start(
        bus.address, FakeController(), FakeHardware(), no_jobs(), "1.2.3", FakeClock(), lambda _bus: FixedAuthority()
    )
    for count, name in ((3, "3 tenants"), (TENANTS, f"{TENANTS} tenants")):
        service.publish(make_state({f"tenant-{n}": GIB // 4 for n in range(count)}))
        times = [await asyncio.to_thread(run, bus, "status") for _ in range(RUNS)]
        figure(f"gpusupervisorctl status, {name}, median", statistics.median(times), "ms", 150)
    times = [await asyncio.to_thread(run, bus, "status", "--json") for _ in range(RUNS)]
    figure("gpusupervisorctl status --json, median", statistics.median(times), "ms", 150)
    times = [await asyncio.to_thread(run, bus, "complete", "zsh", "--", "release", "") for _ in range(RUNS)]
    figure(f"a Tab that completes {TENANTS} tenants, median", statistics.median(times), "ms", 150)
    times = [await asyncio.to_thread(run, bus, "--help") for _ in range(RUNS)]
    figure("gpusupervisorctl --help, median", statistics.median(times), "ms", 100)
    await service.stop()
    bus.stop()


def run(bus: PrivateBus, *arguments: str) -> float:
    """Milliseconds of one run, which ends well."""
    environment = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "gpusupervisor.cli.main", *arguments], env=environment, check=True,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    return (time.perf_counter() - started) * 1000
