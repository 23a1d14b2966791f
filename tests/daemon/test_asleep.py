"""A laptop whose GPU sleeps: it is woken for who wants to use it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.bus import names
from gpusupervisor.simulation.engines.launch import disguised_python
from gpusupervisor.simulation.nvml import SimulatedGpu
from tests.daemon.conftest import hang_up
from tests.daemon.observer import observer_of
from tests.daemon.station import Station
from tests.gpu.machine import FakeSysfs

ENGINE = names.engine_path("ollama")
PCI = "0000:01:00.0"


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    sysfs = FakeSysfs(tmp_path / "sys")
    sysfs.add(PCI, "suspended")
    return sysfs


@pytest.fixture
def station(sysfs: FakeSysfs) -> Iterator[Station]:
    station = Station(SimulatedGpu())
    (station.card.directory / "sysfs").symlink_to(sysfs.root)
    home = station.folder / "ollama"
    executable = disguised_python(home / "bin" / "ollama")
    ollama = station.engine("ollama", "--port", "0", "--model=x:latest=3G", "--home", home, executable=executable)
    station.describe(
        {"ollama": f'[endpoint]\nurl = "{ollama.url}"\nown-port = true\n[[activity.probes]]\nkind = "ollama"\n'}
    )
    yield station
    station.close()


async def test_room_is_made_on_a_gpu_that_sleeps(station: Station, sysfs: FakeSysfs) -> None:
    await asyncio.to_thread(lambda: station.daemon().wait_ready())
    observer = await observer_of(station.bus.address)
    await observer.sees(names.ROOT, "Manager", "the GPU asleep", Driver=lambda state: state == "asleep")
    manager = f"{names.BUS_NAME}.Manager"
    asked = asyncio.create_task(observer.ask(names.ROOT, manager, "MakeRoom", "sst", "", "", 3 << 30))
    await asyncio.wait({asked}, timeout=0.5)
    assert not asked.done(), "it waits until the GPU is awake"
    sysfs.set_status(PCI, "active")
    assert (await asked)["outcome"] == "satisfied"
    await hang_up(observer)


async def test_a_model_is_loaded_on_a_gpu_that_sleeps(station: Station, sysfs: FakeSysfs) -> None:
    await asyncio.to_thread(lambda: station.daemon().wait_ready())
    observer = await observer_of(station.bus.address)
    await observer.sees(
        ENGINE, "Engine", "the model", Models=lambda all_of_them: [each["name"] for each in all_of_them] == ["x:latest"]
    )
    manager = await observer.properties(names.ROOT, "Manager")
    assert manager["Driver"] == "asleep"
    job = await observer.ask(ENGINE, f"{names.BUS_NAME}.Engine", "LoadModel", "sa{sv}", "x:latest", {})
    sysfs.set_status(PCI, "active")  # as the kernel does for who asks the driver
    ended = await observer.sees(job, "Job", "the end of the job", State=lambda state: state != "running")
    assert ended["State"] == "succeeded", ended["Detail"]
    await observer.sees(ENGINE, "Engine", "it is loaded", Models=lambda them: them[0]["state"] == "loaded")
    await hang_up(observer)
