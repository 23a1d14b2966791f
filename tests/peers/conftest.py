"""A bus with a systemd on it, and the client that follows that."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import driver_call
from gpusupervisor.peers import unit_client
from gpusupervisor.peers.unit_client import UnitClient
from tests.bus.conftest import PERMISSIVE, PrivateBus
from tests.peers.fake_systemd import FakeSystemd


@pytest.fixture(scope="module")
def bus() -> Iterator[PrivateBus]:
    one = PrivateBus(PERMISSIVE)
    yield one
    one.stop()


@pytest.fixture
async def systemd(bus: PrivateBus) -> AsyncIterator[FakeSystemd]:
    one = await FakeSystemd.start(bus.address)
    yield one
    await one.stop()


class Follower:
    """A client that is followed by a test."""

    def __init__(self, connection: MessageBus, cgroup_root: Path) -> None:
        self._connection = connection
        self.client = UnitClient(cgroup_root)
        self.shown = 0
        self._news = asyncio.Event()
        self.task = asyncio.create_task(self.client.follow_for_ever(connection, self._show))

    async def settle(self, other: MessageBus) -> None:
        """Every signal that the other one has sent before now has arrived after this: the bus keeps the order."""
        for connection in (other, self._connection):
            await connection.call(driver_call("GetId"))

    async def _show(self) -> None:
        self.shown += 1
        self._news.set()

    async def until(self, predicate: Callable[[], object]) -> None:
        """Wait until something that was shown makes it true."""
        async with asyncio.timeout(10):
            while not predicate():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def follower(bus: PrivateBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Follower]:
    monkeypatch.setattr(unit_client, "TOGETHER", 0.01)
    monkeypatch.setattr(unit_client, "SETTLED", 0.1)
    monkeypatch.setattr(unit_client, "PATIENCE", 5.0)
    connection = await MessageBus(bus.address).connect()
    one = Follower(connection, tmp_path / "cgroup")
    yield one
    one.task.cancel()
    await asyncio.gather(one.task, return_exceptions=True)
    connection.disconnect()
    await connection.wait_for_disconnect()  # type: ignore[no-untyped-call]
