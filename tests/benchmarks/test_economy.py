"""What the service says on the bus in a minute, to three subscribers: idle, busy and releasing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpusupervisor.simulation.engines.third_app import API_AS_TENANT
from tests.benchmarks.conftest import Report
from tests.daemon.conftest import hang_up
from tests.daemon.observer import CallFailed, Observer, observer_of
from tests.daemon.station import Engine, Station

pytestmark = [pytest.mark.benchmark_suite, pytest.mark.timeout(300)]

SUBSCRIBERS = 3
MEASURED = 20.0
"""Seconds of each of the three."""
AS_SHIPPED = 'reserve = "0"\n'
JOB = {
    str(number): {"class_type": "SimulatedSampler", "inputs": {"seconds": 2, "vram": f"{2 + number % 3}G"}}
    for number in range(12)
}
"""Whose memory moves every other second."""
COMFYUI = """\
[match]
command-lines = ["*engines.comfyui*"]
[endpoint]
url = "{url}"
port-flags = []
[[activity.probes]]
kind = "comfyui"
"""
OTHER = f"""\
title = "Other"
min-residency = "0"
cooldown = "0"
release-budget = 1000
[match]
command-lines = ["*engines.third_app*"]
{API_AS_TENANT}"""


class Meter:
    """Passes a bus on to subscribers and counts what it sends them."""

    def __init__(self, socket: str, target: str) -> None:
        self.received = 0
        self.address = f"unix:path={socket}"
        self._socket, self._target = socket, target
        self._pumps: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Meter"]:
        server = await asyncio.start_unix_server(self._connect, self._socket)
        try:
            yield self
        finally:
            server.close()
            for pump in self._pumps:
                pump.cancel()
            await asyncio.gather(*self._pumps, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bus_reader, bus_writer = await asyncio.open_unix_connection(self._target)
        for pump in (self._pump(reader, bus_writer, count=False), self._pump(bus_reader, writer, count=True)):
            task = asyncio.create_task(pump)
            self._pumps.add(task)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, count: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                self.received += len(data) if count else 0
                writer.write(data)
        finally:
            writer.close()


@pytest.fixture
def stage() -> Iterator[tuple[Station, Engine, Engine]]:
    """A card with two idle tenants, looked at as the shipped settings have it."""
    station = Station()
    station.settings.write_text(AS_SHIPPED)
    comfyui = station.engine("comfyui", "--port", "0")
    other = station.engine("third_app", "--port", "0", "--hold", "4G", "--return-delay", "200ms")
    station.describe({"comfyui": COMFYUI.format(url=comfyui.url), "other": OTHER.format(url=other.url)})
    station.daemon().wait_ready()
    yield station, comfyui, other
    station.close()


async def test_bytes_per_minute(stage: tuple[Station, Engine, Engine], figure: Report, tmp_path: Path) -> None:
    station, comfyui, other = stage
    meter = Meter(str(tmp_path / "bus"), station.bus.address.removeprefix("unix:path="))
    async with meter.running():
        subscribers = [await observer_of(meter.address) for _ in range(SUBSCRIBERS)]
        asking = await observer_of(station.bus.address)
        await asking.sees_tenant("other", "an idle tenant", Activity=lambda word: word == "idle", Reclaimable=bool)
        await asyncio.sleep(6)
        figure("bus, idle, to each of three subscribers", await minute(meter), "KiB/min", 1)
        await asyncio.to_thread(comfyui.post, "/prompt", {"prompt": JOB})
        await asking.sees_tenant("comfyui", "a busy tenant", Activity=lambda word: word == "busy")
        figure("bus, busy, to each of three subscribers", await minute(meter), "KiB/min", 20)
        assert all(len(each.signals) for each in subscribers)
        releasing = asyncio.create_task(release_again_and_again(asking, other))
        figure("bus, releasing again and again, to each of three", await minute(meter), "KiB/min", 400)
        releasing.cancel()
        assert "ReleaseFinished" in subscribers[0].heard()
        for each in (*subscribers, asking):
            await hang_up(each)


async def release_again_and_again(asking: Observer, engine: Engine) -> None:
    """Another tenant gives its memory back, as soon as it has some."""
    while True:
        await asyncio.to_thread(engine.post, "/work", {"seconds": 0.1})
        await asking.sees_tenant("other", "memory to be given back", Reclaimable=lambda size: size > 1 << 30)
        with contextlib.suppress(CallFailed):
            await asking.release("other")


async def minute(meter: Meter) -> float:
    """KiB to one subscriber in a minute."""
    before = meter.received
    await asyncio.sleep(MEASURED)
    return (meter.received - before) / SUBSCRIBERS * (60 / MEASURED) / 1024
