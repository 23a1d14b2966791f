"""Before sleep and after it: a logind of our own on a bus of our own, and the clocks alone."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import driver_call
from gpusupervisor.helper import sleep
from gpusupervisor.helper.sleep import LOGIND, LOGIND_PATH, MANAGER, SleepWatch, time_asleep
from tests.bus.conftest import PERMISSIVE, PrivateBus

pytestmark = pytest.mark.bus


@pytest.fixture(scope="module")
def bus() -> Iterator[PrivateBus]:
    bus = PrivateBus(PERMISSIVE)
    yield bus
    bus.stop()


class FakeLogind:
    """Gives out delay inhibitors and knows when they are closed."""

    def __init__(self, bus: MessageBus, patience: int | None) -> None:
        self._bus = bus
        self._patience = patience
        self.requests: list[list[str]] = []
        self.refuse = False
        self.client: str | None = None
        self._ends: list[int] = []
        bus.add_message_handler(self._answer)

    @classmethod
    async def start(cls, address: str, patience: int | None = 5_000_000) -> "FakeLogind":
        bus = await MessageBus(bus_address=address, negotiate_unix_fd=True).connect()
        logind = cls(bus, patience)
        await bus.request_name(LOGIND)
        return logind

    async def stop(self) -> None:
        await self._bus.call(driver_call("ReleaseName", LOGIND))
        self._bus.disconnect()
        for end in self._ends:
            os.close(end)

    def inhibited(self) -> int:
        """How many inhibitors are open: the other end of a closed one reads as ended."""
        count = 0
        for end in self._ends:
            try:
                count += os.read(end, 1) != b""
            except BlockingIOError:
                count += 1
        return count

    def prepare_for_sleep(self, start: bool) -> None:
        self._bus.send(Message.new_signal(LOGIND_PATH, MANAGER, "PrepareForSleep", "b", [start]))

    def _answer(self, message: Message) -> Message | bool:
        if message.message_type is not MessageType.METHOD_CALL:
            return False
        if message.member == "Inhibit":
            if self.refuse:
                return Message.new_error(message, "org.freedesktop.DBus.Error.AccessDenied", "no inhibitors today")
            self.requests.append(message.body)
            self.client = message.sender
            ours, theirs = os.pipe()
            os.set_blocking(ours, False)
            self._ends.append(ours)
            reply = Message.new_method_return(message, "h", [0], [theirs])
            self._bus.send(reply).add_done_callback(lambda _sent: os.close(theirs))
            return True
        if message.member == "Get" and self._patience is not None:
            return Message.new_method_return(message, "v", [Variant("t", self._patience)])
        return False


@pytest.fixture
async def logind(bus: PrivateBus) -> AsyncIterator[FakeLogind]:
    logind = await FakeLogind.start(bus.address)
    yield logind
    await logind.stop()


class Sleeper:
    """What the watch calls, remembered."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.asleep = 0
        self.ready = asyncio.Event()
        self.ready.set()

    async def before(self) -> None:
        self.told.append("before")
        await self.ready.wait()
        self.told.append("ready")

    async def after(self) -> None:
        self.told.append("after")


@contextlib.asynccontextmanager
async def watching(address: str, sleeper: Sleeper) -> AsyncIterator[SleepWatch]:
    watch = SleepWatch(address, sleeper.before, sleeper.after, lambda: sleeper.asleep, look=0.02)
    task = asyncio.create_task(watch.run())
    try:
        yield watch
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert not watch.holds_inhibitor
        assert task.cancelled()


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, f"not within 10 s: {what}"
        await asyncio.sleep(0.005)


async def test_it_takes_a_delay_inhibitor_and_gives_it_back(bus: PrivateBus, logind: FakeLogind) -> None:
    async with watching(bus.address, Sleeper()) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        ((what, who, why, mode),) = logind.requests
        assert (what, who, mode) == ("sleep", "gpusupervisor", "delay")
        assert "fans" in why
        assert logind.inhibited() == 1
    await until(lambda: logind.inhibited() == 0, "the inhibitor closed")


async def test_logind_waits_until_all_is_in_order_and_no_longer(bus: PrivateBus, logind: FakeLogind) -> None:
    sleeper = Sleeper()
    sleeper.ready.clear()
    async with watching(bus.address, sleeper) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        logind.prepare_for_sleep(True)
        await until(lambda: sleeper.told == ["before"], "before")
        assert logind.inhibited() == 1
        sleeper.ready.set()
        await until(lambda: logind.inhibited() == 0, "the release")
        assert sleeper.told == ["before", "ready"]
        logind.prepare_for_sleep(False)
        await until(lambda: sleeper.told[2:] == ["after"], "after")
        await until(lambda: logind.inhibited() == 1, "a new inhibitor for the next time")


async def test_who_takes_too_long_is_cut_off_in_time(bus: PrivateBus) -> None:
    logind = await FakeLogind.start(bus.address, patience=600_000)
    sleeper = Sleeper()
    sleeper.ready.clear()
    async with watching(bus.address, sleeper) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        began = time.monotonic()
        logind.prepare_for_sleep(True)
        await until(lambda: logind.inhibited() == 0, "the release")
        assert time.monotonic() - began < 5
        assert sleeper.told == ["before"]
        logind.prepare_for_sleep(False)
        await until(lambda: "after" in sleeper.told, "after")
    await logind.stop()


