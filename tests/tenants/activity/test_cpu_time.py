"""CPU time of real processes."""

import asyncio
import os
import sys

from gpusupervisor.tenants.activity.cpu_time import cpu_time_of
from tests.tenants.activity.builders import holder, presence


def start_time(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


async def test_a_process_that_works_uses_cpu_time() -> None:
    busy = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    try:
        who = presence("", holder(busy.pid, start_time=start_time(busy.pid)))
        first = await cpu_time_of(who)
        assert first is not None
        async with asyncio.timeout(10):
            while (await cpu_time_of(who) or 0) < first + 100_000:
                await asyncio.sleep(0.02)
    finally:
        busy.kill()
        await busy.wait()


async def test_a_holder_on_two_gpus_counts_once() -> None:
    me = holder(os.getpid(), start_time=start_time(os.getpid()))
    once, twice = await cpu_time_of(presence("", me)), await cpu_time_of(presence("", me, me))
    assert once is not None
    assert twice is not None
    assert twice - once < 1_000_000 < once + 1_000_000


async def test_a_recycled_pid_has_no_cpu_time_of_the_tenant() -> None:
    assert await cpu_time_of(presence("", holder(os.getpid(), start_time=1))) is None


async def test_a_process_that_is_gone_makes_it_unknown() -> None:
    assert await cpu_time_of(presence("", holder(2**22 + 1))) is None


async def test_nobody_has_no_cpu_time() -> None:
    assert await cpu_time_of(presence()) is None
