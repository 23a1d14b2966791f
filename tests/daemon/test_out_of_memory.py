"""A client of Ollama's own port asks for a model that does not fit: the load fails hard while somebody rests."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gpusupervisor.simulation.engines.launch import disguised_python
from tests.daemon.conftest import hang_up
from tests.daemon.observer import Observer, observer_of
from tests.daemon.station import Daemon, Engine, Station, wait_until

GIB = 1 << 30
MODEL = "llama3.1:70b"
PROMPT = {"model": MODEL, "prompt": "x", "stream": False, "options": {"num_predict": 1}}
AS_SHIPPED = 'reserve = "0"\n'
"""Looks every second, and every three seconds while nothing happens."""


@asynccontextmanager
async def stage(station: Station, load_time: str, settings: str) -> AsyncIterator[tuple[Engine, Daemon, Observer]]:
    """ComfyUI at rest with 16.5 GiB of 24, an Ollama whose model of 19 GiB does not spill, and a daemon."""
    home = station.folder / "ollama"
    program = await asyncio.to_thread(disguised_python, home / "bin" / "ollama")
    ollama = await asyncio.to_thread(
        station.engine, "ollama", "--port", "0", f"--model={MODEL}=19G", "--home", home, "--load-time", load_time,
        "--whole", executable=program,
    )  # fmt: skip
    comfyui = await asyncio.to_thread(station.engine, "comfyui", "--port", "0", "--return-delay", "100ms")
    station.describe(
        {
            "ollama": f'[endpoint]\nurl = "{ollama.url}"\n',
            "comfyui": f'[match]\ncommand-lines = ["*engines.comfyui*"]\n[endpoint]\nurl = "{comfyui.url}"\n'
            "port-flags = []\n",
        }
    )
    station.settings.write_text(settings)
    daemon = station.daemon()
    await asyncio.to_thread(daemon.wait_ready)
    observer = await observer_of(station.bus.address)
    try:
        prompt = {"1": {"class_type": "SimulatedSampler", "inputs": {"seconds": 0.2, "vram": "16G"}}}
        await asyncio.to_thread(comfyui.post, "/prompt", {"prompt": prompt})
        await observer.sees_tenant(
            "comfyui", "at rest with its model", Activity=lambda a: a == "idle", Holding=lambda held: held > 16 * GIB,
            Reclaimable=lambda size: size > 15 * GIB,
        )  # fmt: skip
        observer.signals.clear()
        yield ollama, daemon, observer
    finally:
        await hang_up(observer)


async def fails(ollama: Engine) -> None:
    """Have the client's request fail as the driver fails it."""
    answer = await asyncio.to_thread(ollama.post, "/api/generate", PROMPT)
    assert "out of memory" in answer["error"]


async def journalled(daemon: Daemon, part: str) -> str:
    """The first line of the daemon's log with a text in it."""
    return await asyncio.to_thread(
        wait_until, lambda: next((line for line in daemon.log.splitlines() if part in line), ""), part
    )


@pytest.mark.parametrize("load_time", ["4s", "2s"])
async def test_a_failed_load_is_told_room_is_made_and_the_same_request_succeeds(
    lonely_station: Station, load_time: str
) -> None:
    async with stage(lonely_station, load_time, AS_SHIPPED) as (ollama, daemon, observer):
        await fails(ollama)
        failed_at = time.monotonic()
        line = await journalled(daemon, "ran out of GPU memory")
        told_after = time.monotonic() - failed_at
        assert re.search(r"ollama ran out of GPU memory: .*At rest meanwhile: comfyui \(16\.\d GiB\)", line), line
        _, plan = await observer.hears("ReleasePlanned", "a plan for it")
        assert (plan["cause"], plan["beneficiary"]) == ("starved", "ollama")
        assert [step["tenant"] for step in plan["steps"]] == ["comfyui"]
        step = await observer.hears("ReleaseStep", "its outcome")
        assert (step[1], step[2]) == ("comfyui", "freed")
        answer = await asyncio.to_thread(ollama.post, "/api/generate", PROMPT)
        assert answer["done_reason"] == "stop"
        await observer.sees_tenant("ollama", "with its model", Holding=lambda held: held == 19 * GIB)
        counters = (await observer.root())["Counters"]
        assert (counters["asked"], counters["out-of-memory"]) == (1, 1)
        assert told_after < 10, "two seconds where nothing else keeps the machine busy"


async def test_in_observe_only_a_failed_load_is_told_and_nobody_is_asked(lonely_station: Station) -> None:
    async with stage(lonely_station, "2s", AS_SHIPPED + "automatic = false\n") as (ollama, daemon, observer):
        await fails(ollama)
        await journalled(daemon, "ran out of GPU memory")
        _, plan = await observer.hears("ReleasePlanned", "what would be done")
        assert [step["tenant"] for step in plan["steps"]] == ["comfyui"]
        comfyui = await observer.tenant("comfyui")
        assert comfyui["Holding"] > 16 * GIB
        assert "ReleaseStarted" not in observer.heard()
