"""The telemetry object on the bus, typed as a person types it."""

import asyncio
import json

import pytest
from dbus_fast.aio import MessageBus

from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.bus import names
from gpusupervisor.bus.service import BusService
from gpusupervisor.errors import Busy
from gpusupervisor.jobs import Jobs
from gpusupervisor.telemetry.downsample import SeriesPoint
from gpusupervisor.telemetry.records import Series, Span, StoredEvent
from tests.bus.builders import CARD, GIB, FakeClock
from tests.bus.conftest import Client, PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

FACT = Fact("need", "comfyui", "", 14 * GIB, 1_790_000_000_000_000, "the most that it held", "/opt/python\x1b[31m")


class FakeTelemetry:
    """Answers, and notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def query(self, series: Series, start: int, end: int, points: int) -> list[SeriesPoint]:
        self.calls.append(("query", series, start, end, points))
        await self.gate.wait()
        return [SeriesPoint(1_790_000_000_000_000, 1, 2, 3 * GIB)]

    async def series(self) -> list[Span]:
        return [Span(Series("holding", CARD, "comfyui"), 5, 6)]

    async def events(self, start: int, end: int, kind: str, limit: int) -> list[StoredEvent]:
        self.calls.append(("events", start, end, kind, limit))
        if kind == "busy":
            raise Busy("ask for a shorter time")
        return [StoredEvent("plan", 7, "comfyui", CARD, "plan-7", json.dumps({"summary": "x" * 3000}))]

    def learned(self) -> tuple[Fact, ...]:
        return (FACT,)

    def is_stored(self, fact: Fact) -> bool:
        return fact == FACT

    async def forget(self, tenant: str, kind: str) -> int:
        self.calls.append(("forget", tenant, kind))
        return 1


@pytest.fixture
def telemetry() -> FakeTelemetry:
    return FakeTelemetry()


async def started(bus: PrivateBus, telemetry: FakeTelemetry | None, authority: FixedAuthority) -> BusService:
    def of(_bus: MessageBus) -> FixedAuthority:
        return authority

    jobs = Jobs(FakeClock(), lambda _job: None)
    return await BusService.start(bus.address, FakeController(), FakeHardware(), jobs, "1", FakeClock(), of, telemetry)


async def test_everything_can_be_asked_with_busctl(shared_bus: PrivateBus, telemetry: FakeTelemetry) -> None:
    authority = FixedAuthority()
    service = await started(shared_bus, telemetry, authority)
    at = names.TELEMETRY_PATH
    try:
        points = await shared_bus.call(at, "Telemetry", "Query", "sssttu", "holding", CARD, "comfyui", "0", "0", "100")
        assert points.json == [[[1_790_000_000_000_000, 1, 2, 3 * GIB]]]
        assert telemetry.calls == [("query", Series("holding", CARD, "comfyui"), 0, 0, 100)]
        series = await shared_bus.call(at, "Telemetry", "Series")
        assert series.json == [[["holding", CARD, "comfyui", 5, 6]]]
        events = await shared_bus.call(at, "Telemetry", "Events", "ttsu", "0", "0", "plan", "5")
        [told] = events.json[0]
        assert (told["kind"]["data"], told["plan"]["data"]) == ("plan", "plan-7")
        assert len(json.loads(told["details"]["data"])["summary"]) == 3000
        learned = await shared_bus.call(at, "Telemetry", "Learned")
        [shown] = learned.json[0]
        assert (shown["value"]["data"], shown["stored"]["data"]) == (14 * GIB, True)
        assert "\x1b" not in shown["application"]["data"]
        assert authority.asked == [], "reading needs no authorization"
    finally:
        await service.stop()


async def test_forgetting_is_asked_of_the_authority_first(shared_bus: PrivateBus, telemetry: FakeTelemetry) -> None:
    authority = FixedAuthority()
    service = await started(shared_bus, telemetry, authority)
    try:
        arguments = (names.TELEMETRY_PATH, "Telemetry", "Forget", "ss", "comfyui", "need")
        assert (await shared_bus.call(*arguments)).json == [1]
        assert authority.asked == [(names.ACTION_FORGET, {"tenant": "comfyui"})]
        authority.allow = False
        refused = await shared_bus.call(*arguments)
        assert refused.status != 0
        assert telemetry.calls == [("forget", "comfyui", "need")]
    finally:
        await service.stop()


async def test_an_error_of_the_store_is_one_of_ours(shared_bus: PrivateBus, telemetry: FakeTelemetry) -> None:
    service = await started(shared_bus, telemetry, FixedAuthority())
    try:
        refused = await shared_bus.call(names.TELEMETRY_PATH, "Telemetry", "Events", "ttsu", "0", "0", "busy", "5")
        assert "shorter time" in refused.errors
    finally:
        await service.stop()


async def test_one_caller_cannot_keep_the_others_waiting(
    shared_bus: PrivateBus, telemetry: FakeTelemetry, client: Client
) -> None:
    service = await started(shared_bus, telemetry, FixedAuthority())
    telemetry.gate.clear()
    interface, arguments = f"{names.BUS_NAME}.Telemetry", ("used", CARD, "", 0, 0, 9)

    async def ask() -> str:
        reply = await client.call(names.TELEMETRY_PATH, interface, "Query", "sssttu", *arguments)
        return reply.error_name or "answered"

    try:
        waiting = [asyncio.create_task(ask()) for _ in range(2)]
        async with asyncio.timeout(10):
            while len(telemetry.calls) < 2:
                await asyncio.sleep(0.01)
        assert await ask() == "org.freedesktop.DBus.Error.LimitsExceeded"
        telemetry.gate.set()
        assert await asyncio.gather(*waiting, ask()) == ["answered"] * 3
    finally:
        await service.stop()


async def test_a_service_that_stores_nothing_says_so(shared_bus: PrivateBus) -> None:
    service = await started(shared_bus, None, FixedAuthority())
    try:
        refused = await shared_bus.call(names.TELEMETRY_PATH, "Telemetry", "Series")
        assert "no state directory" in refused.errors
        assert (await shared_bus.call(names.TELEMETRY_PATH, "Telemetry", "Learned")).json == [[]]
    finally:
        await service.stop()
