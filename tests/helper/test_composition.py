"""The helper whole, as a process over a simulated card: what is asked over the bus is so on the card, or is undone."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import driver_call
from gpusupervisor.bus.names import HELPER_NAME, HELPER_PATH
from gpusupervisor.helper.interface import HELPER
from gpusupervisor.peers import privileged_call
from gpusupervisor.simulation.nvml import Board, FanState, SimulatedGpu
from tests.bus.conftest import NOBODY
from tests.helper.conftest import CARD, Bench, bare, eventually
from tests.helper.test_sleep import FakeLogind

GPU = CARD.uuid
CURVE = (GPU, "0", "curve", "0", "2", "40", "30", "80", "100", "0")
"""50 degrees on it are 48 percent."""
SET_FAN = "susua(uu)a{sv}"
AUTOMATIC = (GPU, "0", "automatic", "0", "0", "0")
CALLS: dict[str, tuple[str, ...]] = {
    "State": (),
    "ReadSensors": ("s", GPU),
    "SetFan": (SET_FAN, GPU, "0", "fixed", "60", "0", "0"),
    "TryProfile": ("sst", GPU, '{"power-limit": "300W"}', "5000000"),
    "TryPoint": ("sst", GPU, '{"power-limit": "300W"}', "5000000"),
    "Confirm": ("s", GPU),
    "Revert": ("s", GPU),
    "ApplyProfile": ("ss", GPU, '{"power-limit": "300W"}'),
    "ResetProfile": ("s", GPU),
    "CheckDrift": ("s", GPU),
    "Detach": ("s", GPU),
    "Attach": ("s", GPU),
    "ReleaseUnit": ("s", "app"),
}


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """What is tested runs in another process; here the card's files are looked at."""


def fan(bench: Bench, index: int = 0) -> FanState:
    return bench.card.settings(GPU).fans[index]


def power(bench: Bench) -> int | None:
    return bench.card.settings(GPU).power_limit


async def set_curve(bench: Bench) -> None:
    done = await bench.ask("SetFan", SET_FAN, *CURVE)
    assert done.status == 0, done.errors


async def apply(bench: Bench, **profile: object) -> list[dict[str, object]]:
    answer = await bench.ask("ApplyProfile", "ss", GPU, json.dumps(profile))
    results = [{name: value["data"] for name, value in each.items()} for each in answer.json[0]]
    assert all(result["ok"] for result in results), results
    return results


@asynccontextmanager
async def signals(bench: Bench) -> AsyncIterator[list[tuple[str, Sequence[object]]]]:
    """The helper's signals as they come."""
    bus = await MessageBus(bench.bus.address).connect()
    told: list[tuple[str, Sequence[object]]] = []

    def take(message: Message) -> None:
        if message.message_type is MessageType.SIGNAL and message.interface == HELPER_NAME:
            told.append((message.member or "", message.body))

    bus.add_message_handler(take)
    await bus.call(driver_call("AddMatch", f"type='signal',interface='{HELPER_NAME}'"))
    yield told
    bus.disconnect()
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


async def test_a_curve_is_followed_by_the_fan(bench: Bench) -> None:
    bench.start()
    await set_curve(bench)
    assert (fan(bench).manual, fan(bench).target) == (True, 48)
    assert not fan(bench, 1).manual, "every fan on its own"
    bench.card.change_board(GPU, temperature=80)
    await eventually(lambda: fan(bench).target == 100, "it is hotter, so the fan is faster")
    state = await bench.state()
    assert state["fan_control"] == "controlling"
    assert state["fans"][0]["points"] == [[40, 30], [80, 100]]
    assert state["fans"][0]["mode"] == "curve"
    assert state["fans"][1]["mode"] == "automatic"


async def test_after_a_kill_the_units_last_command_gives_the_fans_back(bench: Bench) -> None:
    bench.start()
    await set_curve(bench)
    bench.kill()
    assert fan(bench).manual, "nobody could have let go of it"
    assert "automatic again" in bench.restore_fans()
    assert not fan(bench).manual
    assert list((bench.folder / "runtime").iterdir()) == []


async def test_a_helper_that_starts_after_a_kill_gives_the_fans_back_first(bench: Bench) -> None:
    bench.start()
    await set_curve(bench)
    bench.kill()
    bench.start()
    assert not fan(bench).manual
    assert (await bench.state())["fan_control"] == "idle"


async def test_a_stop_gives_the_fans_back(bench: Bench) -> None:
    process = bench.start()
    await set_curve(bench)
    process.terminate()
    assert await asyncio.to_thread(process.wait, 10) == 0
    assert not fan(bench).manual


async def test_it_runs_as_long_as_it_holds_a_fan_and_no_longer(bench: Bench) -> None:
    process = bench.start(idle=0.4)
    await set_curve(bench)
    told = bench.systemd.messages
    await eventually(lambda: any("STATUS=controls fans of" in each for each in told), "the status says what is held")
    await asyncio.sleep(1)
    assert process.poll() is None
    assert (await bench.ask("SetFan", SET_FAN, *AUTOMATIC)).status == 0
    assert not fan(bench).manual
    assert await asyncio.to_thread(process.wait, 10) == 0


