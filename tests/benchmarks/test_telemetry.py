"""What telemetry costs: of a tick, on the disk, and to be asked."""

import random
import statistics
import time
from pathlib import Path

import pytest

from gpusupervisor.clock import SystemClock
from gpusupervisor.telemetry.chores import Limits, chores, size_of
from gpusupervisor.telemetry.database import Database
from gpusupervisor.telemetry.gather import Gatherer
from gpusupervisor.telemetry.records import Point, Series, TelemetryEvent
from gpusupervisor.telemetry.service import FILE, Telemetry
from tests.benchmarks.conftest import Report
from tests.telemetry.builders import CARD, DAY, EPOCH, MINUTE, PLENTY, SECOND, fact
from tests.telemetry.states import running, state

pytestmark = pytest.mark.benchmark_suite

TICK = 3 * SECOND
BATCH = 10 * SECOND
HOLDING = Series("holding", CARD, "app")
NEIGHBOURS = {"desktop": "unknown", "ollama": "idle", "vllm": "absent", "llama-server": "absent"}
HOLDERS = (running(8), running(2, tenant="desktop"), running(1, tenant="ollama"))


async def test_what_a_tick_costs_more(tmp_path: Path, figure: Report) -> None:
    """The event loop's part: gathering and handing over, a tick a second, everything moving."""
    telemetry = Telemetry(tmp_path, PLENTY, SystemClock())
    telemetry.start()
    states = [state("busy", 8 + n / 10, more=NEIGHBOURS, free=10 - n / 10) for n in range(10)]  # type: ignore[arg-type]
    times = []
    for number in range(2000):
        begun = time.perf_counter()
        telemetry.observe(states[number % 10])
        times.append((time.perf_counter() - begun) * 1e6)
    await telemetry.close()
    figure("telemetry's part of a tick, all moving, median", statistics.median(times), "us", 300)


def test_bytes_of_an_idle_day(tmp_path: Path, figure: Report) -> None:
    """A card with three tenants on it and two that are absent, a look every 3 s, a desktop that fidgets."""
    database, gatherer, dice = Database(tmp_path / FILE), Gatherer(), random.Random(1)
    fidgets = [
        state("idle", free=10 + dice.random() / 64, more=NEIGHBOURS, holders=HOLDERS)  # type: ignore[arg-type]
        for _ in range(50)
    ]
    empty, count = size_of(database), 0
    for begin in range(EPOCH, EPOCH + DAY, BATCH):
        points = [
            point for at in range(begin, begin + BATCH, TICK) for point in gatherer.points(dice.choice(fidgets), at)
        ]
        count += len(points)
        database.write(points, [], 0)
    day = size_of(database) - empty
    for _ in chores(database, PLENTY, EPOCH + 30 * DAY):
        pass
    summed_up = size_of(database) - empty
    database.close()
    assert count > 10_000
    figure("telemetry of an idle day", day / 2**10, "KiB", 600)
    figure("the same summed up after two days", summed_up / 2**10, "KiB", 100)


@pytest.fixture
def month(tmp_path: Path) -> tuple[int, int]:
    """30 days: the last two as looked at, once a second, the rest once a minute before it is summed up.

    Returns when it begins and ends.
    """
    database = Database(tmp_path / FILE)
    now = time.time_ns() // 1000
    start, dice = now - 30 * DAY, random.Random(2)
    moments = [*range(start, now - 2 * DAY, MINUTE), *range(now - 2 * DAY, now, SECOND)]
    database.write(
        [Point(HOLDING, at, dice.randrange(24 << 30)) for at in moments],
        [
            TelemetryEvent("plan", now - n * SECOND, "app", CARD, f"plan-{n}", {"summary": "x" * 200})
            for n in range(2000)
        ],
        0,
    )
    database.write_facts([(fact().key, fact())])
    for _ in chores(database, Limits(31 * DAY, 1 << 40), now):
        pass
    database.close()
    return start, now


async def test_a_month_in_500_points(tmp_path: Path, figure: Report, month: tuple[int, int]) -> None:
    telemetry = Telemetry(tmp_path, PLENTY, SystemClock())
    telemetry.start()
    times = []
    for _ in range(10):
        begun = time.perf_counter()
        points = await telemetry.query(HOLDING, *month, 500)
        times.append((time.perf_counter() - begun) * 1000)
    begun = time.perf_counter()
    events = await telemetry.events(0, 0, "", 1000)
    listed = (time.perf_counter() - begun) * 1000
    await telemetry.close()
    assert 490 <= len(points) <= 500
    assert len(events) == 1000
    figure("30 days (two of them once a second) to 500 points, median", statistics.median(times), "ms", 500)
    figure("the last 1000 events", listed, "ms", 50)
