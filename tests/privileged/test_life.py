"""The life of both privileged services: they exit when idle, in an order that loses no call, whatever ends them."""

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.names import READER_NAME, READER_PATH
from gpusupervisor.privileged.service import PrivilegedService
from gpusupervisor.reader.daemon import FACE
from gpusupervisor.reader.fact_calls import FactCalls
from gpusupervisor.reader.facts import FactTeller
from tests.bus.conftest import PrivateBus, Result, shared_bus  # noqa: F401  (a fixture)
from tests.helper.conftest import Bench, ReaderBench, eventually, set_up


@pytest.fixture(params=[Bench, ReaderBench], ids=["helper", "reader"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench: Bench = request.param(*set_up())
    yield bench
    bench.close()


async def ping(bench: Bench) -> Result:
    return await bench.bus.busctl("call", bench.name, bench.path, "org.freedesktop.DBus.Peer", "Ping")


async def test_it_ends_when_nobody_has_called_for_long_enough(bench: Bench) -> None:
    process = bench.start(idle=0.2)
    assert await asyncio.to_thread(process.wait, 10) == 0
    assert bench.systemd.messages.index("READY=1") < bench.systemd.messages.index("STOPPING=1")
    assert "Traceback" not in bench.log


async def test_calls_keep_it_running(bench: Bench) -> None:
    process = bench.start(idle=0.8)
    loop = asyncio.get_running_loop()
    until = loop.time() + 1.6
    while loop.time() < until:
        assert (await ping(bench)).status == 0
    assert process.poll() is None
    assert await asyncio.to_thread(process.wait, 10) == 0


async def test_systemd_is_told_before_the_name_is_given_up(bench: Bench) -> None:
    """Or a call in between would find the name free, the unit running, and nobody."""
    bus = await MessageBus(bench.bus.address).connect()
    rule = f"type='signal',member='NameOwnerChanged',arg0='{bench.name}',arg2=''"
    freed = asyncio.Event()

    def take(message: Message) -> None:
        if message.member == "NameOwnerChanged":
            bench.running[-1].send_signal(signal.SIGSTOP)  # what it has not said by now it says no more
            freed.set()

    bus.add_message_handler(take)
    add = Message("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch", signature="s")
    add.body = [rule]
    await bus.call(add)
    try:
        bench.start(idle=0.2)
        async with asyncio.timeout(10):
            await freed.wait()
    finally:
        bus.disconnect()
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
    await eventually(lambda: "STOPPING=1" in bench.systemd.messages, "systemd was told")


async def test_a_killed_one_leaves_the_name_to_the_next(bench: Bench) -> None:
    first = bench.start()
    first.send_signal(signal.SIGKILL)
    await asyncio.to_thread(first.wait, 10)
    bench.start()
    assert (await ping(bench)).status == 0


async def test_it_ends_at_once_when_told_to(bench: Bench) -> None:
    process = bench.start()
    process.terminate()
    assert await asyncio.to_thread(process.wait, 10) == 0
    assert bench.systemd.messages[-1] == "STOPPING=1"


async def test_without_a_bus_it_fails_and_says_so(bench: Bench) -> None:
    process = bench.start()
    bench.bus.process.kill()
    assert await asyncio.to_thread(process.wait, 10) == 1
    assert "the connection to the bus is lost" in bench.log


async def test_a_call_that_comes_while_it_ends_is_told_to_come_again(shared_bus: PrivateBus) -> None:  # noqa: F811
    handlers = FactCalls(FactTeller(lambda _: False, frozenset)).handlers()
    service = await PrivilegedService.start(shared_bus.address, FACE, lambda _: handlers, frozenset({os.getuid()}))
    client = await MessageBus(shared_bus.address).connect()
    try:
        call = Message(READER_NAME, READER_PATH, READER_NAME, "Facts", signature="a(ut)", body=[[]])
        answer = asyncio.ensure_future(client.call(call))
        await client.call(Message("org.freedesktop.DBus", "/", "org.freedesktop.DBus.Peer", "Ping"))
        await service.leave()
        reply = await answer
        assert reply is not None
        assert (reply.message_type, reply.error_name) == (MessageType.ERROR, "org.gpusupervisor1.Error.Busy")
    finally:
        client.disconnect()
        await client.wait_for_disconnect()  # type: ignore[no-untyped-call]
        await service.stop()
