"""A real dbus-daemon of one's own, the service on it, and the clients that people really use."""

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dbus_fast import Message
from dbus_fast.aio import MessageBus

from gpusupervisor.bus import names
from gpusupervisor.bus.authority import Authority
from gpusupervisor.bus.service import BusService
from gpusupervisor.jobs import Job, Jobs
from tests.bus.builders import FakeClock
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

NOBODY = 65534
as_nobody = pytest.mark.skipif(
    os.geteuid() != 0
    or not all(each.stat().st_mode & stat.S_IXOTH for each in Path(sys.executable).absolute().parents),
    reason="needs root, to run our programs as somebody else, and a checkout that is not in a closed folder like /root",
)
PERMISSIVE = """\
<busconfig>
  <type>session</type>
  <listen>unix:path={socket}</listen>
  <policy context="default">
    <allow user="*"/><allow own="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/>
  </policy>
</busconfig>
"""


@dataclass(frozen=True)
class Result:
    """What a client program printed and returned."""

    status: int
    output: str
    errors: str

    @property
    def json(self) -> Any:
        """The data of a busctl --json=short answer."""
        assert self.status == 0, self.errors
        return json.loads(self.output)["data"]


def need(program: str) -> None:
    """Skip the test where a program is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


class PrivateBus:
    """A dbus-daemon in a folder that every user may enter."""

    def __init__(self, configuration: str) -> None:
        need("dbus-daemon")
        self._folder = Path(tempfile.mkdtemp(prefix="gpusupervisor-bus-"))
        self._folder.chmod(0o755)
        socket = self._folder / "socket"
        config = self._folder / "bus.conf"
        config.write_text(configuration.format(socket=socket, folder=self._folder))
        self.address = f"unix:path={socket}"
        command = ["dbus-daemon", f"--config-file={config}", "--nofork", "--nopidfile", "--print-address"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "dbus-daemon did not start"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        shutil.rmtree(self._folder)

    async def run(self, *command: str, uid: int | None = None) -> Result:
        """Run a client program on this bus, as another user where we may."""
        process = await self.spawn(*command, uid=uid)
        output, errors = await process.communicate()
        return Result(process.returncode or 0, output.decode(), errors.decode())

    async def spawn(self, *command: str, uid: int | None = None) -> asyncio.subprocess.Process:
        need(command[0])
        other = {"user": uid, "group": uid, "extra_groups": []} if uid is not None and os.geteuid() == 0 else {}
        environment = {
            "PATH": os.environ["PATH"],
            "DBUS_SYSTEM_BUS_ADDRESS": self.address,
            "DBUS_SESSION_BUS_ADDRESS": self.address,
            "LC_ALL": "C.UTF-8",
        }
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env=environment,
            cwd="/",
            **other,  # type: ignore[arg-type]
        )

    async def busctl(self, *arguments: str, uid: int | None = None) -> Result:
        return await self.run("busctl", f"--address={self.address}", "--json=short", *arguments, uid=uid)

    async def call(self, path: str, interface: str, member: str, *arguments: str, uid: int | None = None) -> Result:
        full = f"{names.BUS_NAME}.{interface}" if "." not in interface else interface
        return await self.busctl("call", names.BUS_NAME, path, full, member, *arguments, uid=uid)


@pytest.fixture(scope="session")
def shared_bus() -> Iterator[PrivateBus]:
    """One bus for all tests that leave it alive."""
    bus = PrivateBus(PERMISSIVE)
    yield bus
    bus.stop()


@pytest.fixture
def mortal_bus() -> Iterator[PrivateBus]:
    """A bus that the test may kill."""
    bus = PrivateBus(PERMISSIVE)
    yield bus
    bus.stop()


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def hardware() -> FakeHardware:
    return FakeHardware()


Starter = Callable[..., Awaitable[BusService]]


@pytest.fixture
def started() -> list[BusService]:
    """The services that were started."""
    return []


@pytest.fixture
def jobs(started: list[BusService]) -> Jobs:
    """The jobs that the service that was started last shows."""

    def show(job: Job) -> None:
        started[-1].show_job(job)

    return Jobs(FakeClock(), show)


@pytest.fixture
async def start(
    shared_bus: PrivateBus, controller: FakeController, hardware: FakeHardware, started: list[BusService], jobs: Jobs
) -> AsyncIterator[Starter]:
    """Starts services that are stopped after the test."""

    async def start_one(
        authority: Callable[[MessageBus], Authority] = lambda _bus: FixedAuthority(), bus: PrivateBus = shared_bus
    ) -> BusService:
        service = await BusService.start(bus.address, controller, hardware, jobs, "1.2.3", FakeClock(), authority)
        started.append(service)
        return service

    yield start_one
    await jobs.close()
    for service in started:
        await service.stop()


class Client:
    """A plain client that records the signals of our name."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self.signals: list[Message] = []
        self._news = asyncio.Event()
        bus.add_message_handler(self._take)

    def _take(self, message: Message) -> None:
        if message.path and message.path.startswith(names.ROOT) and message.member != "NameOwnerChanged":
            self.signals.append(message)
            self._news.set()

    async def call(self, path: str, interface: str, member: str, signature: str = "", *body: object) -> Message:
        message = Message(names.BUS_NAME, path, interface, member, signature=signature, body=list(body))
        async with asyncio.timeout(10):
            reply = await self.bus.call(message)
        assert reply is not None
        return reply

    async def settle(self) -> None:
        """Every signal that was sent before now has arrived after this: the bus keeps the order."""
        await self.call(names.ROOT, "org.freedesktop.DBus.Peer", "Ping")

    async def wait_for(self, predicate: Callable[[list[Message]], object]) -> None:
        """Wait until the signals so far satisfy a condition."""
        async with asyncio.timeout(10):
            while not predicate(self.signals):
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def client(shared_bus: PrivateBus) -> AsyncIterator[Client]:
    bus = await MessageBus(shared_bus.address).connect()
    rule = f"type='signal',path_namespace='{names.ROOT}'"
    await bus.call(
        Message(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch",
            signature="s", body=[rule],
        )
    )  # fmt: skip
    yield Client(bus)
    bus.disconnect()
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
