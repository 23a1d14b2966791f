"""The life of the service as systemd sees it: ready, reloading, stopping, and its ends."""

import asyncio
import itertools
import json
import signal
import subprocess
import threading

import pytest

from gpusupervisor.bus import names
from gpusupervisor.daemon import EXIT_BUS_LOST
from gpusupervisor.simulation.engines.third_app import API_AS_TENANT
from tests.daemon.conftest import hang_up
from tests.daemon.engine_proxy import EngineProxy
from tests.daemon.observer import CallFailed, observer_of
from tests.daemon.station import Station

PROMPT = 10.0
"""Seconds within which it ends; systemd would wait for 90."""
SLOW_APP = f"""\
title = "Slow"
min-residency = "0"
[match]
command-lines = ["*engines.third_app*"]
{API_AS_TENANT}settle = "30s"
"""


def get(station: Station, interface: str, name: str, path: str = names.ROOT) -> object:
    """A property, as busctl tells it."""
    done = subprocess.run(
        ["busctl", f"--address={station.bus.address}", "--json=short", "get-property", names.BUS_NAME, path,
         f"{names.BUS_NAME}.{interface}", name],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["data"]


def test_it_is_ready_when_the_name_is_owned_and_before_the_driver_answers(lonely_station: Station) -> None:
    """A driver that hangs at its initialisation is a state too, watched over all the time."""
    lonely_station.card.change(hanging=["nvmlInitWithFlags"])
    daemon = lonely_station.daemon().wait_ready()
    assert daemon.systemd.messages[0] == "READY=1"
    assert get(lonely_station, "Manager", "Driver") == "starting"
    daemon.wait_status("did not answer")
    assert get(lonely_station, "Manager", "Driver") == "unresponsive"
    assert get(lonely_station, "Health", "State", names.HEALTH_PATH) == "failed"
    daemon.wait_ticks(3)
    code, took = daemon.terminate()
    assert code == 0, daemon.log
    assert took < PROMPT
    assert "STOPPING=1" in daemon.systemd.messages


def test_it_can_be_ended_while_the_first_answer_of_the_driver_is_still_awaited(lonely_station: Station) -> None:
    lonely_station.card.change(hanging=["nvmlInitWithFlags"])
    daemon = lonely_station.daemon().wait_ready()
    code, took = daemon.terminate()
    assert (code, "Traceback" in daemon.log) == (0, False)
    assert took < PROMPT


def test_it_can_be_ended_in_the_middle_of_a_reload(lonely_station: Station) -> None:
    lonely_station.card.change(hanging=["nvmlInitWithFlags"])
    daemon = lonely_station.daemon().wait_ready()
    daemon.process.send_signal(signal.SIGHUP)
    daemon.systemd.wait_for(lambda told: any("RELOADING=1" in message for message in told), "the start of the reload")
    code, took = daemon.terminate()
    assert (code, "Traceback" in daemon.log) == (0, False)
    assert took < PROMPT


def test_sigterm_and_sigint_end_it_in_order(lonely_station: Station) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon = lonely_station.daemon().wait_ready()
        daemon.wait_ticks(2)
        daemon.process.send_signal(number)
        assert daemon.wait(PROMPT) == 0
        assert daemon.systemd.messages.count("STOPPING=1") == 1
        assert daemon.systemd.messages[-1] == "STOPPING=1"
        assert "Traceback" not in daemon.log


async def test_it_ends_promptly_in_the_middle_of_a_plan_and_answers_who_waits_for_it(lonely_station: Station) -> None:
    app = lonely_station.engine("third_app", "--port", "0", "--return-delay", "60s")
    lonely_station.describe({"slow": SLOW_APP.format(url=app.url)})
    daemon = lonely_station.daemon().wait_ready()
    observer = await observer_of(lonely_station.bus.address)
    try:
        await observer.sees_tenant("slow", "an idle tenant", Reclaimable=lambda size: size > 0)
        answer = asyncio.ensure_future(observer.release("slow"))
        await observer.hears("ReleaseStarted", "the start of the plan")
        code, took = daemon.terminate()
        assert (code, "Traceback" in daemon.log) == (0, False)
        assert took < PROMPT
        with pytest.raises(CallFailed, match="stopping"):
            await answer
    finally:
        await hang_up(observer)


async def test_a_tenant_whose_file_vanishes_while_it_is_released_does_not_end_it(lonely_station: Station) -> None:
    app = lonely_station.engine("third_app", "--port", "0", "--return-delay", "60s")
    proxy, asked = EngineProxy(app.url), threading.Event()
    proxy.before_release = asked.set
    lonely_station.describe({"slow": SLOW_APP.format(url=proxy.url).replace("30s", "2s")})
    daemon = lonely_station.daemon().wait_ready()
    observer = await observer_of(lonely_station.bus.address)
    try:
        await observer.sees_tenant("slow", "an idle tenant", Reclaimable=lambda size: size > 0)
        answer = asyncio.ensure_future(observer.release("slow"))
        assert await asyncio.to_thread(asked.wait, 10)
        (lonely_station.tenants / "slow.toml").unlink()
        await observer.manager("Reload")
        with pytest.raises(CallFailed, match="No tenant is called 'slow'"):
            await answer
        assert observer.heard()[-2:] == ["ReleaseStep", "ReleaseFinished"]
        daemon.wait_ticks(2)
        assert daemon.process.poll() is None, daemon.log
    finally:
        await hang_up(observer)
        await asyncio.to_thread(proxy.close)


def test_a_bus_that_goes_away_ends_it_so_that_systemd_starts_it_again(lonely_station: Station) -> None:
    daemon = lonely_station.daemon().wait_ready()
    daemon.wait_ticks(1)
    lonely_station.bus.process.kill()
    assert daemon.wait(PROMPT) == EXIT_BUS_LOST
    assert "the connection to the bus is lost" in daemon.log
    assert "Traceback" not in daemon.log


def test_a_name_that_is_taken_ends_it_with_a_clear_message(lonely_station: Station) -> None:
    lonely_station.daemon().wait_ready()
    second = lonely_station.daemon()
    assert second.wait() == EXIT_BUS_LOST
    assert "org.gpusupervisor1 is taken by another process" in second.log
    assert "Traceback" not in second.log
    assert "READY=1" not in second.systemd.messages


def test_no_bus_ends_it_with_a_clear_message(lonely_station: Station) -> None:
    lonely_station.bus.process.kill()
    lonely_station.bus.process.wait()
    daemon = lonely_station.daemon()
    assert daemon.wait() == EXIT_BUS_LOST
    assert "Cannot connect to" in daemon.log
    assert "Traceback" not in daemon.log


async def test_what_a_person_chose_outlives_a_restart(lonely_station: Station) -> None:
    first = lonely_station.daemon().wait_ready()
    observer = await observer_of(lonely_station.bus.address)
    try:
        await observer.sees(names.ROOT, "Manager", "automatic by default", Automatic=bool)
        await observer.manager("SetAutomatic", "b", False)
        await observer.sees(names.ROOT, "Manager", "observe-only now", Automatic=lambda on: not on)
        assert first.terminate()[0] == 0
        second = lonely_station.daemon().wait_ready()
        second.wait_status("observe-only")
        assert (await observer.root())["Automatic"] is False
        await observer.manager("SetAutomatic", "b", True)
        await observer.sees(names.ROOT, "Manager", "automatic again", Automatic=bool)
    finally:
        await hang_up(observer)


async def test_a_choice_that_cannot_be_kept_is_an_error_and_changes_nothing(lonely_station: Station) -> None:
    lonely_station.daemon().wait_ready()
    observer = await observer_of(lonely_station.bus.address)
    try:
        await observer.sees(names.ROOT, "Manager", "automatic by default", Automatic=bool)
        (lonely_station.state / "automatic.new").mkdir()
        with pytest.raises(CallFailed, match="cannot be stored"):
            await observer.manager("SetAutomatic", "b", False)
        assert (await observer.root())["Automatic"] is True
    finally:
        await hang_up(observer)


def test_the_watchdog_is_fed_at_every_tick_and_nothing_else_is_said_again(lonely_station: Station) -> None:
    daemon = lonely_station.daemon().wait_ready()
    daemon.wait_ticks(20)
    told = list(zip(daemon.systemd.times, daemon.systemd.messages, strict=False))
    fed_at = [at for at, message in told if message == "WATCHDOG=1"]
    assert max(after - before for before, after in itertools.pairwise(fed_at)) < 2
    assert daemon.systemd.messages.count("READY=1") == 1
    assert len(daemon.systemd.statuses()) == len(set(daemon.systemd.statuses())) == 1


def test_a_quiet_day_is_quiet_in_the_log(lonely_station: Station) -> None:
    daemon = lonely_station.daemon().wait_ready()
    daemon.wait_status("healthy")
    daemon.wait_ticks(2)
    before = daemon.log
    assert "<6>gpusupervisor" in before
    daemon.wait_ticks(20)
    assert daemon.log == before
