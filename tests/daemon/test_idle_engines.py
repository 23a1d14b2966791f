"""Engines that were started by hand and hold no VRAM: found by the real daemon among all processes of this machine."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from gpusupervisor.bus import names
from gpusupervisor.simulation.engines.launch import disguised_python, environment
from tests.daemon.conftest import hang_up
from tests.daemon.observer import Observer, observer_of
from tests.daemon.station import Daemon, Engine, Station

UNMASKED = "priority = 40\n"
"""Over the shipped file, so that this one counts."""


@dataclass
class Scene:
    """Two Ollamas and what only looks like one, all there before the daemon; on ports that nobody else has."""

    station: Station
    first: Engine
    second: Engine
    observer: Observer
    daemon: Daemon

    async def sees_settings(self, engine: Engine, **wanted: str) -> str:
        """Wait until an engine is shown with these settings of its environment; returns its name."""
        name = f"ollama@{port_of(engine)}"

        def are_there(listed: list[dict[str, str]]) -> bool:
            found = {each["name"]: each["value"] for each in listed if each["source"] == "environment"}
            return wanted.items() <= found.items()

        path = names.engine_path(name)
        shown = await self.observer.sees(path, "Engine", f"settings of {name}", Settings=are_there)
        assert shown["Endpoint"] == engine.url
        await self.observer.sees(path, "Engine", "it is reached", Reachable=bool, SettingsProblem=lambda text: not text)
        return name

    async def engines(self) -> set[str]:
        return set(await self.observer.ask(names.ENGINES_PATH, f"{names.BUS_NAME}.Engines", "List"))


def port_of(engine: Engine) -> str:
    return engine.url.rpartition(":")[2]


async def port_told_by(process: "subprocess.Popen[str]") -> str:
    """Where Python's own HTTP server says that it listens."""
    assert process.stdout is not None
    return (await asyncio.to_thread(process.stdout.readline)).split(" port ")[1].split()[0]


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[Station, Engine, Engine]]:
    station = Station()
    station.describe({"ollama": UNMASKED, "llama-server": UNMASKED})
    ollama = disguised_python(station.folder / "bin" / "ollama")
    disguised_python(station.folder / "bin" / "llama-server")
    arguments = ("ollama", "--port", "0", "--home", station.folder)
    first = station.engine(*arguments, executable=ollama, OLLAMA_KEEP_ALIVE="1h")
    second = station.engine(*arguments, executable=ollama, OLLAMA_KEEP_ALIVE="2h")
    yield station, first, second
    station.close()


@pytest.fixture
async def scene(stage: tuple[Station, Engine, Engine]) -> AsyncIterator[Scene]:
    station, first, second = stage
    daemon = await asyncio.to_thread(lambda: station.daemon().wait_ready())
    scene = Scene(station, first, second, await observer_of(station.bus.address), daemon)
    yield scene
    await hang_up(scene.observer)
    await asyncio.to_thread(station.dismiss, scene.daemon)


async def test_idle_engines_on_ports_of_their_own_show_what_they_are_set_to(scene: Scene) -> None:
    name = await scene.sees_settings(scene.first, OLLAMA_KEEP_ALIVE="1h")
    assert (await scene.observer.tenant(name))["Holding"] == 0
    await scene.sees_settings(scene.second, OLLAMA_KEEP_ALIVE="2h")


async def test_they_show_it_again_after_a_restart_of_the_supervisor(scene: Scene) -> None:
    await scene.sees_settings(scene.first, OLLAMA_KEEP_ALIVE="1h")
    await asyncio.to_thread(scene.station.dismiss, scene.daemon)
    scene.daemon = await asyncio.to_thread(lambda: scene.station.daemon().wait_ready())
    await scene.sees_settings(scene.first, OLLAMA_KEEP_ALIVE="1h")


async def test_one_that_is_started_later_is_found_at_the_next_scan_and_a_client_never(scene: Scene) -> None:
    """A client does not listen or, if it does, not where it says that its server is."""
    name = await scene.sees_settings(scene.first, OLLAMA_KEEP_ALIVE="1h")
    before = await scene.engines()
    client = {**environment(), "OLLAMA_HOST": f"127.0.0.1:{port_of(scene.first)}", "OLLAMA_KEEP_ALIVE": "0"}
    pipe = subprocess.PIPE
    programs = f"{scene.station.folder}/bin"
    silent = [f"{programs}/ollama", "-c", "input()", "run", "qwen"]
    listening = [f"{programs}/ollama", "-u", "-m", "http.server", "--bind", "127.0.0.1", "0"]
    llama = [f"{programs}/llama-server", *listening[1:]]
    with (
        subprocess.Popen(silent, env=client, stdin=pipe) as one,
        subprocess.Popen(listening, env=client, stdout=pipe, text=True) as other,
        subprocess.Popen(llama, env=environment(), stdout=pipe, text=True) as server,
    ):
        own = await port_told_by(other)
        port = await port_told_by(server)
        path = names.engine_path(f"llama-server@{port}")
        await scene.observer.sees(path, "Engine", "the new one", Endpoint=lambda url: url.endswith(f":{port}"))
        await asyncio.to_thread(scene.daemon.wait_ticks, 3)
        found = await scene.engines() - before
        for process in (one, other, server):
            process.kill()
    assert f"llama-server@{port}" in found
    assert f"ollama@{own}" not in found
    await scene.sees_settings(scene.first, OLLAMA_KEEP_ALIVE="1h")
    assert (await scene.observer.properties(names.engine_path(name), "Engine"))["Endpoint"] == scene.first.url
