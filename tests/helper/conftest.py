"""A private bus with the real privileged services on it, and a card directory that says who holds VRAM."""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gpusupervisor.bus import names
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.simulation.nvml import Allocation, SimulatedCard, SimulatedGpu
from tests.bus.conftest import PERMISSIVE, PrivateBus, Result, mortal_bus, shared_bus  # noqa: F401  (fixtures)
from tests.notify_socket import NotifySocket

CARD = SimulatedGpu()
TENANT = 'title = "App"\n[match]\nunits = ["app.service"]\n[endpoint]\nurl = "http://127.0.0.1:1"\n'


@dataclass
class Bench:
    """The helper as a process on a private bus, where the user who runs the tests may call it."""

    program: ClassVar = "helper_daemon"
    name: ClassVar = names.HELPER_NAME
    path: ClassVar = names.HELPER_PATH

    folder: Path
    bus: PrivateBus
    card: SimulatedCard
    systemd: NotifySocket = field(default_factory=NotifySocket)
    running: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    @property
    def tenants(self) -> Path:
        return self.folder / "tenants"

    @property
    def memory(self) -> Path:
        """Stands for /proc where the reader looks for memory, if it exists."""
        return self.folder / "memory"

    def arguments(self) -> list[str]:
        """Arguments of the program, beside those that all have."""
        return [f"--folder={self.folder}"]

    def start(self, *, idle: float = 60) -> "subprocess.Popen[bytes]":
        """Start the service and wait until it is ready."""
        since = len(self.systemd.messages)
        command = [sys.executable, "-m", f"gpusupervisor.simulation.{self.program}", f"--idle={idle}"]
        command += [f"--card={self.card.directory}", f"--bus={self.bus.address}", *self.arguments()]
        environment = {"PATH": os.environ["PATH"], "NOTIFY_SOCKET": self.systemd.address}
        with (self.folder / "log").open("ab") as log:
            self.running.append(subprocess.Popen(command, env=environment, stderr=log))
        self.systemd.wait_for(lambda told: "READY=1" in told, "READY=1", since)
        return self.running[-1]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        """End the helper as the kernel does when memory is short."""
        self.running[-1].kill()
        self.running[-1].wait()

    def restore_fans(self) -> str:
        """What the unit's ExecStopPost= does; what it prints."""
        command = [sys.executable, "-m", "gpusupervisor.simulation.helper_daemon", "--restore-fans"]
        command += [f"--card={self.card.directory}", f"--folder={self.folder}"]
        return subprocess.run(command, env={}, check=True, capture_output=True, text=True).stderr

    async def ask(self, member: str, signature: str = "", *arguments: str, uid: int | None = None) -> Result:
        """Call a method of the service with busctl."""
        call = ("call", self.name, self.path, self.name, member)
        return await self.bus.busctl(*call, *((signature, *arguments) if signature else ()), uid=uid)

    async def state(self) -> dict[str, Any]:
        """What it tells of the card."""
        told: dict[str, Any] = bare((await self.ask("State")).json[0])
        return dict(told[CARD.uuid])

    async def hold(self, pid: int) -> None:
        """Let a process hold VRAM."""
        await asyncio.to_thread(lambda: Allocation(self.card.directory, pid).hold(CARD.uuid, 1 << 30))

    def end(self) -> None:
        """End the service, and leave the rest."""
        for process in self.running:
            process.kill()
            process.wait()
        self.systemd.close()

    def close(self) -> None:
        self.end()
        self.bus.stop()
        shutil.rmtree(self.folder)


class ReaderBench(Bench):
    """The same with the reader."""

    program: ClassVar = "reader_daemon"
    name: ClassVar = names.READER_NAME
    path: ClassVar = names.READER_PATH

    def arguments(self) -> list[str]:
        """Arguments of the program, beside those that all have."""
        return [f"--tenants={self.tenants}", *([f"--memory={self.memory}"] if self.memory.exists() else [])]

    async def facts(self, *keys: ProcessKey, uid: int | None = None) -> Result:
        """Ask with busctl."""
        arguments = [str(number) for key in keys for number in (key.pid, key.start_time)]
        call = ("call", self.name, self.path, self.name, "Facts", "a(ut)", str(len(keys)))
        return await self.bus.busctl(*call, *arguments, uid=uid)

    async def told(self, *keys: ProcessKey) -> list[dict[str, Any]]:
        """What the reader tells."""
        answer = await self.facts(*keys)
        return [{name: value["data"] for name, value in entry.items()} for entry in answer.json[0]]


def bare(value: Any) -> Any:
    """A value of busctl's JSON without its variants."""
    if isinstance(value, dict):
        if value.keys() == {"type", "data"}:
            return bare(value["data"])
        return {key: bare(item) for key, item in value.items()}
    return [bare(item) for item in value] if isinstance(value, list) else value


def set_up() -> tuple[Path, PrivateBus, SimulatedCard]:
    """A folder with a tenant file, a bus and a card."""
    folder = Path(tempfile.mkdtemp(prefix="gpusupervisor-helper-"))
    folder.chmod(0o755)
    for name in ("tenants", "state", "runtime"):
        (folder / name).mkdir(mode=0o700)
    (folder / "tenants/app.toml").write_text(TENANT + 'host-variable = "APP_HOST"\n')
    card = SimulatedCard(folder / "card")
    card.write_card([CARD])
    return folder, PrivateBus(PERMISSIVE), card


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench(*set_up())
    yield bench
    bench.close()


async def eventually(probe: Callable[[], object], what: str, within: float = 10) -> None:
    """Wait until something is so."""
    try:
        async with asyncio.timeout(within):
            while not probe():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None
