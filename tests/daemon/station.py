"""The real daemon as a process on a private bus, over a card directory, with simulated engines as processes.

Everything here is synchronous, so that one of each can serve all tests of a module.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpusupervisor.simulation.engines.launch import PACKAGE, environment
from gpusupervisor.simulation.nvml import SimulatedCard, SimulatedGpu
from gpusupervisor.tenants.catalog import SHIPPED as DEFINITIONS
from tests.bus.conftest import PERMISSIVE, PrivateBus
from tests.notify_socket import NotifySocket

T = TypeVar("T")
PATIENCE = 15.0
QUICK = 'interval = "100ms"\nidle-interval = "100ms"\nreserve = "0"\n'
SHIPPED = tuple(path.stem for path in DEFINITIONS.glob("*.toml"))


def wait_until(probe: Callable[[], T], what: str, within: float = PATIENCE) -> T:
    """Ask until the answer is true."""
    deadline = time.monotonic() + within
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}")
        time.sleep(0.02)
    return answer


@dataclass
class Engine:
    """A simulated engine that is ready."""

    process: "subprocess.Popen[str]"
    url: str

    def post(self, path: str, body: Mapping[str, object], timeout: float = 20) -> Any:
        """POST JSON and wait for the answer."""
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
        return json.loads(text) if text else None


class Daemon:
    """A supervisor under a systemd of one's own."""

    def __init__(self, command: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.systemd = NotifySocket()
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, env={**environment, "NOTIFY_SOCKET": self.systemd.address}, stderr=stderr,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            )  # fmt: skip

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_ready(self) -> "Daemon":
        """Wait for READY=1, or fail with what the daemon logged."""
        wait_until(
            lambda: "READY=1" in self.systemd.messages or self.process.poll() is not None, f"READY=1; {self._log}"
        )
        assert "READY=1" in self.systemd.messages, self.log
        return self

    def wait_ticks(self, count: int) -> None:
        """Wait for so many more ticks: each feeds the watchdog once."""
        before = len(self.systemd.messages)
        self.systemd.wait_for(lambda told: told.count("WATCHDOG=1") >= count, f"{count} ticks", before)

    def wait_status(self, part: str, since: int = 0) -> str:
        """Wait until STATUS= has a text in it; returns the whole."""
        return wait_until(
            lambda: next((text for text in self.systemd.statuses(since) if part in text), ""), f"a status with {part!r}"
        )

    def reload(self) -> list[str]:
        """Send SIGHUP and wait until it is over; returns what was told meanwhile."""
        before = len(self.systemd.messages)
        self.process.send_signal(signal.SIGHUP)
        return self.systemd.wait_for(lambda told: "READY=1" in told, "the end of the reload", before)

    def wait(self, within: float = PATIENCE) -> int:
        """Wait for its end; returns the exit code."""
        return self.process.wait(within)

    def terminate(self) -> tuple[int, float]:
        """End it as systemd does; returns the exit code and how many seconds it took."""
        started = time.monotonic()
        self.process.terminate()
        return self.wait(), time.monotonic() - started

    def close(self) -> None:
        """End it if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.systemd.close()


class Station:
    """A machine with one card, and what runs on it."""

    def __init__(self, *gpus: SimulatedGpu, **card: Any) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gpusupervisor-station-"))
        self.folder.chmod(0o755)
        self.bus = PrivateBus(PERMISSIVE)
        self.card = SimulatedCard(self.folder / "card")
        self.card.write_card(list(gpus or (SimulatedGpu(),)), **card)
        self.tenants = self.folder / "tenants.d"
        self.settings = self.folder / "gpusupervisor.toml"
        self.state = self.folder / "state"
        self.tenants.mkdir()
        self.state.mkdir()
        self.settings.write_text(QUICK)
        self.describe(dict.fromkeys(SHIPPED, ""))  # an empty file masks: nothing of this machine is probed
        self._engines: list[Engine] = []
        self._daemons: list[Daemon] = []
        self._helpers: list[subprocess.Popen[bytes]] = []

    def describe(self, files: Mapping[str, str]) -> None:
        """Write tenant files."""
        for name, text in files.items():
            (self.tenants / f"{name}.toml").write_text(text)

    def engine(self, name: str, *arguments: str | Path, executable: Path | None = None, **variables: str) -> Engine:
        """Start a simulated engine, with variables in its environment, and wait until it listens."""
        extra = {**(environment() if executable else {}), **variables}
        process = subprocess.Popen(
            [executable or sys.executable, "-m", f"{PACKAGE}.{name}", "--card", self.card.directory, *arguments],
            env={**self._environment(), **extra}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        port = line.rstrip().rpartition(":")[2]
        engine = Engine(process, f"http://127.0.0.1:{port}")
        self._engines.append(engine)
        assert line, f"the simulated {name} did not come up"
        return engine

    def helper(self) -> "subprocess.Popen[bytes]":
        """Start a helper, again with what an earlier one left, and wait until it is ready."""
        folder = self.folder / "helper"
        for name in ("state", "runtime"):
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        command = [
            sys.executable, "-m", "gpusupervisor.simulation.helper_daemon", "--card", str(self.card.directory),
            "--folder", str(folder), "--bus", self.bus.address,
        ]  # fmt: skip
        systemd = NotifySocket()
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                command, env={**self._environment(), "NOTIFY_SOCKET": systemd.address}, stderr=log
            )
        self._helpers.append(process)
        try:
            systemd.wait_for(lambda told: "READY=1" in told, "READY=1 of the helper", 0)
        finally:
            systemd.close()
        return process

    def daemon(self, *arguments: str) -> Daemon:
        """Start a supervisor."""
        command = [
            sys.executable, "-m", "gpusupervisor.simulation.daemon", "--card", str(self.card.directory),
            "--tenants", str(self.tenants), "--settings", str(self.settings), "--bus", self.bus.address, *arguments,
        ]  # fmt: skip
        number = len(self._daemons)
        variables = {**self._environment(), "STATE_DIRECTORY": str(self.state)}
        daemon = Daemon(command, variables, self.folder / f"daemon-{number}.log")
        self._daemons.append(daemon)
        return daemon

    def dismiss(self, daemon: Daemon) -> None:
        """End a supervisor; what else there is goes on."""
        daemon.terminate()
        daemon.close()
        self._daemons.remove(daemon)

    def close(self) -> None:
        """End everything."""
        for daemon in self._daemons:
            daemon.close()
        for helper in self._helpers:
            helper.kill()
            helper.wait()
        for engine in self._engines:
            engine.process.terminate()
        for engine in self._engines:
            engine.process.communicate()
        self.bus.stop()
        shutil.rmtree(self.folder)

    def _environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1",
            "DBUS_SYSTEM_BUS_ADDRESS": self.bus.address, "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent",
        }  # fmt: skip
