"""What becomes of long work when the service ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from dbus_fast.aio import MessageBus

from gpusupervisor import daemon as daemon_module
from gpusupervisor.bus import names
from gpusupervisor.bus.objects import Call
from gpusupervisor.bus.service import BusService
from gpusupervisor.cli.client import plain
from gpusupervisor.daemon import Daemon, Surroundings
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.health.surroundings import PolkitSeen
from gpusupervisor.jobs import Report
from gpusupervisor.observatory import Observatory
from tests.daemon.conftest import hang_up
from tests.daemon.observer import Observer, observer_of
from tests.daemon.station import Station

JOB = names.job_path(1)


class Nobody:
    """Never asked here."""

    def __init__(self, _bus: MessageBus) -> None:
        pass

    async def require(self, call: Call, action: str, details: Mapping[str, str]) -> None:
        raise AssertionError

    async def seen(self) -> PolkitSeen:
        return PolkitSeen("answers")

    async def close(self) -> None: ...


@pytest.fixture
async def running(lonely_station: Station, tmp_path: Path) -> AsyncIterator["tuple[Daemon, asyncio.Task[int]]"]:
    """The daemon in this process, so that a test can start work of its own; no driver is there."""
    surroundings = Surroundings(
        bus_address=lonely_station.bus.address, tenant_layers=(lonely_station.tenants,),
        settings_layers=(lonely_station.settings,), sysfs_root=tmp_path, authority=Nobody,
    )  # fmt: skip
    daemon = Daemon(surroundings)
    life = asyncio.create_task(daemon.run())
    yield daemon, life
    life.cancel()
    await asyncio.wait({life})
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().remove_signal_handler(number)


@pytest.fixture
async def listener(lonely_station: Station) -> AsyncIterator[Observer]:
    one = await observer_of(lonely_station.bus.address)
    yield one
    await hang_up(one)


def _note_call(monkeypatch: pytest.MonkeyPatch, part: type, closing: str, order: list[str]) -> None:
    real = getattr(part, closing)

    async def noted(self: object) -> None:
        order.append(part.__name__)
        await real(self)

    monkeypatch.setattr(part, closing, noted)


async def test_it_cleans_up_with_all_that_it_uses_before_the_service_ends(
    running: "tuple[Daemon, asyncio.Task[int]]", listener: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, life = running
    order: list[str] = []
    for part, closing in ((EngineHttp, "aclose"), (Observatory, "close"), (BusService, "stop")):
        _note_call(monkeypatch, part, closing, order)
    await listener.sees(names.ROOT, "Manager", "a first look", Driver=lambda state: state != "starting")
    begun = asyncio.Event()

    async def work(report: Report) -> object:
        report(40, "at work")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            shown = await listener.properties(JOB, "Job")
            order.append(f"{shown['State']} at {shown['Progress']}")
        return None

    daemon._jobs.start("autotune", work, "GPU-1")
    await begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await life == 0
    assert order == ["running at 40", "Observatory", "EngineHttp", "BusService"]
    await listener.wait_for(lambda signals: any(one.member == "Finished" for one in signals))
    [finished] = [one for one in listener.signals if one.member == "Finished"]
    assert (finished.path, plain(finished.body)) == (JOB, ["cancelled", "", {}])


async def test_one_that_does_not_clean_up_does_not_hold_up_the_end_for_ever(
    running: "tuple[Daemon, asyncio.Task[int]]", listener: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon_module, "CLEANING_UP", 0.1)
    daemon, life = running
    await listener.sees(names.ROOT, "Manager", "a first look", Driver=lambda state: state != "starting")
    begun, let_go = asyncio.Event(), asyncio.Event()

    async def work(_report: Report) -> object:
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            await let_go.wait()
        return None

    daemon._jobs.start("autotune", work)
    await begun.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await life == 0
    assert daemon._jobs.get(1).state == "running"
    let_go.set()
    await daemon._jobs.close()
    assert daemon._jobs.get(1).state == "cancelled"


def test_cleaning_up_fits_into_the_time_that_systemd_gives() -> None:
    unit = (Path(__file__).parents[2] / "systemd" / "gpusupervisor.service.in").read_text()
    assert "TimeoutStopSec=20s\n" in unit
    assert daemon_module.CLEANING_UP <= 15
