"""Whom the controls touch, and for how long NVML is open, on a simulated card in this process."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpusupervisor.clock import SystemClock
from gpusupervisor.errors import Busy, GpuUnavailable
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.helper import control
from gpusupervisor.helper.control import GpuEvent
from gpusupervisor.helper.controllers import Controls, Folders
from gpusupervisor.helper.values import FanSetting, Profile
from gpusupervisor.simulation.nvml import SimulatedGpu, World, installed
from tests.gpu.machine import FakeSysfs
from tests.helper.conftest import eventually

FIRST, SECOND = "0000:01:00.0", "0000:02:00.0"
GPU = SimulatedGpu().uuid
OTHER = "GPU-22222222-2222-3333-4444-555555555555"
FIXED = FanSetting("fixed", percent=60)


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu()])) as world:
        yield world


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path / "sys")


class Station:
    """Controls that run."""

    def __init__(self, folder: Path, sysfs: FakeSysfs) -> None:
        for name in ("state", "runtime"):
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        folders = Folders(folder / "state", folder / "runtime", folder.stat().st_uid)
        self.thread = NvmlThread()
        self.events: list[tuple[str, GpuEvent]] = []
        self.controls = Controls(self.thread, SystemClock(), sysfs.root, folders, self._take, 0.01)
        self._tasks: list[asyncio.Task[None]] = []

    def _take(self, gpu: str, event: GpuEvent) -> None:
        self.events.append((gpu, event))

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.ensure_future(work))
        return self._tasks[-1]

    async def condition(self, gpu: str = GPU) -> str:
        return {shown.identity.uuid: shown.condition for shown in await self.controls.look()}[gpu]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.controls.close()
        await self.thread.close()


@asynccontextmanager
async def running(folder: Path, sysfs: FakeSysfs) -> AsyncIterator[Station]:
    station = Station(folder, sysfs)
    await station.controls.prepare()
    station.spawn(station.controls.run(station.spawn))
    try:
        yield station
    finally:
        await station.close()


async def test_nvml_is_open_while_something_is_held_and_not_longer(
    world: World, tmp_path: Path, sysfs: FakeSysfs
) -> None:
    sysfs.add()
    async with running(tmp_path, sysfs) as station:
        assert world.references == 0
        await station.controls.look()
        assert world.references == 0
        async with station.controls.gpu(GPU) as gpu:
            await gpu.set_fan(0, FIXED)
        assert world.references == 1
        assert station.controls.held == ["fans of NVIDIA GeForce RTX 4090"]
        async with station.controls.gpu(GPU) as gpu:
            await gpu.set_fan(0, FanSetting())
        assert world.references == 0
        assert station.controls.held == []


async def test_a_gpu_that_sleeps_is_not_touched(world: World, tmp_path: Path, sysfs: FakeSysfs) -> None:
    sysfs.add(status="suspended")
    async with running(tmp_path, sysfs) as station:
        assert await station.controls.look() == ()
        sysfs.set_status(FIRST, "active")
        assert await station.condition() == "ok"
        sysfs.set_status(FIRST, "suspended")
        touched = world.touched[GPU]
        assert await station.condition() == "asleep"
        async with station.controls.gpu(GPU) as gpu:
            with pytest.raises(GpuUnavailable, match="sleeps and is not woken"):
                await gpu.set_fan(0, FIXED)
        assert world.touched[GPU] == touched


async def test_what_was_lost_while_a_gpu_slept_is_set_again_soon_after_it_woke(
    world: World, tmp_path: Path, sysfs: FakeSysfs
) -> None:
    sysfs.add()
    async with running(tmp_path, sysfs) as station:
        async with station.controls.gpu(GPU) as gpu:
            assert all(result.ok for result in await gpu.apply(Profile(power_limit=300_000)))
        sysfs.set_status(FIRST, "suspended")
        assert await station.condition() == "asleep"
        world.settings_of(world.gpus[0]).power_limit = None
        sysfs.set_status(FIRST, "active")
        async with asyncio.timeout(30):  # a minute would pass until the next look on the timer
            while world.settings_of(world.gpus[0]).power_limit != 300_000:
                await asyncio.sleep(0.05)


async def test_beside_a_gpu_that_sleeps_another_is_controlled(world: World, tmp_path: Path, sysfs: FakeSysfs) -> None:
    world.gpus.append(SimulatedGpu(OTHER, pci="00000000:02:00.0"))
    sysfs.add(FIRST, "suspended")
    sysfs.add(SECOND)
    async with running(tmp_path, sysfs) as station:
        async with station.controls.gpu(OTHER) as gpu:
            await gpu.set_fan(0, FIXED)
        assert world.settings_of(world.gpus[1]).fans[0].manual
        assert world.touched[GPU] == 0
        sysfs.set_status(FIRST, "active")
        async with station.controls.gpu(GPU) as gpu:
            await gpu.set_fan(1, FIXED)
        assert world.settings_of(world.gpus[0]).fans[1].manual
        await eventually(lambda: world.settings_of(world.gpus[1]).fans[0].manual, "the other is still controlled")


async def test_a_stored_profile_waits_until_its_gpu_is_awake(world: World, tmp_path: Path, sysfs: FakeSysfs) -> None:
    sysfs.add()
    async with running(tmp_path, sysfs) as station, station.controls.gpu(GPU) as gpu:
        await gpu.apply(Profile(300_000))
    world.reload_driver()
    sysfs.set_status(FIRST, "suspended")
    touched = world.touched[GPU]
    async with running(tmp_path, sysfs) as station:
        assert station.controls.held, "so that it is not forgotten"
        await asyncio.sleep(0.1)
        assert world.touched[GPU] == touched
        sysfs.set_status(FIRST, "active")
        await eventually(lambda: world.settings_of(world.gpus[0]).power_limit == 300_000, "it is applied")


async def test_a_gpu_given_away_is_closed_and_the_others_are_still_controlled(
    world: World, tmp_path: Path, sysfs: FakeSysfs
) -> None:
    world.gpus.append(SimulatedGpu(OTHER, pci="00000000:02:00.0"))
    sysfs.add(FIRST)
    sysfs.add(SECOND)
    async with running(tmp_path, sysfs) as station:
        for uuid in (GPU, OTHER):
            async with station.controls.gpu(uuid) as gpu:
                await gpu.set_fan(0, FIXED)
        await station.controls.detach(GPU)
        assert not world.settings_of(world.gpus[0]).fans[0].manual
        touched = world.touched[GPU]
        await eventually(lambda: world.references == 1, "opened again for the other")
        assert await station.condition(OTHER) == "ok"
        assert await station.condition(GPU) == "given-away"
        assert world.touched[GPU] == touched
        await station.controls.attach(GPU)
        await eventually(lambda: world.settings_of(world.gpus[0]).fans[0].manual, "its fan as before")


async def test_fans_that_an_earlier_helper_could_not_give_back_are_tried_again(
    world: World, tmp_path: Path, sysfs: FakeSysfs
) -> None:
    sysfs.add()
    fans = world.settings_of(world.gpus[0]).fans
    fans[1].manual = True
    (tmp_path / "runtime").mkdir(mode=0o700)
    mark = tmp_path / "runtime" / f"fans-{GPU}.json"
    mark.write_text(json.dumps({"gpu": GPU, "boot_id": "", "fans": [1]}))
    world.errors.update(dict.fromkeys(("nvmlDeviceSetDefaultFanSpeed_v2", "nvmlDeviceSetFanSpeed_v2"), 999))
    async with running(tmp_path, sysfs) as station:
        assert station.controls.held, "so that it is not forgotten"
        await eventually(lambda: "stranded" in [getattr(event, "cause", "") for _, event in station.events], "an alert")
        world.errors.clear()
        await eventually(lambda: not fans[1].manual, "it is given back")
        await eventually(lambda: not station.controls.held and not mark.exists(), "nothing is left")


async def test_a_driver_that_cannot_list_gpus_is_an_error_with_its_reason(
    world: World, tmp_path: Path, sysfs: FakeSysfs
) -> None:
    world.errors["nvmlInitWithFlags"] = 9
    async with running(tmp_path, sysfs) as station:
        with pytest.raises(GpuUnavailable, match="Driver not loaded"):
            await station.controls.look()


async def test_nvml_stays_open_while_a_gpu_is_watched_for_it_alone_tells_of_xids(
    tmp_path: Path, sysfs: FakeSysfs, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "WATCHED", 200_000)
    async with running(tmp_path, sysfs) as station:
        assert (await station.controls.watch(GPU)).xids == ()
        assert world.references == 1, "nothing is held, but it was looked at"
        world.gpus[0].xids += [13, 31]
        moment = await station.controls.watch(GPU)
        assert (moment.xid_count, moment.xids) == (2, (13, 31))
        assert (await station.controls.watch(GPU)).xid_count == 2
        await eventually(lambda: world.references == 0, "nobody looks any more, so the GPU may sleep")


async def test_a_gpu_given_away_is_not_watched(tmp_path: Path, sysfs: FakeSysfs, world: World) -> None:
    async with running(tmp_path, sysfs) as station:
        await station.controls.watch(GPU)
        await station.controls.detach(GPU)
        assert world.references == 0
        with pytest.raises(GpuUnavailable, match="detached"):
            await station.controls.watch(GPU)


async def test_a_gpu_that_fails_while_it_is_watched_is_said_to(tmp_path: Path, sysfs: FakeSysfs, world: World) -> None:
    async with running(tmp_path, sysfs) as station:
        await station.controls.watch(GPU)
        world.gpus[0].lost = True
        with pytest.raises(GpuUnavailable, match="cannot be read"):
            await station.controls.watch(GPU)


async def test_a_gpu_whose_fan_cannot_be_given_back_is_not_given_away(
    tmp_path: Path, sysfs: FakeSysfs, world: World
) -> None:
    sysfs.add()
    async with running(tmp_path, sysfs) as station:
        async with station.controls.gpu(GPU) as gpu:
            await gpu.set_fan(0, FIXED)
        world.errors["nvmlDeviceSetDefaultFanSpeed_v2"] = 999
        with pytest.raises(GpuUnavailable, match="could not be given back"):
            await station.controls.detach(GPU)
        assert await station.condition() == "ok"
        del world.errors["nvmlDeviceSetDefaultFanSpeed_v2"]
        await eventually(lambda: world.settings_of(world.gpus[0]).fans[0].target == 60, "it is controlled as before")
        await station.controls.detach(GPU)
        assert not world.settings_of(world.gpus[0]).fans[0].manual


async def test_a_gpu_that_is_lost_can_be_given_away(tmp_path: Path, sysfs: FakeSysfs, world: World) -> None:
    sysfs.add()
    async with running(tmp_path, sysfs) as station:
        async with station.controls.gpu(GPU) as gpu:
            await gpu.set_fan(0, FIXED)
        world.gpus[0].lost = True
        await station.controls.detach(GPU)
        assert await station.condition() == "given-away"


async def test_a_gpu_is_not_given_away_from_under_a_trial_that_is_only_beginning(
    tmp_path: Path, sysfs: FakeSysfs, world: World
) -> None:
    sysfs.add()
    async with running(tmp_path, sysfs) as station, station.controls.gpu(GPU) as gpu:
        await station.condition()
        trying = asyncio.ensure_future(gpu.try_(Profile(300_000), 60_000_000))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="on trial"):
            await station.controls.detach(GPU)
        assert [result.ok for result in await trying] == [True]
        await gpu.revert()
        assert world.settings_of(world.gpus[0]).power_limit != 300_000


async def test_a_trial_that_ends_in_a_sleep_does_not_leave_its_fan(
    tmp_path: Path, sysfs: FakeSysfs, world: World
) -> None:
    sysfs.add()
    async with running(tmp_path, sysfs) as station, station.controls.gpu(GPU) as gpu:
        await gpu.try_(Profile(fans={0: FIXED}), 60_000_000)
        await eventually(lambda: world.settings_of(world.gpus[0]).fans[0].manual, "the trial's fan")
        await gpu.machine_goes_to_sleep()
        gpu._machine_sleeps = False  # awake, and the profile is looked at before the fans are
        gpu._keeper.thaw()
        await gpu._keeper.xid(62)
        assert gpu.shown().settings[0] == FanSetting()
        await eventually(lambda: not (gpu._fans.is_parked or gpu._fans.held), "the fan is the driver's")
        assert not world.settings_of(world.gpus[0]).fans[0].manual
