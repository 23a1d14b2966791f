"""Two hours' worth of ticks with everything that can go wrong leave the process as large as it was."""

import time

import pytest

from tests.benchmarks.conftest import Report
from tests.daemon.conftest import lonely_station
from tests.daemon.soak import assert_no_growth, soak
from tests.daemon.station import Station

__all__ = ["lonely_station"]

pytestmark = pytest.mark.benchmark_suite

TWO_HOURS = 7_200_000_000
CYCLE = 300
"""Ticks."""


async def test_two_hours_of_faults(lonely_station: Station, monkeypatch: pytest.MonkeyPatch, figure: Report) -> None:
    started = time.monotonic()
    async with soak(lonely_station, monkeypatch) as running:
        await running.cycle(CYCLE)
        before, since = await running.footprint(), running.ticks
        while running.virtual < TWO_HOURS:
            await running.cycle(CYCLE)
        after, ticks = await running.footprint(), running.ticks - since
    assert_no_growth(before, after, objects=3000)
    figure("soak: two hours took", time.monotonic() - started, "s", 60)
    figure("soak: growth in objects", after.objects - before.objects, "", 1000)
    figure("soak: growth in memory", (after.resident - before.resident) / (1 << 20), "MiB", 8)
    figure("soak: real time of a tick, faults included", (time.monotonic() - started) / ticks * 1000, "ms", 20)
