"""GPUs that are given away: known, shown as asleep, and never touched."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpusupervisor.gpu.monitor import GpuMonitor
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.simulation.nvml import SimulatedGpu, World, installed
from tests.gpu.machine import FakeSysfs, HandClock
from tests.gpu.test_monitor import PCI_A, PCI_B, A, B, add_second_gpu, states

FIRST = GpuIdentity(A, "NVIDIA A", PCI_A)


class Away:
    """What the helper says is given away."""

    def __init__(self) -> None:
        self.gpus: dict[str, GpuIdentity] = {}


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu(A)])) as world:
        yield world


@pytest.fixture
def away() -> Away:
    return Away()


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path)


@pytest.fixture
async def monitor(world: World, sysfs: FakeSysfs, away: Away) -> AsyncIterator[GpuMonitor]:
    clock = HandClock()
    monitor = GpuMonitor(
        NvmlReader(clock), NvmlThread(clock), clock, sysfs_root=sysfs.root, given_away=lambda: away.gpus
    )
    yield monitor
    await monitor.close()


@pytest.mark.parametrize("listed", [True, False], ids=["sysfs", "no sysfs"])
async def test_the_only_gpu_given_away_has_nvml_closed_until_it_is_back(
    monitor: GpuMonitor, world: World, sysfs: FakeSysfs, away: Away, listed: bool
) -> None:
    if listed:
        sysfs.add(PCI_A, control="on")
    assert states(await monitor.sample()) == {A: "ok"}
    assert world.references == 1
    away.gpus = {A: FIRST}
    sample = await monitor.sample()
    assert states(sample) == {A: "asleep"}
    assert "detached" in sample.gpus[0].detail
    assert world.references == 0
    touched = world.touched[A]
    assert (await monitor.sample_gpu(A)).state == "asleep"
    assert world.touched[A] == touched
    away.gpus = {}
    assert states(await monitor.sample()) == {A: "ok"}


async def test_beside_it_another_is_still_read(monitor: GpuMonitor, world: World, sysfs: FakeSysfs, away: Away) -> None:
    add_second_gpu(world)
    sysfs.add(PCI_A, control="on")
    sysfs.add(PCI_B, control="on")
    assert states(await monitor.sample()) == {A: "ok", B: "ok"}
    away.gpus = {A: FIRST}
    touched = world.touched[A]
    assert states(await monitor.sample()) == {A: "asleep", B: "ok"}
    assert world.touched[A] == touched


async def test_one_that_was_given_away_before_we_started_is_known_and_not_touched(
    monitor: GpuMonitor, world: World, sysfs: FakeSysfs, away: Away
) -> None:
    sysfs.add(PCI_A, control="on")
    away.gpus = {A: FIRST}
    sample = await monitor.sample()
    assert (states(sample), sample.gpus[0].identity.name) == ({A: "asleep"}, "NVIDIA A")
    assert world.touched[A] == 0
