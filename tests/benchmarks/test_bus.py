"""What the D-Bus face costs, service and client in one process on a real bus."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from dbus_fast import Message
from dbus_fast.aio import MessageBus

from gpusupervisor.bus import names
from gpusupervisor.bus.service import BusService
from tests.benchmarks.conftest import Report
from tests.bus.builders import GIB, FakeClock, make_state, no_jobs
from tests.bus.conftest import PERMISSIVE, PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

pytestmark = pytest.mark.benchmark_suite
Benchmark = Callable[..., Any]


class Face:
    """A service and a client in a loop of their own."""

    def __init__(self, bus: PrivateBus) -> None:
        self._loop = asyncio.new_event_loop()
        self._address = bus.address
        self.service = self.run(self._start())
        self._client = self.run(self._connect())

    def run(self, work: Awaitable[Any]) -> Any:
        return self._loop.run_until_complete(work)

    async def _start(self) -> BusService:
        return await BusService.start(
            self._address, FakeController(), FakeHardware(), no_jobs(), "1", FakeClock(), lambda _bus: FixedAuthority()
        )

    async def _connect(self) -> MessageBus:
        return await MessageBus(self._address).connect()

    def call(self, path: str, interface: str, member: str, signature: str = "", *body: object) -> Message | None:
        message = Message(names.BUS_NAME, path, interface, member, signature=signature, body=list(body))
        reply: Message | None = self.run(self._client.call(message))
        return reply

    def publish(self, count: int) -> None:
        async def work() -> None:
            self.service.publish(make_state({f"tenant-{number}": GIB // 32 for number in range(count)}))

        self.run(work())

    def close(self) -> None:
        self.run(self.service.stop())
        self._client.disconnect()
        self.run(self._client.wait_for_disconnect())
        self._loop.close()


@pytest.fixture
def face() -> Iterator[Face]:
    bus = PrivateBus(PERMISSIVE)
    face = Face(bus)
    yield face
    face.close()
    bus.stop()


def test_get_managed_objects_of_32_tenants(face: Face, benchmark: Benchmark, figure: Report) -> None:
    face.publish(32)
    reply = benchmark(face.call, names.ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
    assert len(reply.body[0]) == 5 + 1 + 32 + 32
    figure("GetManagedObjects, 32 tenants, median", benchmark.stats.stats.median * 1000, "ms", 5)  # type: ignore[attr-defined]


def test_get_one_property(face: Face, benchmark: Benchmark) -> None:
    face.publish(3)
    arguments = (names.ROOT, "org.freedesktop.DBus.Properties", "Get", "ss", f"{names.BUS_NAME}.Manager", "Status")
    assert benchmark(face.call, *arguments).body[0].value


def test_publish_an_unchanged_state_of_3_tenants(face: Face, benchmark: Benchmark) -> None:
    state = make_state({f"tenant-{number}": GIB for number in range(3)})

    async def publish() -> None:
        face.service.publish(state)

    benchmark(lambda: face.run(publish()))
    reply = face.call(f"{names.ROOT}/tenants", f"{names.BUS_NAME}.Tenants", "List")
    assert reply is not None
    assert reply.body[0] == ["tenant-0", "tenant-1", "tenant-2"]