async def test_reading_keeps_nothing_open_and_nobody_running(bench: Bench) -> None:
    process = bench.start(idle=0.4)
    state = await bench.state()
    assert state["condition"] == "ok"
    assert {each["item"]: each["support"] for each in state["capabilities"]}["locked-clocks-graphics"] == "unverifiable"
    assert await asyncio.to_thread(process.wait, 10) == 0


async def test_a_trial_that_nobody_confirms_is_taken_back(bench: Bench) -> None:
    bench.start()
    async with signals(bench) as told:
        tried = await bench.ask("TryProfile", *CALLS["TryProfile"])
        assert tried.status == 0, tried.errors
        assert power(bench) == 300_000
        assert (await bench.state())["trial"] == '{"power-limit": "300W"}'
        refused = await bench.ask("SetFan", SET_FAN, *AUTOMATIC)
        assert "on trial" in refused.errors
        await eventually(lambda: power(bench) == CARD.board.power_default, "the state before", within=15)
        await eventually(lambda: "TrialEnded" in dict(told), "it is told")
        assert dict(told)["TrialEnded"][1] == "timed-out"
    assert (await bench.state())["last_trial"] == "timed-out"


async def test_a_point_of_a_sweep_is_taken_back_when_whoever_set_it_leaves_the_bus(bench: Bench) -> None:
    bench.start()
    bus = await MessageBus(bench.bus.address).connect()
    body = [GPU, '{"power-limit": "300W"}', 600_000_000]
    async with signals(bench) as told:
        for _ in range(2):  # followed again after it has been taken back
            await privileged_call.call(bus, privileged_call.HELPER, "TryPoint", "sst", body, "aa{sv}")
            assert power(bench) == 300_000
            assert "cannot be confirmed" in (await bench.ask("Confirm", "s", GPU)).errors
            await privileged_call.call(bus, privileged_call.HELPER, "Revert", "s", [GPU], "aa{sv}")
            assert power(bench) == CARD.board.power_default
        await privileged_call.call(bus, privileged_call.HELPER, "TryPoint", "sst", body, "aa{sv}")
        bus.disconnect()
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
        await eventually(lambda: power(bench) == CARD.board.power_default, "the state before")
        await eventually(lambda: [each[1] for name, each in told if name == "TrialEnded"][2:] == ["abandoned"], "why")


async def test_a_confirmed_profile_outlives_the_helper_and_the_driver(bench: Bench) -> None:
    process = bench.start()
    assert (await bench.ask("TryProfile", *CALLS["TryProfile"])).status == 0
    confirmed = await bench.ask("Confirm", "s", GPU)
    assert confirmed.status == 0, confirmed.errors
    process.terminate()
    await asyncio.to_thread(process.wait, 10)
    bench.card.reload_driver()
    assert power(bench) is None
    bench.start(idle=0.4)
    await eventually(lambda: power(bench) == 300_000, "it is set again although nobody has called", within=15)
    assert (await bench.state())["profile"] == '{"power-limit": "300W"}'


async def test_what_a_sleep_has_undone_is_found_and_set_again(bench: Bench) -> None:
    logind = await FakeLogind.start(bench.bus.address)
    try:
        bench.start()
        await eventually(lambda: logind.inhibited() == 1, "it waits for sleep")
        await apply(bench, **{"power-limit": "300W", "fans": {"1": {"mode": "fixed", "percent": 70}}})
        await eventually(lambda: fan(bench, 1).target == 70, "the profile's fan")
        await set_curve(bench)
        async with signals(bench) as told:
            logind.prepare_for_sleep(True)
            await eventually(lambda: logind.inhibited() == 0, "logind may go on")
            assert not fan(bench).manual
            assert not fan(bench, 1).manual
            assert "going to sleep" in (await bench.ask("ApplyProfile", *CALLS["ApplyProfile"])).errors
            bench.card.resume()
            assert power(bench) is None
            logind.prepare_for_sleep(False)
            await eventually(lambda: "DriftRepaired" in dict(told), "it is repaired", within=15)
            assert [name for name, _ in told if name.startswith("Drift")] == ["DriftDetected", "DriftRepaired"]
            assert dict(told)["DriftDetected"][:2] == [GPU, "power-limit"]
        assert power(bench) == 300_000
        await eventually(lambda: fan(bench).target == 48 and fan(bench, 1).target == 70, "the fans as before")
    finally:
        await logind.stop()


async def test_a_laptop_is_told_that_it_has_no_fans_to_set(bench: Bench) -> None:
    bench.card.write_card([SimulatedGpu(board=Board(fan_count=0, power_settable=False))])
    bench.start()
    refused = await bench.ask("SetFan", *CALLS["SetFan"])
    assert "as on laptops" in refused.errors
    state = await bench.state()
    by_item = {each["item"]: each for each in state["capabilities"]}
    assert by_item["fans"]["support"] == "unsupported"
    assert by_item["power-limit"]["support"] == "read-only"
    assert state["fans"] == []


