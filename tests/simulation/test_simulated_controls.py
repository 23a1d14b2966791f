"""Fans, power, clocks and events of the simulated library, as the real pynvml sees them."""

import ctypes
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from gpusupervisor.simulation.nvml import CardWorld, SimulatedCard, SimulatedGpu, World, installed

A = "GPU-aaaaaaaa"
SETTER = """
import os, sys, pynvml, signal
from gpusupervisor.simulation.nvml import CardWorld, installed
with installed(CardWorld(sys.argv[1])):
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    pynvml.nvmlDeviceSetFanSpeed_v2(gpu, 1, 77)
    pynvml.nvmlDeviceSetPowerManagementLimit(gpu, 300000)
    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 210, 2000)
    pynvml.nvmlDeviceSetPersistenceMode(gpu, 1)
    info = pynvml.c_nvmlClockOffset_t()
    info.version, info.type, info.pstate, info.clockOffsetMHz = pynvml.nvmlClockOffset_v1, 0, 0, 150
    pynvml.nvmlDeviceSetClockOffsets(gpu, pynvml.byref(info))
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu(A)])) as world:
        pynvml.nvmlInit()
        yield world


@pytest.fixture
def card(tmp_path: Path) -> SimulatedCard:
    card = SimulatedCard(tmp_path / "card")
    card.write_card([SimulatedGpu(A)])
    return card


def handle() -> object:
    return pynvml.nvmlDeviceGetHandleByUUID(A)


def offset(value: int | None = None, *, clock: int = 0, pstate: int = 0) -> int:
    """Set or get a clock offset; pynvml checks no answer, so we do."""
    info = pynvml.c_nvmlClockOffset_t()
    info.version, info.type, info.pstate = pynvml.nvmlClockOffset_v1, clock, pstate
    name = "nvmlDeviceGetClockOffsets"
    if value is not None:
        name, info.clockOffsetMHz = "nvmlDeviceSetClockOffsets", value
    pynvml._nvmlCheckReturn(pynvml._nvmlGetFunctionPointer(name)(handle(), ctypes.byref(info)))
    return int(info.clockOffsetMHz)


def kill_setter(card: SimulatedCard) -> None:
    subprocess.run([sys.executable, "-c", SETTER, str(card.directory)], check=False, timeout=30)


def test_fans_become_manual_and_automatic_again(world: World) -> None:
    pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 1, 80)
    assert pynvml.nvmlDeviceGetNumFans(handle()) == 2
    assert [pynvml.nvmlDeviceGetFanControlPolicy_v2(handle(), fan) for fan in (0, 1)] == [0, 1]
    assert pynvml.nvmlDeviceGetTargetFanSpeed(handle(), 1) == pynvml.nvmlDeviceGetFanSpeed_v2(handle(), 1) == 80
    assert pynvml.nvmlDeviceGetMinMaxFanSpeed(handle()) == [30, 100]
    pynvml.nvmlDeviceSetDefaultFanSpeed_v2(handle(), 1)
    assert pynvml.nvmlDeviceGetFanControlPolicy_v2(handle(), 1) == 0
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceGetFanSpeed_v2(handle(), 2)


def test_a_fan_speed_out_of_range_is_rejected_or_taken(world: World) -> None:
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 20)
    world.gpus[0].board.rejects_fan_range = False
    pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 20)
    assert pynvml.nvmlDeviceGetTargetFanSpeed(handle(), 0) == 20


def test_a_float_for_a_fan_is_refused_as_by_a_real_library(world: World) -> None:
    with pytest.raises(ctypes.ArgumentError):
        pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 50.0)


def test_fans_ramp_in_both_directions(world: World) -> None:
    moment = [100.0]
    world.time, world.gpus[0].board.fan_ramp = lambda: moment[0], 5.0
    pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 60)
    speeds = []
    for seconds in (0, 2, 3, 10):
        moment[0] += seconds
        speeds.append(pynvml.nvmlDeviceGetFanSpeed_v2(handle(), 0))
    assert speeds == [35, 45, 60, 60]
    pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 30)
    moment[0] += 4
    assert pynvml.nvmlDeviceGetFanSpeed_v2(handle(), 0) == 40


def test_a_hot_card_overrides_its_fans(world: World) -> None:
    pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 50)
    world.gpus[0].board.override_above, world.gpus[0].board.temperature = 80, 81
    assert pynvml.nvmlDeviceGetFanSpeed_v2(handle(), 0) == 118
    assert pynvml.nvmlDeviceGetTargetFanSpeed(handle(), 0) == 50


def test_offsets_are_snapped_linked_and_kept_per_clock(world: World) -> None:
    board = world.gpus[0].board
    board.offset_step, board.linked_pstates = 15, True
    offset(100)
    assert (offset(), offset(pstate=2), offset(clock=2)) == (90, 90, 0)
    board.linked_pstates = False
    offset(30, pstate=2)
    assert (offset(), offset(pstate=2)) == (90, 30)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        offset(2000)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        offset(pstate=7)


def test_clocks_follow_what_is_set(world: World) -> None:
    def clock(which: int) -> int:
        return int(pynvml.nvmlDeviceGetClockInfo(handle(), which))

    offset(1000, clock=2)
    offset(100)
    assert (clock(0), clock(2)) == (2620, 11001)
    pynvml.nvmlDeviceSetGpuLockedClocks(handle(), 210, 1500)
    assert clock(0) == 1500
    pynvml.nvmlDeviceResetGpuLockedClocks(handle())
    world.gpus[0].board.power = 8 * 150_000
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(), 150_000)
    assert clock(0) == 1310
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle()) == pynvml.nvmlClocksEventReasonSwPowerCap


def test_energy_grows_with_the_power_that_is_drawn(world: World) -> None:
    moment = [100.0]
    world.time = lambda: moment[0]
    board = world.gpus[0].board
    board.power = 400_000
    begun = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle())
    moment[0] += 2
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(), 300_000)
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle()) - begun == 800_000, "mJ"
    moment[0] += 1
    assert pynvml.nvmlDeviceGetTotalEnergyConsumption(handle()) - begun == 1_100_000
    board.architecture = 4
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle())


def test_performance_states_and_architecture_are_told(world: World) -> None:
    assert pynvml.nvmlDeviceGetSupportedPerformanceStates(handle()) == [0, 2, 3, 5, 8]
    assert pynvml.nvmlDeviceGetPerformanceState(handle()) == 0
    assert pynvml.nvmlDeviceGetArchitecture(handle()) == 8


def test_setters_need_privilege(world: World) -> None:
    world.privileged = False
    for attempt in (
        lambda: pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 50),
        lambda: pynvml.nvmlDeviceSetDefaultFanSpeed_v2(handle(), 0),
        lambda: pynvml.nvmlDeviceSetPowerManagementLimit(handle(), 200_000),
        lambda: pynvml.nvmlDeviceSetPersistenceMode(handle(), 1),
        lambda: pynvml.nvmlDeviceSetMemoryLockedClocks(handle(), 405, 405),
        lambda: offset(10),
    ):
        with pytest.raises(pynvml.NVMLError_NoPermission):
            attempt()
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 450_000


def test_a_reload_and_a_resume_reset_what_they_reset(world: World) -> None:
    world.gpus[0].board.lost_on_resume = ["fans", "offsets"]
    pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 50)
    pynvml.nvmlDeviceSetPowerManagementLimit(handle(), 200_000)
    offset(100)
    world.resume()
    assert (pynvml.nvmlDeviceGetFanControlPolicy_v2(handle(), 0), offset()) == (0, 0)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 200_000
    world.reload_driver()
    pynvml.nvmlInit()
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 450_000


def test_an_idle_card_without_persistence_forgets(world: World) -> None:
    world.gpus[0].board.deinitialises_idle = True
    for persistence, kept in ((1, 200_000), (0, 450_000)):
        pynvml.nvmlDeviceSetPersistenceMode(handle(), persistence)
        pynvml.nvmlDeviceSetPowerManagementLimit(handle(), 200_000)
        pynvml.nvmlShutdown()
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == kept


def test_an_event_ends_the_waiting(world: World) -> None:
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle(), pynvml.nvmlEventTypeXidCriticalError, events)
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, 5)
    told: list[int] = []
    waiter = threading.Thread(target=lambda: told.append(pynvml.nvmlEventSetWait_v2(events, 10_000).eventData))
    waiter.start()
    world.gpus[0].xids.append(79)
    waiter.join(10)
    assert told == [79]
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceRegisterEvents(handle(), pynvml.nvmlEventTypeAll, events)
    pynvml.nvmlEventSetFree(events)
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        pynvml.nvmlEventSetWait_v2(events, 0)


def test_what_was_set_outlives_the_process_that_set_it(card: SimulatedCard) -> None:
    kill_setter(card)
    left = card.settings(A)
    assert [(fan.manual, fan.target) for fan in left.fans] == [(False, 35), (True, 77)]
    assert (left.power_limit, left.offsets, left.persistence) == (300_000, {"graphics/0": 150}, True)
    assert left.locked_clocks == {"graphics": (210, 2000)}
    with installed(CardWorld(card.directory)):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetTargetFanSpeed(handle(), 1) == 77
        assert offset() == 150


def test_a_card_that_is_in_use_shows_what_another_process_sets(card: SimulatedCard) -> None:
    with installed(CardWorld(card.directory)):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 450_000
        kill_setter(card)
        assert pynvml.nvmlDeviceGetPowerManagementLimit(handle()) == 300_000
        pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 44)
        assert [fan.target for fan in card.settings(A).fans] == [44, 77]
        card.resume()
        assert [pynvml.nvmlDeviceGetFanControlPolicy_v2(handle(), fan) for fan in (0, 1)] == [0, 0]
        assert pynvml.nvmlDeviceGetPersistenceMode(handle()) == 1
        pynvml.nvmlDeviceSetFanSpeed_v2(handle(), 0, 44)
        assert pynvml.nvmlDeviceGetFanControlPolicy_v2(handle(), 0) == 1
        card.reload_driver()
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetPersistenceMode(handle()) == 0


def test_the_board_of_a_card_is_changed_while_it_is_in_use(card: SimulatedCard) -> None:
    with installed(CardWorld(card.directory)):
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(handle(), 8, events)
        card.change_board(A, temperature=83, fan_range=(40, 90))
        card.raise_xid(A, 31)
        assert pynvml.nvmlDeviceGetTemperature(handle(), 0) == 83
        assert pynvml.nvmlDeviceGetMinMaxFanSpeed(handle()) == [40, 90]
        assert pynvml.nvmlEventSetWait_v2(events, 0).eventData == 31
    with pytest.raises(AttributeError, match="temprature"):
        card.change_board(A, temprature=1)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_a_card_may_ask_for_the_capability_that_a_real_driver_asks_for(card: SimulatedCard) -> None:
    card.change(root_only=True)
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-sys_admin", sys.executable, "-c", SETTER, str(card.directory)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
        check=False,
    )
    assert "NVMLError_NoPermission" in done.stderr
    assert [fan.manual for fan in card.settings(A).fans] == [False, False]
