import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable

import pytest

from gpusupervisor.gpu.nvml_thread import DriverUnresponsive, NvmlThread
from tests.gpu.machine import HandClock


class Hanging:
    """A call that hangs until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        self.entered.set()
        assert self.let_go.wait(30)
        return "late"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def thread(clock: HandClock) -> AsyncIterator[NvmlThread]:
    thread = NvmlThread(clock)
    yield thread
    await thread.close()


@pytest.fixture
async def hanging() -> AsyncIterator[Hanging]:
    hanging = Hanging()
    yield hanging
    hanging.let_go.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_every_call_runs_in_the_same_thread_and_not_in_the_event_loops(thread: NvmlThread) -> None:
    idents = {await thread.call(threading.get_ident, deadline=5) for _ in range(3)}
    assert len(idents) == 1
    assert threading.get_ident() not in idents


async def test_arguments_go_in_and_results_and_exceptions_come_out(thread: NvmlThread) -> None:
    assert await thread.call(divmod, 17, 5, deadline=5) == (3, 2)
    with pytest.raises(ZeroDivisionError):
        await thread.call(divmod, 1, 0, deadline=5)
    assert await thread.call(len, "still there", deadline=5) == 11


async def test_concurrent_calls_run_one_at_a_time(thread: NvmlThread) -> None:
    running = 0
    most = 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        time.sleep(0.002)
        running -= 1

    await asyncio.gather(*(thread.call(work, deadline=5) for _ in range(5)))
    assert most == 1


async def test_a_call_past_its_deadline_is_given_up_at_once(thread: NvmlThread, hanging: Hanging) -> None:
    started = time.monotonic()
    with pytest.raises(DriverUnresponsive, match=r"0\.05 s"):
        await thread.call(hanging, deadline=0.05)
    assert time.monotonic() - started < 2


async def test_nothing_is_queued_behind_a_wedged_call(thread: NvmlThread, hanging: Hanging, clock: HandClock) -> None:
    wedged_at = clock.now()
    with pytest.raises(DriverUnresponsive):
        await thread.call(hanging, deadline=0.01)
    assert thread.wedged_since == wedged_at
    later: list[str] = []
    clock.advance(60)
    for _ in range(3):
        started = time.monotonic()
        with pytest.raises(DriverUnresponsive):
            await thread.call(later.append, "queued", deadline=30)
        assert time.monotonic() - started < 2
    hanging.let_go.set()
    await until(lambda: thread.wedged_since is None)
    assert await thread.call(len, "", deadline=5) == 0
    assert later == []


async def test_a_call_that_waits_for_its_turn_is_refused_when_the_one_before_it_wedges(
    thread: NvmlThread, hanging: Hanging
) -> None:
    done: list[str] = []
    outcomes = await asyncio.gather(
        thread.call(hanging, deadline=0.05), thread.call(done.append, "x", deadline=30), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [DriverUnresponsive, DriverUnresponsive]
    assert done == []


async def test_the_thread_is_usable_again_once_the_wedged_call_returns_and_its_result_is_dropped(
    thread: NvmlThread, hanging: Hanging, clock: HandClock
) -> None:
    with pytest.raises(DriverUnresponsive):
        await thread.call(hanging, deadline=0.01)
    clock.advance(90)
    hanging.let_go.set()
    await until(lambda: thread.wedged_since is None)
    assert await thread.call(str, 42, deadline=5) == "42"


async def test_a_cancelled_caller_leaves_the_thread_usable(thread: NvmlThread, hanging: Hanging) -> None:
    caller = asyncio.create_task(thread.call(hanging, deadline=30))
    await until(hanging.entered.is_set)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    begun: list[str] = []
    with pytest.raises(DriverUnresponsive):
        await thread.call(begun.append, "behind a call that hangs", deadline=0.01)
    hanging.let_go.set()
    await until(lambda: thread.wedged_since is None)
    assert await thread.call(len, "abc", deadline=5) == 3
    assert begun == []


async def test_closing_does_not_wait_for_a_wedged_call(thread: NvmlThread, hanging: Hanging) -> None:
    with pytest.raises(DriverUnresponsive):
        await thread.call(hanging, deadline=0.01)
    started = time.monotonic()
    await thread.close()
    assert time.monotonic() - started < 0.5
    with pytest.raises(DriverUnresponsive):
        await thread.call(len, "", deadline=5)


async def test_closing_ends_the_thread() -> None:
    thread = NvmlThread()
    runner = await thread.call(threading.current_thread, deadline=5)
    assert runner.daemon
    await thread.close()
    await until(lambda: not runner.is_alive())
