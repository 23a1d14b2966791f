"""What the service costs as a process."""

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from gpusupervisor.simulation.nvml import SimulatedCard
from tests.benchmarks.conftest import Report
from tests.bus.conftest import PERMISSIVE, PrivateBus

pytestmark = pytest.mark.benchmark_suite
STARTS = 5
WARM_UP = 5.0


def test_start_and_memory(tmp_path: Path, figure: Report) -> None:
    SimulatedCard(tmp_path / "card").write_card()
    bus = PrivateBus(PERMISSIVE)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(10)
        times = []
        for _ in range(STARTS):
            started = time.perf_counter()
            process = start(tmp_path, bus)
            wait_ready(systemd)
            times.append((time.perf_counter() - started) * 1000)
            if len(times) == STARTS:
                time.sleep(WARM_UP)  # until the HTTP client is loaded, which is the last thing that grows
                resident = psutil.Process(process.pid).memory_info().rss / 2**20
            process.terminate()
            assert process.wait(10) == 0
    bus.stop()
    figure("exec to READY, median", statistics.median(times), "ms", 500)
    figure("resident set", resident, "MiB", 45)


def start(directory: Path, bus: PrivateBus) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-m", "gpusupervisor.simulation.daemon", "--card", str(directory / "card")]
    command += ["--bus", bus.address, "--tenants", str(directory), "--settings", str(directory / "none.toml")]
    environment = {
        **os.environ, "NOTIFY_SOCKET": str(directory / "notify"), "STATE_DIRECTORY": str(directory / "state"),
    }  # fmt: skip
    return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)


def wait_ready(systemd: socket.socket) -> None:
    while b"READY=1" not in systemd.recv(4096):
        continue
