"""Nothing is configured but where the simulated engines are: chat, then an image, with the shipped definitions."""

import asyncio
from collections.abc import Iterator

import pytest

from gpusupervisor.simulation.engines.launch import disguised_python
from tests.daemon.observer import Observer
from tests.daemon.station import Daemon, Engine, Station

GIB = 1 << 30
MODEL = "llama3.1:70b"


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    one = Station()
    yield one
    one.close()


@pytest.fixture(scope="module")
def engines(station: Station) -> tuple[Engine, Engine]:
    """Ollama and ComfyUI. Of their definitions only the addresses, and by what they are recognised, are ours."""
    home = station.folder / "ollama"
    ollama = station.engine(
        "ollama", "--port", "0", "--model", f"{MODEL}=19G", "--home", home, "--load-time", "100ms",
        executable=disguised_python(home / "bin" / "ollama"),
    )  # fmt: skip
    comfyui = station.engine("comfyui", "--port", "0", "--return-delay", "100ms")
    station.describe(
        {
            "ollama": f'[endpoint]\nurl = "{ollama.url}"\n',
            "comfyui": f'[match]\ncommand-lines = ["*engines.comfyui*"]\n[endpoint]\nurl = "{comfyui.url}"\n'
            "port-flags = []\n",
        }
    )
    return ollama, comfyui


@pytest.fixture(scope="module")
def daemon(station: Station, engines: tuple[Engine, Engine]) -> Daemon:
    return station.daemon().wait_ready()


def sampler(seconds: float, vram: str) -> dict[str, object]:
    return {"class_type": "SimulatedSampler", "inputs": {"seconds": seconds, "vram": vram}}


async def test_an_image_job_gets_the_memory_of_a_chat_that_rests(
    engines: tuple[Engine, Engine], daemon: Daemon, observer: Observer
) -> None:
    ollama, comfyui = engines
    body = {"model": MODEL, "prompt": "x", "stream": False, "options": {"num_predict": 1}}
    await asyncio.to_thread(ollama.post, "/api/generate", body)
    await observer.sees_tenant("ollama", "at rest", Activity=lambda state: state == "idle", Holding=lambda n: n > GIB)
    await observer.sees_tenant("comfyui", "at rest", Activity=lambda state: state == "idle")
    observer.signals.clear()
    prompt = {"1": sampler(8, "16G"), "2": sampler(4, "16G")}
    await asyncio.to_thread(comfyui.post, "/prompt", {"prompt": prompt})
    _, plan = await observer.hears("ReleasePlanned", "a plan for what nobody has measured before")
    assert (plan["cause"], plan["beneficiary"]) == ("starved", "comfyui")
    assert [step["tenant"] for step in plan["steps"]] == ["ollama"]
    step = await observer.hears("ReleaseStep", "its outcome")
    assert (step[1], step[2]) == ("ollama", "freed")
    shown = await observer.sees_tenant("comfyui", "grown into the room", Holding=lambda held: held > 16 * GIB)
    assert shown["Activity"] == "busy"
    await observer.sees_tenant("comfyui", "relieved", Starved=lambda starved: not starved)
    counters = (await observer.properties("/org/gpusupervisor1", "Manager"))["Counters"]
    assert counters["asked"] == 1
    assert counters["pressed"] >= 1
    starved = [line for line in daemon.log.splitlines() if "comfyui is starved" in line]
    assert len(starved) == 1
