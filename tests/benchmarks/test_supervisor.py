"""What a tick and a hand-off cost: 3 tenants, 10 GPU processes, real HTTP, simulated NVML (its own time included).

Telemetry is on.
"""

import asyncio
import statistics
import time
from pathlib import Path

import pytest

from gpusupervisor.arbitration.events import PlanFinished, StepFinished
from tests.benchmarks.conftest import Report
from tests.benchmarks.machine import Machine

pytestmark = pytest.mark.benchmark_suite

TICKS = 60
ROUNDS = 10
SECOND = 1_000_000


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "one tenant busy"])
async def test_cpu_of_a_tick(tmp_path: Path, figure: Report, request: pytest.FixtureRequest, busy: bool) -> None:
    """CPU of all threads over a minute of ticks a second apart; the engines' answers are given by this process too."""
    async with Machine(tmp_path, processes=10) as machine:
        if busy:
            machine.work("t2")
        for _ in range(10):
            await machine.supervisor.tick()
            machine.clock.ahead += SECOND
        before = time.process_time()
        for _ in range(TICKS):
            state = await machine.supervisor.tick()
            machine.clock.ahead += SECOND
        spent = (time.process_time() - before) / TICKS * 1000
        assert [state.activities[f"t{number}"].state for number in range(3)] == [
            "idle",
            "idle",
            "busy" if busy else "idle",
        ]
    what = request.node.callspec.id
    figure(f"CPU of a tick, {what}", spent, "ms", 3)
    figure(f"share of a core at one tick a second, {what}", spent / 10, "%", 0.5)


async def test_latency_of_a_hand_off(tmp_path: Path, figure: Report) -> None:
    """From the look that shows a starved tenant to the request, and from memory really back to "freed"."""
    to_request, to_freed = [], []
    async with Machine(tmp_path, processes=10) as machine:
        for number in range(ROUNDS):
            await all_idle(machine)
            machine.work("t0")
            machine.clock.ahead += 20 * SECOND
            machine.dropped.clear()
            state = await machine.supervisor.tick()
            seen_at = time.perf_counter() - (machine.clock.now() - state.sample.taken_at) / 1e6
            await asyncio.wait_for(machine.dropped.wait(), 5)
            to_request.append((machine.dropped_at - seen_at) * 1000)
            await asyncio.sleep(0.2 + number * 0.013)  # anywhere between two measurements
            machine.give_back()
            back_at = time.perf_counter()
            to_freed.append((await machine.heard(StepFinished) - back_at) * 1000)
            await machine.heard(PlanFinished)
    figure("starved sample to first release request, median", statistics.median(to_request), "ms", 20)
    figure("starved sample to first release request, worst", max(to_request), "ms", 20)
    figure('memory back to "freed", worst', max(to_freed), "ms", 100)


async def all_idle(machine: Machine) -> None:
    """t1 holds nearly everything and nobody works; long after whatever was before."""
    machine.rest()
    machine.clock.ahead += 700 * SECOND
    machine.hoard()
    for _ in range(3):
        await machine.supervisor.tick()
        machine.clock.ahead += 20 * SECOND
    machine.events.clear()