async def test_sensors_are_read_with_the_xids_and_the_trial_so_far(bench: Bench) -> None:
    bench.start()

    async def read() -> dict[str, Any]:
        return dict(bare((await bench.ask("ReadSensors", "s", GPU)).json[0]))

    bench.card.change_board(GPU, power=400_000)
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    first = await read()
    assert before <= first["at"] <= time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    told = ("power", "temperature", "power_limit", "offset_graphics", "xid_count", "xids")
    assert [first[name] for name in told] == [400_000, 50, 450_000, 0, 0, []]
    assert "trial_ends" not in first
    assert (await bench.ask("TryProfile", "sst", GPU, '{"power-limit": "300W"}', "60000000")).status == 0
    bench.card.raise_xid(GPU, 13)
    second = await read()
    assert [second[name] for name in ("power", "power_limit", "xid_count", "xids")] == [300_000, 300_000, 1, [13]]
    assert "sw-power-cap" in second["reasons"]
    assert second["trial_ends"] - second["at"] <= 60_000_000
    used = (second["energy"] - first["energy"]) / (second["at"] - first["at"]) * 1_000_000
    assert 299_000 < used < 401_000, "mW, the mean"
    await eventually(lambda: power(bench) == 450_000, "an Xid ends a trial")
    assert "trial_ends" not in await read()


async def test_what_the_driver_does_not_tell_is_left_out(bench: Bench) -> None:
    bench.card.change_board(GPU, architecture=4, offset_ranges={}, power_range=None, sensor_reads=0)
    bench.start()
    told = (await bench.ask("ReadSensors", "s", GPU)).json[0]
    assert told.keys() == {"at", "power", "reasons", "xid_count", "xids"}


async def test_an_xid_right_after_applying_has_the_profile_distrusted(bench: Bench) -> None:
    bench.start()
    await apply(bench, **{"power-limit": "300W"})
    bench.card.raise_xid(GPU, 31)

    async def distrusted() -> bool:
        return "Xid 31" in str((await bench.state())["distrust"])

    async with asyncio.timeout(10):
        while not await distrusted():
            await asyncio.sleep(0.05)


async def test_a_gpu_given_away_is_left_alone_by_the_next_helper_too(bench: Bench) -> None:
    process = bench.start(idle=0.4)
    await set_curve(bench)
    assert (await bench.ask("Detach", "s", GPU)).status == 0
    assert not fan(bench).manual
    assert "call Attach first" in (await bench.ask("SetFan", *CALLS["SetFan"])).errors
    assert await asyncio.to_thread(process.wait, 10) == 0, "nothing is held of it"
    bench.card.change(errors={"nvmlInitWithFlags": 999})
    bench.start()
    state = await bench.state()
    assert (state["condition"], state["name"]) == ("given-away", CARD.name), "told without a driver that answers"
    bench.card.change(errors={})
    assert (await bench.ask("Attach", "s", GPU)).status == 0
    assert (await bench.ask("SetFan", *CALLS["SetFan"])).status == 0
    assert fan(bench).manual


@pytest.mark.parametrize(
    ("member", "arguments", "complaint"),
    [
        ("SetFan", (SET_FAN, GPU, "0", "loud", "0", "0", "0"), "allowed: automatic, fixed, curve"),
        ("SetFan", (SET_FAN, GPU, "7", "fixed", "50", "0", "0"), "no fan 7"),
        ("SetFan", (SET_FAN, GPU, "99", "fixed", "50", "0", "0"), "no fan 99"),
        ("SetFan", (SET_FAN, GPU, "0", "curve", "0", "2", "80", "90", "40", "100", "0"), "does not rise"),
        ("SetFan", (SET_FAN, GPU, "0", "fixed", "50", "0", "1", "file", "s", "/etc/shadow"), "is no option"),
        ("ApplyProfile", ("ss", GPU, "/etc/shadow"), "is not JSON"),
        ("ApplyProfile", ("ss", GPU, '{"voltage": 1}'), "voltage"),
        ("TryProfile", ("sst", GPU, "{}", "1"), "time to confirm"),
        ("Confirm", ("s", GPU), "No profile is on trial"),
        ("ApplyProfile", ("ss", "../../etc", "{}"), "There is no GPU"),
        ("Attach", ("s", "GPU-none"), "is not detached"),
    ],
)
async def test_nonsense_is_refused_by_name(
    bench: Bench, member: str, arguments: tuple[str, ...], complaint: str
) -> None:
    bench.start()
    refused = await bench.ask(member, *arguments)
    assert complaint in refused.errors
    assert not fan(bench).manual
    assert power(bench) in (None, CARD.board.power_default)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to call as another user")
async def test_nobody_but_the_supervisor_gets_anywhere(bench: Bench) -> None:
    bench.start()
    assert CALLS.keys() == {method.name for method in HELPER.methods}
    for member, arguments in CALLS.items():
        refused = await bench.ask(member, *arguments, uid=NOBODY)
        assert "Access denied" in refused.errors, member
    assert not fan(bench).manual
    assert power(bench) in (None, CARD.board.power_default)
    assert HELPER_PATH == "/org/gpusupervisor1/Helper"
