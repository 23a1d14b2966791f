"""The GPU monitor over time: driver states, back-off, sleep, a driver that hangs."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.gpu.monitor import GpuMonitor
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.simulation.nvml import GIB, SimulatedGpu, SimulatedProcess, World, installed
from tests.gpu.machine import FakeSysfs, HandClock

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
PCI_A, PCI_B = "0000:01:00.0", "0000:02:00.0"
MEMORY = "nvmlDeviceGetMemoryInfo_v2"
INIT = "nvmlInitWithFlags"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu(A, processes=[SimulatedProcess(7, GIB)])])) as world:
        yield world


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path)


@pytest.fixture
def thread(clock: HandClock) -> NvmlThread:
    return NvmlThread(clock)


@pytest.fixture
async def monitor(world: World, clock: HandClock, sysfs: FakeSysfs, thread: NvmlThread) -> AsyncIterator[GpuMonitor]:
    monitor = GpuMonitor(NvmlReader(clock), thread, clock, sysfs_root=sysfs.root, deadline=5)
    yield monitor
    world.release_hanging()
    await monitor.close()


def states(sample: Sample) -> dict[str, str]:
    return {gpu.identity.uuid: gpu.state for gpu in sample.gpus}


def add_second_gpu(world: World) -> None:
    world.gpus.append(SimulatedGpu(B, pci="00000000:02:00.0"))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_working_driver(monitor: GpuMonitor, world: World, clock: HandClock) -> None:
    sample = await monitor.sample()
    assert sample.taken_at == clock.now()
    assert (sample.driver.state, sample.driver.version) == ("ok", "580.95.05")
    assert (sample.driver.impact, sample.driver.remedy) == ("", "")
    assert [process.pid for process in sample.gpus[0].processes] == [7]
    assert len(world.threads) == 1


async def test_fresh_processes_and_utilisation_reach_the_driver(monitor: GpuMonitor, world: World) -> None:
    await monitor.sample()
    world.calls.clear()
    await monitor.sample()
    assert list(world.calls) == [MEMORY]
    world.calls.clear()
    sample = await monitor.sample(fresh_processes=True, utilization=True)
    assert "nvmlDeviceGetComputeRunningProcesses_v3" in world.calls
    assert sample.gpus[0].processes[0].sm_utilization == 0


def break_nothing(world: World) -> None:
    world.gpus.clear()


def break_library(world: World) -> None:
    world.library_present = False


def break_module(world: World) -> None:
    world.driver_loaded = False


def break_version(world: World) -> None:
    world.kernel_driver = "575.57.08"


def break_permission(world: World) -> None:
    world.errors[INIT] = pynvml.NVML_ERROR_NO_PERMISSION


def break_init(world: World) -> None:
    world.errors[INIT] = pynvml.NVML_ERROR_UNKNOWN


@pytest.mark.parametrize(
    ("break_driver", "state", "detail", "remedy"),
    [
        (break_library, "missing", "libnvidia-ml.so.1 not found", "Install the NVIDIA driver"),
        (break_module, "missing", "Driver not loaded", "modprobe nvidia"),
        (break_version, "mismatch", "library 580.95.05, kernel module 575.57.08", "reboot"),
        (break_permission, "denied", "Insufficient permissions", "DeviceAllow="),
        (break_init, "failing", "Unknown error", "journalctl -k"),
        (break_nothing, "no-gpu", "has no GPU", "lspci"),
    ],
)
async def test_trouble_is_a_state_that_says_what_it_breaks_and_how_to_mend_it(
    monitor: GpuMonitor,
    world: World,
    clock: HandClock,
    sysfs: FakeSysfs,
    break_driver: Callable[[World], None],
    state: str,
    detail: str,
    remedy: str,
) -> None:
    sysfs.set_module_version("575.57.08")
    break_driver(world)
    sample = await monitor.sample()
    assert sample.driver.state == state
    assert detail in sample.driver.detail
    assert sample.driver.impact
    assert remedy in sample.driver.remedy
    assert sample.gpus == ()
    clock.advance(0.5)
    assert await monitor.sample() == Sample(clock.now(), sample.driver)


async def test_initialisation_is_tried_again_after_one_second_doubling_to_a_minute(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    world.errors[INIT] = pynvml.NVML_ERROR_UNKNOWN
    started = clock.now()
    attempts = []
    for _ in range(1200):
        before = world.calls.count(INIT)
        await monitor.sample()
        if world.calls.count(INIT) > before:
            attempts.append((clock.now() - started) // 500_000 / 2)
        clock.advance(0.2)
    assert attempts == [0, 1, 3, 7, 15, 31, 63, 123, 183]
    world.errors.clear()
    clock.advance(60)
    assert (await monitor.sample()).driver.state == "ok"


async def test_a_driver_that_was_reloaded_is_taken_up_again(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    await monitor.sample()
    world.reload_driver()
    sample = await monitor.sample()
    assert sample.driver.state == "failing"
    assert states(sample) == {A: "failing"}
    world.calls.clear()
    clock.advance(0.9)
    await monitor.sample()
    assert list(world.calls) == []
    clock.advance(0.2)
    sample = await monitor.sample()
    assert (sample.driver.state, states(sample)) == ("ok", {A: "ok"})
    assert sample.gpus[0].processes


async def test_a_driver_upgraded_in_place_is_a_mismatch_and_its_gpus_are_lost(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    await monitor.sample()
    world.upgrade_driver("590.44.01")
    await monitor.sample()
    clock.advance(2)
    assert (await monitor.sample()).driver.state == "failing", "one such answer may be a glitch"
    clock.advance(4)
    sample = await monitor.sample()
    assert sample.driver.state == "mismatch"
    assert states(sample) == {A: "lost"}
    assert sample.gpus[0].memory is None


async def test_one_lost_gpu_leaves_the_driver_well_and_is_found_again_after_a_reset(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    add_second_gpu(world)
    await monitor.sample()
    world.gpus[1].lost = True
    sample = await monitor.sample()
    assert (sample.driver.state, states(sample)) == ("ok", {A: "ok", B: "lost"})
    clock.advance(2)
    sample = await monitor.sample()
    assert states(sample) == {A: "ok", B: "lost"}, "known from before, though it has no handle any more"
    assert "GPU is lost" in sample.driver.detail
    assert "Those GPUs are not supervised" in sample.driver.impact
    world.gpus[1].lost = False
    clock.advance(60)
    assert states(await monitor.sample()) == {A: "ok", B: "ok"}


async def test_the_only_gpu_lost_is_a_failing_driver(monitor: GpuMonitor, world: World) -> None:
    await monitor.sample()
    world.gpus[0].lost = True
    sample = await monitor.sample()
    assert (sample.driver.state, states(sample)) == ("failing", {A: "lost"})


async def test_a_passing_error_does_not_initialise_again_but_a_lasting_one_does(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    await monitor.sample()
    world.fail_next(MEMORY, pynvml.NVML_ERROR_UNKNOWN)
    assert states(await monitor.sample()) == {A: "failing"}
    clock.advance(2)
    assert states(await monitor.sample()) == {A: "ok"}
    assert world.calls.count(INIT) == 1
    world.errors[MEMORY] = pynvml.NVML_ERROR_UNKNOWN
    for _ in range(3):
        clock.advance(2)
        assert (await monitor.sample()).driver.state == "failing"
    assert world.calls.count(INIT) == 1
    world.errors.clear()
    clock.advance(2)
    assert (await monitor.sample()).driver.state == "ok"
    assert world.calls.count(INIT) == 2


async def test_one_of_two_gpus_that_goes_on_failing_has_nvml_initialised_again(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    add_second_gpu(world)
    await monitor.sample()
    world.gpus[1].errors[MEMORY] = pynvml.NVML_ERROR_UNKNOWN
    for _ in range(3):
        clock.advance(1)
        assert states(await monitor.sample()) == {A: "ok", B: "failing"}
    assert world.calls.count(INIT) == 1
    clock.advance(2)
    world.gpus[1].errors.clear()
    assert states(await monitor.sample()) == {A: "ok", B: "ok"}
    assert world.calls.count(INIT) == 2


async def test_a_gpu_that_could_not_be_opened_for_a_moment_is_opened_later(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    add_second_gpu(world)
    world.gpus[1].errors["nvmlDeviceGetHandleByIndex_v2"] = pynvml.NVML_ERROR_UNKNOWN
    assert states(await monitor.sample()) == {A: "ok"}
    world.gpus[1].errors.clear()
    clock.advance(2)
    assert states(await monitor.sample()) == {A: "ok", B: "ok"}


async def test_a_gpu_that_may_not_be_opened_does_not_have_nvml_initialised_for_ever(
    monitor: GpuMonitor, world: World, clock: HandClock
) -> None:
    add_second_gpu(world)
    world.gpus[1].errors["nvmlDeviceGetHandleByIndex_v2"] = pynvml.NVML_ERROR_NO_PERMISSION
    for _ in range(5):
        assert states(await monitor.sample()) == {A: "ok"}
        clock.advance(60)
    assert world.calls.count(INIT) == 1


async def test_a_gpu_that_was_taken_out_is_forgotten(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    add_second_gpu(world)
    sysfs.add(PCI_A, control="on")
    sysfs.add(PCI_B, control="on")
    assert states(await monitor.sample()) == {A: "ok", B: "ok"}
    world.gpus.pop()
    (sysfs.root / PCI_B).rename(sysfs.root.parent / "gone")
    clock.advance(31)
    assert states(await monitor.sample()) == {A: "ok"}


async def test_a_gpu_that_was_plugged_in_is_found(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    sysfs.add(PCI_A, control="on")
    await monitor.sample()
    add_second_gpu(world)
    sysfs.add(PCI_B, control="on")
    clock.advance(31)
    assert states(await monitor.sample()) == {A: "ok", B: "ok"}


async def test_a_driver_that_hangs_is_unresponsive_at_once_and_well_again_when_it_returns(
    world: World, clock: HandClock, sysfs: FakeSysfs, thread: NvmlThread
) -> None:
    monitor = GpuMonitor(NvmlReader(clock), thread, clock, sysfs_root=sysfs.root, deadline=0.1)
    assert (await monitor.sample()).driver.state == "ok"
    world.hang(MEMORY)
    hung = await monitor.sample()
    assert hung.driver.state == "unresponsive"
    assert "0.1 s" in hung.driver.detail
    assert hung.driver.impact
    assert hung.driver.remedy
    assert (states(hung), hung.gpus[0].memory) == ({A: "failing"}, None)
    calls = len(world.calls)
    started = time.monotonic()
    for _ in range(5):
        assert (await monitor.sample()).driver.state == "unresponsive"
        assert (await monitor.sample_gpu(A)).state == "failing"
    assert time.monotonic() - started < 5
    assert len(world.calls) == calls, "nothing is asked behind a wedged call"
    assert thread.wedged_since is not None
    world.release_hanging()
    await until(lambda: thread.wedged_since is None)
    sample = await monitor.sample()
    assert (sample.driver.state, states(sample)) == ("ok", {A: "ok"})
    await monitor.close()


async def test_closing_does_not_wait_for_a_driver_that_hangs(
    world: World, clock: HandClock, sysfs: FakeSysfs, thread: NvmlThread
) -> None:
    monitor = GpuMonitor(NvmlReader(clock), thread, clock, sysfs_root=sysfs.root, deadline=0.05)
    world.hang(INIT)
    assert (await monitor.sample()).driver.state == "unresponsive"
    started = time.monotonic()
    await monitor.close()
    assert time.monotonic() - started < 1


async def test_closing_shuts_nvml_down(monitor: GpuMonitor, world: World) -> None:
    await monitor.sample()
    await monitor.close()
    assert world.references == 0


async def test_no_call_is_made_while_every_gpu_is_suspended(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    sysfs.add(PCI_A, "suspended")
    for _ in range(3):
        sample = await monitor.sample(fresh_processes=True, utilization=True)
        assert (sample.driver.state, sample.gpus) == ("asleep", ())
        clock.advance(20)
    assert list(world.calls) == []
    sysfs.set_status(PCI_A, "active")
    assert states(await monitor.sample()) == {A: "ok"}


async def test_waking_asks_the_gpus_that_sleep_and_nothing_else_does(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    sysfs.add(PCI_A, "suspended")
    assert (await monitor.sample(needed=True)).driver.state == "asleep"
    assert world.touched[A] == 0
    assert states(await monitor.wake()) == {A: "ok"}
    sysfs.set_status(PCI_A, "active")
    assert states(await monitor.sample()) == {A: "ok"}


async def test_a_gpu_that_falls_asleep_is_not_touched_and_its_nvml_is_closed(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    sysfs.add(PCI_A)
    await monitor.sample()
    sysfs.set_status(PCI_A, "suspended")
    world.calls.clear()
    sample = await monitor.sample()
    assert (sample.driver.state, states(sample)) == ("asleep", {A: "asleep"})
    assert sample.gpus[0].memory is None
    assert list(world.calls) == ["nvmlShutdown"]
    assert (await monitor.sample_gpu(A)).state == "asleep"
    assert list(world.calls) == ["nvmlShutdown"]


async def test_a_driver_that_failed_before_its_gpu_slept_is_asked_at_once_when_it_wakes(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    sysfs.add(PCI_A)
    world.errors[INIT] = pynvml.NVML_ERROR_UNKNOWN
    for _ in range(6):
        clock.advance(32)
        assert (await monitor.sample()).driver.state == "failing"
    sysfs.set_status(PCI_A, "suspended")
    assert (await monitor.sample()).driver.state == "asleep"
    world.errors.clear()
    sysfs.set_status(PCI_A, "active")
    assert (await monitor.sample()).driver.state == "ok"


async def test_a_sleeping_gpu_beside_a_waking_one_is_not_touched(
    monitor: GpuMonitor, world: World, sysfs: FakeSysfs
) -> None:
    add_second_gpu(world)
    sysfs.add(PCI_A)
    sysfs.add(PCI_B)
    await monitor.sample()
    sysfs.set_status(PCI_B, "suspended")
    world.touched.clear()
    sample = await monitor.sample(fresh_processes=True)
    assert (sample.driver.state, states(sample)) == ("ok", {A: "ok", B: "asleep"})
    assert (await monitor.sample_gpu(B)).state == "asleep"
    assert (await monitor.sample_gpu(A)).state == "ok"
    assert world.touched[B] == 0
    sysfs.set_status(PCI_B, "active")
    assert states(await monitor.sample()) == {A: "ok", B: "ok"}


async def test_nvml_is_closed_after_ten_seconds_in_which_nobody_needs_it(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    sysfs.add(PCI_A)
    world.gpus[0].processes = []
    await monitor.sample(needed=False)
    for _ in range(11):
        clock.advance(1)
        sample = await monitor.sample(needed=False)
    assert world.references == 0
    assert (sample.driver.state, states(sample)) == ("asleep", {A: "asleep"})
    world.calls.clear()
    for _ in range(28):
        clock.advance(1)
        await monitor.sample(needed=False)
    assert list(world.calls) == []
    clock.advance(3)
    assert states(await monitor.sample(needed=False)) == {A: "ok"}, "it stays awake: somebody else uses it"


async def test_need_opens_nvml_again(monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs) -> None:
    sysfs.add(PCI_A)
    world.gpus[0].processes = []
    for _ in range(13):
        await monitor.sample(needed=False)
        clock.advance(1)
    assert world.references == 0
    assert states(await monitor.sample(needed=True)) == {A: "ok"}


async def test_a_display_server_that_only_has_the_gpu_open_does_not_keep_it_from_sleeping(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs
) -> None:
    sysfs.add(PCI_A)
    world.gpus[0].processes = [
        SimulatedProcess(8, 4 << 20, ("graphics",)),
        SimulatedProcess(9, 16 << 20, ("graphics",)),
    ]
    for _ in range(12):
        await monitor.sample(needed=False)
        clock.advance(1)
    assert world.references == 0


@pytest.mark.parametrize(
    "process",
    [
        SimulatedProcess(7, GIB),
        SimulatedProcess(7, 4 << 20, ("compute", "graphics")),
        SimulatedProcess(7, 17 << 20, ("graphics",)),
        SimulatedProcess(7, None, ("graphics",)),
    ],
    ids=["computes", "computes and draws", "draws much", "size not known"],
)
async def test_nvml_stays_open_for_who_may_use_the_gpu(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs, process: SimulatedProcess
) -> None:
    sysfs.add(PCI_A)
    world.gpus[0].processes = [process]
    for _ in range(30):
        await monitor.sample(needed=False)
        clock.advance(1)
    assert world.references == 1


@pytest.mark.parametrize("keeps_open", ["no power management", "unattributed lists"])
async def test_nvml_stays_open_for_a_gpu_that_never_sleeps_or_may_be_in_use(
    monitor: GpuMonitor, world: World, clock: HandClock, sysfs: FakeSysfs, keeps_open: str
) -> None:
    sysfs.add(PCI_A, control="on" if keeps_open == "no power management" else "auto")
    world.gpus[0].processes = []
    if keeps_open == "unattributed lists":
        world.gpus[0].mig = True
    for _ in range(30):
        sample = await monitor.sample(needed=False)
        clock.advance(1)
    assert states(sample) == {A: "ok"}
    assert world.references == 1


async def test_one_gpu_is_sampled_alone_with_its_processes_as_they_are_now(monitor: GpuMonitor, world: World) -> None:
    add_second_gpu(world)
    await monitor.sample()
    world.gpus[0].processes = [SimulatedProcess(7, GIB - 1)]
    world.touched.clear()
    gpu = await monitor.sample_gpu(A)
    assert [process.used for process in gpu.processes] == [GIB - 1]
    assert set(world.touched) == {A}
    world.gpus[0].lost = True
    assert (await monitor.sample_gpu(A)).state == "lost"
    world.reload_driver()
    assert (await monitor.sample_gpu(A)).state == "failing"


async def test_a_gpu_that_was_never_seen_is_refused_by_name(monitor: GpuMonitor) -> None:
    await monitor.sample()
    with pytest.raises(NoSuchGpu, match="GPU-nonsense"):
        await monitor.sample_gpu("GPU-nonsense")


async def test_gpus_without_permission_make_the_driver_denied(monitor: GpuMonitor, world: World) -> None:
    world.gpus[0].errors["nvmlDeviceGetHandleByIndex_v2"] = pynvml.NVML_ERROR_NO_PERMISSION
    sample = await monitor.sample()
    assert (sample.driver.state, sample.gpus) == ("denied", ())
