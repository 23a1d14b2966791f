"""`make chaos`: everything at once for ten minutes, and what an honest client noticed of it.

    python -m tests.attack.chaos [DURATION]

On a private bus, over a simulated card: attackers of several users on the bus, a driver that fails at random, engines
that are slow, endless or talk garbage. At the end buses are killed, which the service has to survive by being started
again. Ends with 1 when a goal is missed.
"""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.quantities import parse_duration
from gpusupervisor.simulation.nvml import GIB, SimulatedGpu, SimulatedProcess
from tests.attack.hostile_engines import HostileEngine
from tests.attack.raw import HONEST
from tests.daemon.station import Daemon, Station, wait_until

P99 = 250.0
"""Milliseconds: the goal."""
GROWTH = 1.5
"""Times the resident memory of an idle service that has just started: the goal for afterwards."""
UNANSWERED = ("TimeoutError", "OSError", "EOFError", "BrokenPipeError", "ConnectionResetError")
SETTLE = 15.0
"""Seconds in which what was used for a moment is given back, and caches are filled before."""
BUSES_KILLED = 3
CODES = (1, 2, 3, 4, 6, 7, 9, 10, 15, 16, 17, 18, 19, 20, 21, 23, 27, 28, 29, 999)
"""nvmlReturn_t."""
FUNCTIONS = (
    "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetUUID",
    "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetMigMode", "nvmlSystemGetDriverVersion", "nvmlDeviceGetName",
)  # fmt: skip


@dataclass
class Service:
    """The daemon, started again whenever it ends, as systemd would."""

    station: Station
    daemon: Daemon
    restarts: int = 0

    def look(self) -> None:
        """Start it again when it has ended."""
        if self.daemon.process.poll() is not None:
            self.restarts += 1
            say(f"the service has ended with {self.daemon.process.returncode}:\n{self.daemon.log[-2000:]}")
            self.daemon = self.station.daemon()
            self.daemon.wait_ready()

    @property
    def rss(self) -> float:
        """MiB."""
        text = Path(f"/proc/{self.daemon.process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024

    @property
    def descriptors(self) -> int:
        """Open files."""
        return len(os.listdir(f"/proc/{self.daemon.process.pid}/fd"))


def say(text: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def glitch(station: Station) -> None:
    """Change what the driver answers."""
    card = station.card
    gpu = card.read().gpus[0]
    match random.randrange(5):
        case 0:
            card.change(errors={random.choice(FUNCTIONS): random.choice(CODES)})
        case 1:
            card.change_gpu(gpu.uuid, unified=random.choice(["zero", "not-supported"]))
        case 2:
            card.change_gpu(gpu.uuid, errors={random.choice(FUNCTIONS): random.choice(CODES)})
        case 3:
            card.change(latency={random.choice(FUNCTIONS): random.uniform(0.05, 0.5)})
        case _:
            processes = [SimulatedProcess(random.randrange(1, 1 << 22), GIB) for _ in range(random.randrange(4))]
            card.change_gpu(gpu.uuid, processes=processes)


def calm(station: Station) -> None:
    """The driver answers as it should."""
    station.card.write_card([SimulatedGpu()])


@contextmanager
def running(*command: str) -> Iterator["subprocess.Popen[str]"]:
    """A program of ours, until the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", *command], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        if process.stdout and not process.stdout.closed:
            process.stdout.close()


@dataclass
class Figures:
    """What an honest client has seen: seconds that it waited for answers, of the bus itself too, and what failed."""

    waits: list[float]
    failures: list[str]
    bus: list[float]


def honest_figures(process: "subprocess.Popen[str]") -> Figures:
    """Of a client, which ends."""
    process.terminate()
    return Figures(**json.loads(process.communicate(timeout=60)[0]))


def ninety_ninth(waits: list[float]) -> float:
    """Milliseconds in which all but the slowest hundredth were answered; infinite for none."""
    return sorted(waits)[max(0, len(waits) * 99 // 100 - 1)] * 1000 if waits else float("inf")


def storm(service: Service, seconds: float) -> Figures:
    """Everything at once."""
    station, end = service.station, time.monotonic() + seconds
    with (
        running("tests.attack.attackers", station.bus.address) as attackers,
        running("tests.attack.honest", station.bus.address, str(HONEST)) as honest,
    ):
        while time.monotonic() < end:
            glitch(station)
            time.sleep(random.uniform(0.1, 0.7))
            if random.random() < 0.3:
                calm(station)
            service.look()
            assert attackers.poll() is None, "the attackers gave up"
        attackers.terminate()
        attackers.wait(60)
        return honest_figures(honest)


def killed_buses() -> int:
    """How many of the services whose bus was killed ended as they should and were there again after a start."""
    survived = 0
    for _ in range(BUSES_KILLED):
        station = Station()
        try:
            daemon = station.daemon()
            daemon.wait_ready()
            station.bus.process.kill()
            ended = wait_until(lambda d=daemon: d.process.poll() is not None, "the end", 60)  # type: ignore[misc]
            survived += bool(ended) and daemon.process.returncode == 1 and "Traceback" not in daemon.log
        finally:
            station.close()
    return survived


def verdict(name: str, shown: str, goal: str, *, met: bool) -> bool:
    """Print one line of it."""
    say(f"  {'met   ' if met else 'MISSED'}  {name:<34} {shown:<22} goal: {goal}")
    return met


def main() -> int:
    """Entry point; the exit code."""
    seconds = parse_duration(sys.argv[1] if len(sys.argv) > 1 else "10min") / 1_000_000
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    station = Station()
    engines = [HostileEngine(kind) for kind in ("slow", "endless", "garbage", "huge")]
    try:
        station.describe({f"hostile-{engine.kind}": engine.tenant_file for engine in engines})
        service = Service(station, station.daemon().wait_ready())
        time.sleep(SETTLE)
        idle_rss, idle_files = service.rss, service.descriptors
        say(f"{seconds:.0f} s of chaos; idle: {idle_rss:.0f} MiB, {idle_files} open files (limit {limit})")
        seen = storm(service, seconds)
        calm(station)
        time.sleep(SETTLE)
        rss, files = service.rss, service.descriptors
        load = os.getloadavg()[0]
    finally:
        for engine in engines:
            engine.close()
        station.close()
    survived = killed_buses()
    silent = sum(each.startswith(UNANSWERED) for each in seen.failures)
    asked = len(seen.waits) + silent
    answered = (asked - len(seen.failures)) / asked if asked else 0.0
    p99, bus = ninety_ninth(seen.waits), ninety_ninth(seen.bus)
    say(f"An honest client made {asked} calls; load {load:.1f} on {os.cpu_count()} processors:")
    met = [
        verdict("answered", f"{answered:.2%}", "100 %", met=bool(seen.waits) and not seen.failures),
        verdict("99th percentile of its waits", f"{p99:.0f} ms", f"< {P99:.0f} ms", met=p99 < P99),
        verdict("resident memory afterwards", f"{rss:.0f} MiB", f"< {GROWTH} x idle", met=rss < GROWTH * idle_rss),
        verdict("open files afterwards", str(files), f"<= {idle_files + 4}", met=files <= idle_files + 4),
        verdict("restarts nobody asked for", str(service.restarts), "0", met=service.restarts == 0),
        verdict("buses killed and survived", str(survived), str(BUSES_KILLED), met=survived == BUSES_KILLED),
    ]
    say(f"          (the bus itself answered within {bus:.0f} ms: that much is the machine's load)")
    for failure in seen.failures[:10]:
        say(f"  not answered: {failure}")
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
