"""Health as the real daemon shows it: asked at once, told when it changes, and true of what is around."""

import asyncio
from typing import Any

from gpusupervisor.bus import names
from gpusupervisor.health.checks import CHECKS
from gpusupervisor.simulation.nvml import SimulatedGpu
from tests.daemon.conftest import hang_up
from tests.daemon.observer import Observer, observer_of
from tests.daemon.station import Station

CARD = SimulatedGpu().uuid
ATTRIBUTION = f"attribution-{CARD}"


async def check_now(observer: Observer) -> dict[str, dict[str, Any]]:
    found = await observer.ask(names.HEALTH_PATH, f"{names.BUS_NAME}.Health", "Check")
    return {check["id"]: check for check in found}


async def test_everything_is_checked_when_somebody_asks(lonely_station: Station) -> None:
    await asyncio.to_thread(lambda: lonely_station.daemon().wait_ready())
    observer = await observer_of(lonely_station.bus.address)
    try:
        await observer.sees(names.ROOT, "Manager", "a card that is read", Driver=lambda state: state == "ok")
        checks = await check_now(observer)
        assert len(checks) >= len(CHECKS)
        for name in ("driver", f"gpu-{CARD}", ATTRIBUTION, "polkit", "surroundings", "configuration"):
            assert checks[name]["state"] == "ok", checks[name]
        assert all(0 < check["since"] < 2**63 for check in checks.values())
        shared = await asyncio.gather(*(check_now(observer) for _ in range(8)))
        assert all(each.keys() == checks.keys() for each in shared)
    finally:
        await hang_up(observer)


async def test_process_lists_that_are_not_permitted_are_signalled_and_so_is_their_return(
    lonely_station: Station,
) -> None:
    daemon = await asyncio.to_thread(lambda: lonely_station.daemon().wait_ready())
    observer = await observer_of(lonely_station.bus.address)
    card = lonely_station.card
    try:
        await observer.sees(names.ROOT, "Manager", "a card that is read", Driver=lambda state: state == "ok")
        await check_now(observer)
        errors = {f"nvmlDeviceGet{kind}RunningProcesses_v3": 4 for kind in ("Compute", "Graphics")}
        await asyncio.to_thread(card.change, errors=errors)
        told = await observer.hears(
            "Changed", "a degraded check", lambda body: body[:3] == [ATTRIBUTION, "ok", "degraded"]
        )
        assert told[3]["impact"]
        assert told[3]["remedy"]
        assert "does not let this process list compute processes and graphics processes" in told[3]["summary"]
        await asyncio.to_thread(card.change, errors={})
        await observer.hears("Changed", "its return", lambda body: body[:3] == [ATTRIBUTION, "degraded", "ok"])
        assert f"check {ATTRIBUTION} is degraded" in daemon.log
        assert f"check {ATTRIBUTION} is ok again" in daemon.log
    finally:
        await hang_up(observer)
