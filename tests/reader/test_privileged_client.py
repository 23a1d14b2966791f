"""The supervisor's way to what /proc hides: it never waits, asks little, and says how it went."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from dbus_fast.aio import MessageBus

from gpusupervisor.errors import Busy, GpuUnavailable
from gpusupervisor.peers.privileged_client import ASKED_AT_MOST, FORGOTTEN_AFTER, PrivilegedClient
from gpusupervisor.privileged.service import PrivilegedService
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.processes.privileged import PrivilegedFacts
from gpusupervisor.reader.daemon import FACE
from gpusupervisor.reader.fact_calls import FactCalls
from gpusupervisor.reader.facts import Told
from tests.bus.conftest import PrivateBus
from tests.helper.conftest import eventually
from tests.listeners import listener

KEY = ProcessKey(7, 70)
FACTS = PrivilegedFacts("/opt/app", "/srv", (8188,), (("HOST", "h:1"),))
SECOND = 1_000_000


class StillClock:
    """Goes when told."""

    def __init__(self) -> None:
        self.time = SECOND

    def now(self) -> int:
        return self.time

    def realtime(self, instant: int) -> int:
        return instant


class Teller:
    """In place of the reader's own."""

    def __init__(self) -> None:
        self.asked: list[list[ProcessKey]] = []
        self.answer: PrivilegedFacts | None = FACTS
        self.problem: Exception | None = None

    async def tell(self, asked: Sequence[ProcessKey]) -> list[Told]:
        self.asked.append(list(asked))
        if self.problem is not None:
            raise self.problem
        return [
            Told(key, self.answer, None if self.answer else "has not opened a GPU and is no engine") for key in asked
        ]


class HiddenProc:
    """A /proc in which process 7 is another user's, as far as who runs the tests can tell."""

    def __init__(self, root: Path) -> None:
        self.root = root
        folder = root / "7"
        folder.mkdir(parents=True)
        fields = ["S", "1", *["0"] * 17, "70", "0", "0"]
        (folder / "stat").write_text(f"7 (app) {' '.join(fields)}\n")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    from gpusupervisor.processes.procfs import Procfs

    monkeypatch.setattr(Procfs, "link", lambda *_: None)
    return HiddenProc(tmp_path / "proc").root


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
async def client(shared_bus: PrivateBus, clock: StillClock, proc: Path) -> AsyncIterator[PrivilegedClient]:
    bus = await MessageBus(shared_bus.address).connect()
    client = PrivilegedClient(clock, proc)
    task = asyncio.ensure_future(client.look_up_for_ever(bus, frozenset))
    yield client
    task.cancel()
    await asyncio.wait({task})
    bus.disconnect()
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


@asynccontextmanager
async def reader(bus: PrivateBus, teller: Teller, *allowed: int) -> AsyncIterator[PrivilegedService]:
    handlers = FactCalls(teller).handlers()  # type: ignore[arg-type]
    service = await PrivilegedService.start(bus.address, FACE, lambda _: handlers, frozenset(allowed or {os.getuid()}))
    try:
        yield service
    finally:
        await service.stop()


async def look(client: PrivilegedClient) -> PrivilegedFacts | None:
    """As a look does, from another thread; then what the background finds out is waited for."""
    known = await asyncio.to_thread(client.facts, KEY)
    await asyncio.sleep(0)
    return known


async def test_what_is_hidden_is_there_at_a_later_look_and_asked_once(
    client: PrivilegedClient,
    shared_bus: PrivateBus,
    clock: StillClock,
) -> None:
    teller = Teller()
    async with reader(shared_bus, teller):
        assert client.sight().state == "unasked"
        assert await look(client) is None
        await eventually(lambda: client.sight().state == "ok", "the reader has answered")
        for _ in range(5):
            clock.time += 3600 * SECOND
            assert await look(client) == FACTS
    assert teller.asked == [[KEY]]


async def test_a_process_without_a_port_is_asked_about_again_ever_more_rarely_and_then_no_more(
    client: PrivilegedClient,
    shared_bus: PrivateBus,
    clock: StillClock,
) -> None:
    teller = Teller()
    teller.answer = PrivilegedFacts("/opt/app", "/srv", ())
    times: list[int] = []
    async with reader(shared_bus, teller):
        for second in range(1200):
            clock.time = second * SECOND
            before = len(teller.asked)
            await look(client)
            entry = client._entries[KEY]
            if entry.is_due(clock.time):
                await eventually(lambda due=entry.is_due: not due(clock.time), "it is answered")  # type: ignore[misc]
            if len(teller.asked) > before:
                times.append(second)
    assert len(times) == ASKED_AT_MOST
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == [2 << number for number in range(ASKED_AT_MOST - 1)]


