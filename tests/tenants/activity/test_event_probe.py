"""Activity that an engine tells as the first of a stream of events."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.probes.http import HttpProbe
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS, load_catalog
from tests.tenants.activity.builders import context, presence


@dataclass
class Stream:
    """A server of events that never end."""

    events: list[object]
    url: str = ""
    status: str = "200 OK"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {self.status}\r\nContent-Type: text/event-stream\r\n\r\n".encode())
        for event in self.events:
            writer.write(f"event:message\ndata:{json.dumps(event, separators=(',', ':'))}\n\n".encode())
        await writer.drain()
        await reader.read()
        writer.close()


@pytest.fixture
async def stream() -> AsyncIterator[Stream]:
    one = Stream([])
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0)
    one.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield one
    server.close()


async def look(stream: Stream, http: EngineHttp) -> Observation:
    catalog = await asyncio.to_thread(load_catalog, DEFAULT_LAYERS[:1])
    activity = catalog.definitions["llama-swap"].activity
    assert activity is not None
    assert activity.probes[0].event == "inflight"
    return await HttpProbe(activity.probes[0]).observe(context(http, presence(stream.url)))


LOG = {"type": "logData", "data": json.dumps({"source": "proxy", "data": '"type":"inflight" ' * 500})}


def inflight(data: object) -> dict[str, object]:
    return {"type": "inflight", "data": json.dumps(data)}


@pytest.mark.parametrize(
    ("data", "state"),
    [
        ({"operation": "snapshot", "requests": []}, "idle"),
        ({"operation": "snapshot", "requests": [{"id": "1"}]}, "busy"),
        ({"total": 0}, "idle"),
        ({"total": 2}, "busy"),
        ({"operation": "remove", "id": "1"}, "unknown"),
        ({}, "unknown"),
    ],
)
async def test_the_first_count_of_requests_in_flight_decides(
    stream: Stream, http: EngineHttp, data: object, state: str
) -> None:
    stream.events = [LOG, {"type": "modelStatus", "data": "[]"}, inflight(data), inflight({"total": 9})]
    assert (await look(stream, http)).state == state


async def test_a_version_that_does_not_count_leaves_it_to_the_other_probes(stream: Stream, http: EngineHttp) -> None:
    stream.events = [LOG]
    seen = await look(stream, http)
    assert (seen.state, seen.defers) == ("unknown", True)


async def test_an_event_that_cannot_be_read_says_nothing(stream: Stream, http: EngineHttp) -> None:
    stream.events = [{"type": "inflight", "data": "{"}]
    seen = await look(stream, http)
    assert (seen.state, seen.defers) == ("unknown", False)
