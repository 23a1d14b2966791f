"""Machines that differ, through the whole daemon: what a person sees of each, and that nothing of it is untrue."""

import asyncio
import re
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from gpusupervisor.simulation.nvml import GIB, Allocation
from gpusupervisor.simulation.worlds import WORLDS, lay_out
from tests.cli.conftest import COMMAND
from tests.daemon.station import Station

HELD = 2 * GIB


class Screens(NamedTuple):
    """What the command line shows, blanks and line ends as one blank each."""

    status: str
    health: str
    fans: str
    profile: str


class Expected(NamedTuple):
    """Parts of screens; what begins with "!" must not be there."""

    status: tuple[str, ...]
    health: tuple[str, ...] = ("ok: healthy",)
    fans: tuple[str, ...] = ("the driver has no fans to control on this GPU",)
    profile: tuple[str, ...] = ()


WHO = "2.0 GiB unmanaged"
EXPECTED = {
    "spark": Expected(
        ("NVIDIA GB10 2.0 GiB of 119.7 GiB held, 108.7 GiB free", WHO, "host 9.0 GiB", "! driver 9"),
        profile=("power-limit - unsupported",),
    ),
    "orin": Expected(
        ("Orin (nvgpu) 0 B of 61.3 GiB held", "does not list the processes of this GPU, as on Jetson", "!sleeps"),
        ("degraded: Orin (nvgpu)", "nothing can be done with this driver", "!reboot", "!update"),
        profile=("!sleeps", "temperature - unsupported", "power-limit - unsupported"),
    ),
    "gh200": Expected(
        ("NVIDIA GH200 480GB 7.1 GiB of 95.6 GiB held", WHO, "unattributed 5.1 GiB"),
        ("degraded", "Linux manages this GPU's memory as a NUMA node", "drop_caches"),
        profile=("power-limit - supported 200 to 900 W",),
    ),
    "wsl2": Expected(
        ("3.5 GiB of 8.0 GiB held", "in a WSL2 guest the driver does not tell", "!unmanaged pid"),
        ("degraded:", "run the programs and the supervisor on Linux itself", "!DeviceAllow", "!update the"),
        profile=("power-limit - read-only 5 to 80 W",),
    ),
    "mig-unprivileged": Expected(
        ("NVIDIA A100-SXM4-40GB failing", "MIG is enabled"),
        ("failed: No GPU can be read", "disable MIG", "!reboot", "!DeviceAllow", "!Xid"),
    ),
    "vgpu": Expected(
        ("GRID A100D-20C 3.8 GiB of 20.0 GiB held", WHO),
        profile=("temperature - unsupported", "power-limit - unsupported"),
    ),
    "tesla-no-fans": Expected(
        ("Tesla P40 2.0 GiB of 22.5 GiB held", WHO),
        profile=("power-limit - supported 125 to 250 W", "graphics clocks can be locked on Volta and later"),
    ),
    "laptop-dgpu": Expected(
        ("RTX 3060 Laptop GPU 2.0 GiB of 6.0 GiB held", WHO),
        profile=("power-limit - unsupported",),
    ),
    "old-470": Expected(
        ("driver 470.256.02", "GTX 970 2.0 GiB of 3.9 GiB held", WHO),
        fans=("fans can be set from driver 515.43 on", "0 automatic 35 %"),
        profile=("clock offsets can be set from driver 555.42 on",),
    ),
    "old-390": Expected(
        ("driver 390.157", "Quadro K4000 2.0 GiB of 2.9 GiB held", WHO),
        fans=("fans can be set from driver 515.43 on", "0 automatic 35 %"),
    ),
}
LASTING = {"gh200"}
"""Of which a check says something only when it has lasted for long: not waited for here."""


@pytest.fixture(params=sorted(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[tuple[str, Station]]:
    """A station of that kind, on whose card a process holds 2 GiB."""
    station = Station()
    card = lay_out(station.card.directory, request.param)
    holder = subprocess.Popen(["sleep", "600"])
    Allocation(card.directory, holder.pid).hold(card.read().gpus[0].uuid, HELD)
    yield request.param, station
    holder.kill()
    holder.wait()
    station.close()


async def test_what_a_person_sees_of_a_machine_of_this_kind(world: tuple[str, Station]) -> None:
    name, station = world
    await asyncio.to_thread(station.helper)
    daemon = await asyncio.to_thread(station.daemon().wait_ready)
    uuid = WORLDS[name]().gpus[0].uuid

    async def shows(*command: str) -> str:
        shown = await station.bus.run(*COMMAND, *command)
        assert not shown.errors
        return re.sub(r"\s+", " ", shown.output)

    async with asyncio.timeout(30):
        while "temperature" not in await shows("profile"):
            await asyncio.sleep(0.2)
    screens = Screens(await shows(), await shows("health"), await shows("fans"), await shows("profile"))
    for screen in Screens._fields:
        shown: str = getattr(screens, screen)
        if name in LASTING and screen == "health":
            continue
        for part in getattr(EXPECTED[name], screen):
            there = part.removeprefix("!") in shown
            assert there is not part.startswith("!"), f"{screen}: {part!r}\n{shown}"
        assert "nvml" not in shown
        assert "16.0 EiB" not in shown
    assert uuid.removeprefix("GPU-")[:8] in await shows("health")
    assert "Traceback" not in daemon.log
    assert (await asyncio.to_thread(daemon.terminate))[0] == 0


def test_every_machine_of_this_kind_is_described() -> None:
    assert EXPECTED.keys() == WORLDS.keys()
