"""Whatever the driver does is a state on D-Bus and in STATUS=, and the service goes on."""

import asyncio
from typing import Any

import pytest

from gpusupervisor.bus import names
from gpusupervisor.daemon import EXIT_DRIVER_CHANGED
from gpusupervisor.simulation.nvml import SimulatedGpu
from tests.daemon.conftest import hang_up
from tests.daemon.observer import CallFailed, Observer, observer_of
from tests.daemon.station import Daemon, Station

CARD = SimulatedGpu().uuid


@pytest.mark.parametrize(
    ("card", "state", "status"),
    [
        ({"library_present": False}, "missing", "libnvidia-ml.so.1 not found"),
        ({"driver_loaded": False}, "missing", "Driver not loaded"),
        ({"kernel_driver": "590.44.01"}, "mismatch", "mismatch"),
        ({"gpus": []}, "no-gpu", "has no GPU"),
        ({"errors": {"nvmlInitWithFlags": 4}}, "denied", "Insufficient permissions"),
        ({"errors": {"nvmlInitWithFlags": 999}}, "failing", "Unknown error"),
    ],
    ids=["no library", "not loaded", "mismatch", "no GPU", "denied", "failing"],
)
async def test_a_driver_that_cannot_be_used_is_reported_and_the_service_goes_on(
    card: dict[str, Any], state: str, status: str, lonely_station: Station
) -> None:
    await asyncio.to_thread(lonely_station.card.change, **card)
    daemon = lonely_station.daemon().wait_ready()
    observer = await observer_of(lonely_station.bus.address)
    try:
        await observer.sees(names.ROOT, "Manager", state, Driver=lambda shown: shown == state)
        told = daemon.wait_status(status)
        assert told.startswith("failed: ")
        assert told.count(status) == 1
        assert (await observer.root())["Status"] == told
        health = await observer.health()
        assert health["State"] == "failed"
        (check,) = [check for check in health["Checks"] if check["id"] == "driver"]
        assert check["impact"]
        assert check["remedy"]
        with pytest.raises(CallFailed) as failure:
            await observer.make_room(size=1 << 30)
        assert failure.value.name == "GpuUnavailable"
        assert check["remedy"][:30] in failure.value.text
        daemon.wait_ticks(3)
        assert daemon.terminate()[0] == 0
        assert "Traceback" not in daemon.log
    finally:
        await hang_up(observer)


async def _well(station: Station) -> tuple[Daemon, Observer]:
    """A daemon that has seen the card well."""
    daemon = station.daemon().wait_ready()
    observer = await observer_of(station.bus.address)
    await observer.sees(names.gpu_path(CARD), "Gpu", "a card that is read", State=lambda state: state == "ok")
    return daemon, observer


async def test_a_driver_that_appears_is_found(lonely_station: Station) -> None:
    await asyncio.to_thread(lonely_station.card.change, library_present=False)
    daemon = lonely_station.daemon().wait_ready()
    daemon.wait_status("not found")
    await asyncio.to_thread(lonely_station.card.change, library_present=True)
    observer = await observer_of(lonely_station.bus.address)
    try:
        await observer.sees(names.ROOT, "Manager", "a working driver", Driver=lambda state: state == "ok")
        gpu = await observer.gpu(CARD)
        assert (gpu["State"], gpu["MemoryTotal"]) == ("ok", 24 << 30)
        assert (await observer.health())["State"] == "ok"
    finally:
        await hang_up(observer)


async def test_a_lost_gpu_is_a_state_and_not_an_end(lonely_station: Station) -> None:
    daemon, observer = await _well(lonely_station)
    try:
        await asyncio.to_thread(lonely_station.card.change_gpu, CARD, lost=True)
        gpu = await observer.sees(names.gpu_path(CARD), "Gpu", "lost", State=lambda state: state in ("lost", "failing"))
        assert gpu["MemoryUsed"] == 2**64 - 1
        assert gpu["StateDetail"]
        assert (await observer.health())["State"] == "failed"
        with pytest.raises(CallFailed) as failure:
            await observer.make_room(size=1 << 30)
        assert failure.value.name == "GpuUnavailable"
        await asyncio.to_thread(lonely_station.card.change_gpu, CARD, lost=False)
        await observer.sees(names.gpu_path(CARD), "Gpu", "back again", State=lambda state: state == "ok")
        assert daemon.process.poll() is None
    finally:
        await hang_up(observer)


async def test_a_driver_that_begins_to_hang_is_reported_and_recovers(lonely_station: Station) -> None:
    daemon, observer = await _well(lonely_station)
    try:
        await asyncio.to_thread(lonely_station.card.change, hanging=["nvmlDeviceGetMemoryInfo_v2"])
        await observer.sees(names.ROOT, "Manager", "unresponsive", Driver=lambda state: state == "unresponsive")
        assert (await observer.gpu(CARD))["State"] == "failing"
        daemon.wait_ticks(3)
        await asyncio.to_thread(lonely_station.card.change, hanging=[])
        await observer.sees(names.ROOT, "Manager", "recovered", Driver=lambda state: state == "ok")
    finally:
        await hang_up(observer)


async def test_a_driver_that_was_upgraded_under_it_ends_it_so_that_it_loads_the_new_library(
    lonely_station: Station,
) -> None:
    daemon, observer = await _well(lonely_station)
    try:
        await asyncio.to_thread(lonely_station.card.change, driver="590.44.01", kernel_driver="590.44.01", generation=2)
        assert daemon.wait() == EXIT_DRIVER_CHANGED
        assert "the driver was upgraded" in daemon.log
    finally:
        await hang_up(observer)
