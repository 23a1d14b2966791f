"""The demo as people start it: every scene really happens, and nothing is left behind."""

import asyncio
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from gpusupervisor.simulation.engines.launch import start_engine
from gpusupervisor.simulation.nvml import SimulatedCard

SCENES = (
    "1. An LLM server holds 13 GiB that it is not using",
    "2. An image job fills the card and needs more",
    "3. An application that nobody has described takes 9 GiB",
    "4. A file describes it",
    "5. A node kills ComfyUI's worker",
    "Everything above really happened",
)
WITNESSED = (
    "ollama is idle and holds 13.0 GiB",
    "came back, measured by NVML",
    "comfyui grew into the room that was kept for it",
    "nothing was done, and renderbox",
    "Renderbox is a tenant now",
    "renderbox gave",
    "comfyui is claimed",
    "comfyui is stuck",
    "nobody was asked for memory on behalf of a job that never ran",
    "health: degraded",
)
MARK = "GPUSUPERVISOR_TEST_DEMO"
"""In the environment of everything that the demo starts."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the demo makes what it needs: with a short name, as a socket's address has 107 characters."""
    with tempfile.TemporaryDirectory(prefix="demo-") as name:
        yield Path(name)


async def _start(folder: Path, *arguments: str) -> Process:
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "PYTHONUNBUFFERED": "1",
        MARK: str(folder),
    }  # fmt: skip
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpusupervisor.simulation.demo", *arguments,
        env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def _left_behind(folder: Path) -> list[str]:
    """Processes that the demo started and that live, and what is in its temporary folder."""
    found = [str(path) for path in folder.iterdir()]
    for process in psutil.process_iter():
        try:
            variables: Mapping[str, str] = process.environ()
            if variables.get(MARK) == str(folder):
                found.append(str(process))
        except psutil.Error:
            continue
    return found


@pytest.mark.timeout(360)
async def test_the_whole_story_happens_and_nothing_is_left_behind(folder: Path) -> None:
    demo = await _start(folder, "--once")
    output, errors = await demo.communicate()
    text = output.decode()
    assert (demo.returncode, errors.decode()) == (0, ""), text
    positions = [text.index(scene) for scene in SCENES]
    assert positions == sorted(positions)
    for seen in WITNESSED:
        assert seen in text
    assert "\x1b" not in text, "colours are for terminals"
    assert _left_behind(folder) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_ended_in_the_middle_it_leaves_nothing_behind(number: signal.Signals, folder: Path) -> None:
    demo = await _start(folder)
    assert demo.stdout is not None
    async with asyncio.timeout(60):
        while SCENES[0].encode() not in await demo.stdout.readline():
            pass
        demo.send_signal(number)
        output, errors = await demo.communicate()
    assert "Traceback" not in errors.decode(), errors.decode()
    assert SCENES[-1] not in output.decode()
    assert demo.returncode != 0, "only a whole story ends with 0"
    assert _left_behind(folder) == []


async def test_ended_while_the_stage_is_set_up_it_leaves_nothing_behind(folder: Path) -> None:
    demo = await _start(folder, "--once")
    assert demo.stdout is not None
    async with asyncio.timeout(60):
        assert await demo.stdout.readline()
        demo.terminate()
        _, errors = await demo.communicate()
    assert "Traceback" not in errors.decode(), errors.decode()
    assert _left_behind(folder) == []


async def test_an_engine_whose_start_is_interrupted_is_ended(tmp_path: Path) -> None:
    await asyncio.to_thread(SimulatedCard(tmp_path).write_card)
    others = set(psutil.Process().children())  # of fixtures that last longer than this test
    starting = asyncio.ensure_future(start_engine("desktop", "--card", tmp_path))
    async with asyncio.timeout(10):
        while not (children := set(psutil.Process().children()) - others):
            await asyncio.sleep(0)
    starting.cancel()
    await asyncio.wait({starting})
    assert starting.cancelled()
    assert not any(child.is_running() for child in children)


async def test_another_machine_is_shown_instead_of_the_story(folder: Path) -> None:
    demo = await _start(folder, "--once", "--card", "tesla-no-fans")
    output, errors = await demo.communicate()
    assert demo.returncode == 0, errors.decode()
    text = output.decode()
    for part in ("$ gpusupervisorctl status", "Tesla P40", "the driver has no fans to control", "125 to 250 W"):
        assert part in text
    assert _left_behind(folder) == []


async def test_without_a_bus_daemon_it_says_what_to_install(tmp_path: Path) -> None:
    environment = {"PATH": "/nonexistent", "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    demo = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gpusupervisor.simulation.demo", "--once",
        env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await demo.communicate()
    assert demo.returncode == 1
    assert "apt-get install dbus" in errors.decode()
    assert list(tmp_path.iterdir()) == []
