"""What it costs to find idle engines among all processes of a machine, in the real /proc."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.keepers.engine_scan import EVERY, TURNS, EngineScan
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.signs import signs_of
from tests.benchmarks.conftest import Report
from tests.gpu.machine import HandClock

pytestmark = pytest.mark.benchmark_suite

PROCESSES = 1000
ARGUMENTS = ["--type=renderer", "--enable-features=" + "Feature," * 40, "--profile=/home/a/.config/browser"]
"""A long command line, as browsers have it."""


@pytest.fixture
def crowd() -> Iterator[None]:
    """So many processes as a busy desktop has."""
    command = ["sh", "-c", "read x", *ARGUMENTS]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(PROCESSES)]
    yield
    for process in running:
        process.communicate()


def test_cpu_of_a_scan_for_engines(crowd: None, figure: Report) -> None:
    """The first scan looks at everybody; later ones list all PIDs, and look at who is new and at a few others."""
    clock = HandClock()
    scan = EngineScan(Procfs(Path("/proc")), clock)
    scan.use(signs_of(load_catalog([SHIPPED]).definitions.values()))
    before = time.process_time()
    scan.look()
    first = (time.process_time() - before) * 1000
    scan.look()
    before = time.process_time()
    for _ in range(TURNS):
        clock.instant += EVERY
        assert scan.is_due()
        scan.look()
    each = (time.process_time() - before) / TURNS * 1000
    figure(f"CPU of the first scan of {PROCESSES} processes for engines", first, "ms", 100)
    figure("CPU of each later one, every ten seconds", each, "ms", 5)
    figure("the same as a share of a tick a second", each / 10, "ms", 0.5)
