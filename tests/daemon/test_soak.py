"""A few minutes of everything going wrong leave nothing behind; `make bench` has two hours of it."""

import pytest

from tests.daemon.soak import assert_no_growth, soak
from tests.daemon.station import Station


async def test_faults_leave_nothing_behind(lonely_station: Station, monkeypatch: pytest.MonkeyPatch) -> None:
    async with soak(lonely_station, monkeypatch) as running:
        await running.cycle(80)
        before = await running.footprint()
        for _ in range(2):
            await running.cycle(80)
        after = await running.footprint()
    assert_no_growth(before, after, objects=3000)