async def test_a_port_that_comes_later_is_learned(
    client: PrivilegedClient,
    shared_bus: PrivateBus,
    clock: StillClock,
) -> None:
    teller = Teller()
    teller.answer = PrivilegedFacts("/opt/app", "/srv", ())
    async with reader(shared_bus, teller):
        await look(client)
        await eventually(lambda: client.facts(KEY) is not None, "the first facts")
        teller.answer = FACTS
        clock.time += 5 * SECOND
        await eventually(lambda: client.facts(KEY) == FACTS, "the port")


async def test_a_refusal_is_no_fact_and_no_failure(
    client: PrivilegedClient,
    shared_bus: PrivateBus,
) -> None:
    teller = Teller()
    teller.answer = None
    async with reader(shared_bus, teller):
        await look(client)
        await eventually(lambda: client.sight().state == "ok", "it has answered")
        assert await look(client) is None


async def test_who_was_refused_and_then_forgotten_is_asked_about_anew(
    client: PrivilegedClient, shared_bus: PrivateBus, clock: StillClock
) -> None:
    """What looked like an engine and was none may hold VRAM later."""
    teller = Teller()
    teller.answer = None
    async with reader(shared_bus, teller):
        for _ in range(1200):
            clock.time += SECOND
            await look(client)
            entry = client._entries[KEY]
            if entry.is_due(clock.time):
                await eventually(lambda due=entry.is_due: not due(clock.time), "it is answered")  # type: ignore[misc]
        assert len(teller.asked) == ASKED_AT_MOST
        teller.answer = FACTS
        clock.time += FORGOTTEN_AFTER
        assert await look(client) is None
        assert len(teller.asked) == ASKED_AT_MOST, "it was wanted all the time"
        clock.time += FORGOTTEN_AFTER + 1
        await look(client)
        assert len(teller.asked) == ASKED_AT_MOST, "one look may be routine"
        clock.time += SECOND
        await look(client)
        await eventually(lambda: client.facts(KEY) == FACTS, "asked anew")


async def test_routine_looks_every_few_minutes_do_not_start_the_reader_each_time(
    client: PrivilegedClient, shared_bus: PrivateBus, clock: StillClock
) -> None:
    """It would be started and stopped, with three journal lines each, for ever."""
    teller = Teller()
    teller.answer = None
    async with reader(shared_bus, teller):
        await look(client)
        await eventually(lambda: len(teller.asked) == 1, "asked once")
        for _ in range(500):
            clock.time += 300 * SECOND
            await look(client)
        assert len(teller.asked) == 1


async def test_without_a_reader_it_says_so_and_asks_again_later(
    client: PrivilegedClient,
    shared_bus: PrivateBus,
    clock: StillClock,
) -> None:
    await look(client)
    await eventually(lambda: client.sight().state == "missing", "it is missed")
    teller = Teller()
    async with reader(shared_bus, teller):
        assert await look(client) is None
        assert teller.asked == [], "not asked again at once"
        clock.time += 11 * SECOND
        await look(client)
        await eventually(lambda: client.sight().state == "ok", "it is there now")
        assert await look(client) == FACTS


async def test_a_reader_that_does_not_know_us_refuses(client: PrivilegedClient, shared_bus: PrivateBus) -> None:
    async with reader(shared_bus, Teller(), os.getuid() + 1):
        await look(client)
        await eventually(lambda: client.sight().state == "refused", "it is refused")
        assert "Only root" in client.sight().detail


async def test_a_reader_that_fails_says_why(client: PrivilegedClient, shared_bus: PrivateBus) -> None:
    teller = Teller()
    teller.problem = GpuUnavailable("the driver\nis gone")
    async with reader(shared_bus, teller):
        await look(client)
        await eventually(lambda: client.sight().state == "failing", "it has failed")
        assert client.sight().detail == "the driver is gone"


async def test_one_that_was_about_to_end_is_asked_once_more(
    client: PrivilegedClient,
    shared_bus: PrivateBus,
) -> None:
    class Ending(Teller):
        async def tell(self, asked: Sequence[ProcessKey]) -> list[Told]:
            self.problem = Busy("ending") if not self.asked else None
            return await super().tell(asked)

    teller = Ending()
    async with reader(shared_bus, teller):
        await look(client)
        await eventually(lambda: client.sight().state == "ok", "it has answered")
    assert len(teller.asked) == 2


async def test_what_our_user_may_read_the_reader_is_not_asked(shared_bus: PrivateBus, clock: StillClock) -> None:
    bus = await MessageBus(shared_bus.address).connect()
    client = PrivilegedClient(clock)
    task = asyncio.ensure_future(client.look_up_for_ever(bus, lambda: frozenset({"HOST"})))
    try:
        with listener("127.0.0.1", environment={"HOST": "x", "OTHER": "y"}) as (key, ports):
            await eventually(lambda: client.facts(key) is not None, "read by ourselves")
            facts = client.facts(key)
        assert facts is not None
        assert (facts.listening_ports, facts.environment) == (ports, (("HOST", "x"),))
        assert client.sight().state == "unasked"
    finally:
        task.cancel()
        await asyncio.wait({task})
        bus.disconnect()
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
