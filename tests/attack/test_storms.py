"""Peers that ask too much, read too little, or die: they cost only themselves."""

import asyncio
import contextlib
import time
from collections.abc import Callable

import pytest
from dbus_fast import Message, MessageType

from gpusupervisor.bus import names, outgoing, transport
from gpusupervisor.bus.connection import driver_call, send
from gpusupervisor.bus.service import BusService
from tests.attack.conftest import Enter, crowded
from tests.attack.raw import ATTACKER, HONEST, OBJECT_MANAGER, PEER, RawPeer, Watch, call_of, everything
from tests.bus.builders import make_state
from tests.bus.conftest import PERMISSIVE, PrivateBus, Starter, as_nobody

LIMITS_EXCEEDED = "org.freedesktop.DBus.Error.LimitsExceeded"
PATIENCE = 60.0
BEARABLE = 5.0
"""Seconds that an honest client may wait on a machine that is busy with other things; without our limits it is minutes,
or for ever."""


def ping() -> Message:
    return call_of(names.ROOT, PEER, "Ping")


def silently() -> Message:
    return call_of(names.ROOT, OBJECT_MANAGER, "GetManagedObjects", silent=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


async def answered(peer: RawPeer, count: int) -> list[Message]:
    async with asyncio.timeout(PATIENCE):
        return await peer.answers(count)


async def test_answers_to_many_pipelined_calls_all_arrive_whole(service: BusService, enter: Enter) -> None:
    peer = await enter()
    await peer.send(*(everything() for _ in range(32)))
    answers = await answered(peer, 32)
    assert {answer.message_type for answer in answers} == {MessageType.METHOD_RETURN}
    assert all(len(answer.body[0]) > 400 for answer in answers)
    assert service.connection.connected


async def test_answers_to_many_connections_at_once_all_arrive(service: BusService, enter: Enter) -> None:
    peers = [await enter() for _ in range(16)]
    for peer in peers:
        await peer.send(everything())
    for peer in peers:
        (answer,) = await answered(peer, 1)
        assert answer.message_type is MessageType.METHOD_RETURN
    assert service.connection.connected


async def test_a_client_that_dies_with_calls_pending_costs_nobody_else(
    service: BusService, enter: Enter, honest: Watch
) -> None:
    for _ in range(3):
        peer = await enter()
        await peer.send(*(everything() for _ in range(80)))
        peer.die()
    seen = len(honest.waits)
    await until(lambda: len(honest.waits) > seen + 20 or bool(honest.failures))
    assert honest.failures == []
    assert honest.slowest < BEARABLE
    assert service.connection.connected


async def test_tenants_that_vanish_all_at_once_are_announced_and_nothing_raises(
    service: BusService, enter: Enter
) -> None:
    listener = await enter(HONEST)
    await listener.ask(driver_call("AddMatch", "type='signal',member='InterfacesRemoved'"))
    service.publish(make_state({}))
    service.publish(crowded())
    service.publish(make_state({}))
    gone = 0
    async with asyncio.timeout(PATIENCE):
        while gone < 800:  # a tenant and an engine each, twice
            gone += (await listener.receive()).member == "InterfacesRemoved"
    assert service.connection.connected


async def test_two_thousand_large_signals_never_raise_and_wait_within_a_bound(
    service: BusService, enter: Enter, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = await enter(HONEST)
    await listener.ask(driver_call("AddMatch", "type='signal',interface='test.Flood'"))
    most = 0
    for number in range(2000):
        flood = Message.new_signal(names.ROOT, "test.Flood", "Wave", "us", [number, "x" * 60_000])
        send(service.connection, flood)
        most = max(most, service.connection.waiting)
        if number % 100 == 99:
            await asyncio.sleep(0)
    assert most <= outgoing.MOST_IN_ALL
    numbers: list[int] = []
    while len(numbers) < 200:
        message = await listener.receive()
        if message.member == "Wave":
            numbers.append(message.body[0])
    assert numbers == sorted(numbers)
    await until(lambda: service.connection.waiting == 0)
    assert service.connection.connected


@as_nobody
async def test_a_peer_that_never_reads_is_refused_and_the_others_are_served(
    service: BusService, enter: Enter, honest: Watch
) -> None:
    deaf = [await enter() for _ in range(4)]
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for peer in deaf:
            with contextlib.suppress(BlockingIOError):
                peer.sock.send(peer.packed(*(everything() for _ in range(20))))
            await asyncio.sleep(0.005)
    seen = len(honest.waits)
    await until(lambda: len(honest.waits) > seen + 20 or bool(honest.failures))
    assert honest.failures == []
    assert honest.slowest < BEARABLE
    await until(lambda: service.connection.waiting == 0)


@as_nobody
async def test_a_flood_of_calls_that_want_no_answer_does_not_starve_the_others(
    service: BusService, enter: Enter, honest: Watch
) -> None:
    peers = [await enter() for _ in range(4)]
    for _ in range(50):
        for peer in peers:
            await peer.send(
                *(call_of(names.ROOT, OBJECT_MANAGER, "GetManagedObjects", silent=True) for _ in range(100))
            )
    seen = len(honest.waits)
    await until(lambda: len(honest.waits) > seen + 20 or bool(honest.failures))
    assert honest.failures == []
    assert honest.slowest < BEARABLE


@as_nobody
async def test_a_flood_of_signals_from_a_stranger_does_not_starve_the_others(
    service: BusService, enter: Enter, honest: Watch
) -> None:
    peer = await enter()
    signal = Message.new_signal("/x", "x.Y", "Z", "s", ["!" * 500])
    signal.destination = names.BUS_NAME
    for _ in range(50):
        await peer.send(*[signal] * 200)
    seen = len(honest.waits)
    await until(lambda: len(honest.waits) > seen + 20 or bool(honest.failures))
    assert honest.failures == []
    assert honest.slowest < BEARABLE


@as_nobody
async def test_a_user_who_asks_too_often_is_told_when_to_try_again_and_another_user_is_not(
    service: BusService, enter: Enter
) -> None:
    peer, other = await enter(), await enter(HONEST)
    refused: list[Message] = []
    while not refused:
        await peer.send(*(ping() for _ in range(100)))
        refused = [answer for answer in await answered(peer, 100) if answer.message_type is MessageType.ERROR]
    assert {answer.error_name for answer in refused} == {LIMITS_EXCEEDED}
    assert "try again in" in refused[0].body[0]
    assert (await other.ask(ping())).message_type is MessageType.METHOD_RETURN
    again = await enter()  # another connection of the same user
    await again.send(*(ping() for _ in range(100)))
    assert LIMITS_EXCEEDED in {answer.error_name for answer in await answered(again, 100)}


@as_nobody
async def test_root_has_no_limits(service: BusService, enter: Enter) -> None:
    root = await enter(0)
    for _ in range(20):
        await root.send(*(ping() for _ in range(100)))
        answers = await answered(root, 100)
        assert {answer.message_type for answer in answers} == {MessageType.METHOD_RETURN}


@pytest.mark.parametrize("size", [transport.LARGEST_CALL + 1, 16 << 20])
async def test_a_call_that_is_too_large_is_refused_without_being_kept(
    service: BusService, enter: Enter, honest: Watch, size: int
) -> None:
    peer = await enter()
    huge = call_of(names.ROOT, f"{names.BUS_NAME}.Manager", "CheckDefinition", "ss", "a.toml", "#" * size)
    answer = await peer.ask(huge)
    assert answer.error_name == LIMITS_EXCEEDED
    assert "KiB at most" in answer.body[0]
    assert (await peer.ask(call_of(names.TENANTS_PATH, f"{names.BUS_NAME}.Tenants", "List"))).body
    assert honest.failures == []
    assert honest.slowest < BEARABLE


_LIMITS = "".join(f'<limit name="max_{way}_bytes">{32 << 20}</limit>' for way in ("incoming", "outgoing"))
SMALL_BUS = PERMISSIVE.replace("</busconfig>", f"{_LIMITS}</busconfig>")
"""A bus that stops reading from us when 32 MiB of ours are unread anywhere; the system's does at 127 MiB."""


@as_nobody
async def test_what_a_deaf_peer_leaves_with_the_bus_never_silences_us(start: Starter) -> None:
    bus = PrivateBus(SMALL_BUS)
    service = await start(bus=bus)
    service.publish(crowded())
    deaf, honest = await RawPeer.connect(bus.address, ATTACKER), await RawPeer.connect(bus.address, HONEST)
    asked = 0
    try:
        async with asyncio.timeout(PATIENCE):
            while asked < 60:  # 1.4 MB each
                with contextlib.suppress(BlockingIOError):
                    deaf.sock.send(deaf.packed(everything()))
                asked += 1
                assert (await honest.ask(ping())).message_type is MessageType.METHOD_RETURN
                await asyncio.sleep(0.03)
            refused = await deaf.answers(asked - 40)  # once it reads, it is told
    finally:
        deaf.die()
        honest.die()
        await service.stop()
        bus.stop()
    assert refused