async def test_nobody_else_can_tell_that_the_machine_sleeps(bus: PrivateBus, logind: FakeLogind) -> None:
    sleeper = Sleeper()
    impostor = await MessageBus(bus_address=bus.address).connect()
    async with watching(bus.address, sleeper) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        lie = Message.new_signal(LOGIND_PATH, MANAGER, "PrepareForSleep", "b", [True])
        lie.destination = logind.client
        await impostor.send(lie)
        await impostor.call(driver_call("GetId"))  # the bus has passed the lie on
        logind.prepare_for_sleep(False)
        await until(lambda: bool(sleeper.told), "the truth")
        assert sleeper.told == ["after"]
        assert logind.inhibited() == 1
    impostor.disconnect()


async def test_nobody_can_fill_us_with_descriptors(bus: PrivateBus, logind: FakeLogind) -> None:
    stranger = await MessageBus(bus_address=bus.address, negotiate_unix_fd=True).connect()
    ours, theirs = os.pipe()
    async with watching(bus.address, Sleeper()) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        gift = Message.new_signal("/a", "a.b", "C", "h", [0], [theirs])
        gift.destination = logind.client
        await stranger.send(gift)
        os.close(theirs)
        os.set_blocking(ours, False)

        def is_closed() -> bool:
            try:
                return os.read(ours, 1) == b""
            except BlockingIOError:
                return False

        await until(is_closed, "the descriptor closed at its last holder")
    os.close(ours)
    stranger.disconnect()


async def test_the_next_logind_is_believed(bus: PrivateBus, logind: FakeLogind) -> None:
    sleeper = Sleeper()
    async with watching(bus.address, sleeper) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        await logind._bus.call(driver_call("ReleaseName", LOGIND))
        following = await FakeLogind.start(bus.address)
        following.prepare_for_sleep(True)
        await until(lambda: sleeper.told == ["before", "ready"], "before")
        await following.stop()


async def test_a_logind_that_does_not_tell_its_patience_has_the_usual_one(bus: PrivateBus) -> None:
    logind = await FakeLogind.start(bus.address, patience=None)
    async with watching(bus.address, Sleeper()) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
    await logind.stop()


async def test_without_logind_a_jump_of_the_clocks_tells_that_it_slept(bus: PrivateBus) -> None:
    sleeper = Sleeper()
    async with watching(bus.address, sleeper) as watch:
        await asyncio.sleep(0.05)
        assert sleeper.told == []
        sleeper.asleep = 3_600_000_000
        await until(lambda: sleeper.told == ["after"], "after")
        await asyncio.sleep(0.05)
        assert sleeper.told == ["after"]
        assert not watch.holds_inhibitor


async def test_without_a_bus_a_jump_of_the_clocks_tells_that_it_slept() -> None:
    sleeper = Sleeper()
    async with watching("unix:path=/nonexistent/socket", sleeper):
        sleeper.asleep = 3_600_000_000
        await until(lambda: sleeper.told == ["after"], "after")


async def test_a_sleep_that_logind_does_not_know_of_is_seen_too(bus: PrivateBus, logind: FakeLogind) -> None:
    sleeper = Sleeper()
    async with watching(bus.address, sleeper) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        sleeper.asleep = 3_600_000_000
        await until(lambda: sleeper.told == ["after"], "after")
        assert logind.inhibited() == 1


async def test_a_refused_inhibitor_leaves_the_clocks(
    bus: PrivateBus, logind: FakeLogind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    logind.refuse = True
    sleeper = Sleeper()
    async with watching(bus.address, sleeper):
        await until(lambda: "no inhibitors today" in caplog.text, "the log")
        sleeper.asleep = 3_600_000_000
        await until(lambda: sleeper.told == ["after"], "after")


async def test_a_bus_that_dies_on_the_way_to_sleep_does_not_leave_us_frozen() -> None:
    mortal = PrivateBus(PERMISSIVE)
    logind = await FakeLogind.start(mortal.address)
    sleeper = Sleeper()
    async with watching(mortal.address, sleeper) as watch:
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
        logind.prepare_for_sleep(True)
        await until(lambda: sleeper.told == ["before", "ready"], "before")
        mortal.process.kill()
        await until(lambda: sleeper.told[2:] == ["after"], "after")
    for end in logind._ends:
        os.close(end)
    logind._bus.disconnect()
    mortal.stop()


async def test_logind_is_tried_again(bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sleep, "TRY_AGAIN", 0.02)
    async with watching(bus.address, Sleeper()) as watch:
        await asyncio.sleep(0.05)
        logind = await FakeLogind.start(bus.address)
        await until(lambda: watch.holds_inhibitor, "the inhibitor")
    await logind.stop()


def test_the_machine_has_not_slept_between_two_looks() -> None:
    first = time_asleep()
    assert abs(time_asleep() - first) < 1_000_000
