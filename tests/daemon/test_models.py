"""Models of a simulated Ollama, loaded and unloaded by the real daemon; seen over D-Bus alone."""

import asyncio
import json
import re
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gpusupervisor.bus import names
from gpusupervisor.simulation.engines.launch import disguised_python
from gpusupervisor.simulation.nvml import SimulatedGpu
from tests.daemon.conftest import hang_up
from tests.daemon.observer import CallFailed, Observer, observer_of
from tests.daemon.station import Daemon, Engine, Station, wait_until

GIB = 1 << 30
CARD = SimulatedGpu(total=24 * GIB)
BIG, SMALL, HUGE = "big:latest", "small:latest", "huge:latest"
AT_ONCE = 'min-residency = "0"\ncooldown = "0"\nrelease-budget = 1000\n'
OLLAMA = AT_ONCE + '[endpoint]\nurl = "{url}"\n[[activity.probes]]\nkind = "ollama"\n'
COMFYUI = (
    AT_ONCE + 'floor = "500M"\n[match]\ncommand-lines = ["*engines.comfyui*"]\n'
    '[endpoint]\nurl = "{url}"\nport-flags = []\n[[activity.probes]]\nkind = "comfyui"\n'
)
ENGINE_PATH = names.engine_path("ollama")


@dataclass
class Scene:
    """Who is there."""

    station: Station
    ollama: Engine
    comfyui: Engine
    observer: Observer
    daemon: Daemon

    async def restart(self) -> None:
        """Another life of the service."""
        await asyncio.to_thread(self.station.dismiss, self.daemon)
        self.daemon = await asyncio.to_thread(lambda: self.station.daemon().wait_ready())

    async def engine(self) -> dict[str, Any]:
        return await self.observer.properties(ENGINE_PATH, "Engine")

    async def model(self, name: str) -> dict[str, Any]:
        listed = (await self.engine()).get("Models", [])
        return next((model for model in listed if model["name"] == name), {})

    async def sees_model(self, name: str, what: str, **wanted: object) -> dict[str, Any]:
        def as_wanted(models: list[dict[str, Any]]) -> bool:
            found = next((model for model in models if model["name"] == name), None)
            return found is not None and all(found[key] == value for key, value in wanted.items())

        await self.observer.sees(ENGINE_PATH, "Engine", what, Models=as_wanted)
        return await self.model(name)

    async def fill_comfyui(self, size: str) -> None:
        """ComfyUI is idle and holds so much."""
        prompt = {"1": {"class_type": "SimulatedSampler", "inputs": {"seconds": 0.05, "vram": size}}}
        await asyncio.to_thread(self.comfyui.post, "/prompt", {"prompt": prompt})
        await asyncio.to_thread(wait_until, self._queue_is_empty, "the end of ComfyUI's job")
        await self.observer.sees_tenant(
            "comfyui", "idle and full", Activity=lambda s: s == "idle", Holding=lambda held: held > 2 * GIB
        )

    def _queue_is_empty(self) -> bool:
        with urllib.request.urlopen(f"{self.comfyui.url}/prompt", timeout=5) as answer:
            return bool(json.load(answer)["exec_info"]["queue_remaining"] == 0)

    async def fail_loads(self, count: int) -> None:
        await asyncio.to_thread(self.ollama.post, "/simulation/out-of-memory", {"count": count})

    async def start_load(self, model: str) -> str:
        path: str = await self.observer.ask(ENGINE_PATH, f"{names.BUS_NAME}.Engine", "LoadModel", "sa{sv}", model, {})
        return path

    async def load(self, model: str) -> dict[str, Any]:
        """The job at its end."""
        return await self.end_of(await self.start_load(model))

    async def end_of(self, job: str) -> dict[str, Any]:
        return await self.observer.sees(job, "Job", "the end of the job", State=lambda state: state != "running")

    async def unload(self, model: str) -> dict[str, Any]:
        engines = f"{names.BUS_NAME}.Engines"
        result = await self.observer.ask(names.ENGINES_PATH, engines, "UnloadModel", "ss", "ollama", model)
        return dict(result)

    async def clear(self) -> None:
        """Nothing is loaded anywhere."""
        await self.fail_loads(0)
        for name in (BIG, SMALL):
            await asyncio.to_thread(self.ollama.post, "/api/generate", {"model": name, "keep_alive": 0})
        await asyncio.to_thread(self.comfyui.post, "/free", {"unload_models": True})
        for tenant in ("ollama", "comfyui"):
            await self.observer.sees_tenant(
                tenant, "calm", Activity=lambda s: s == "idle", Holding=lambda held: held < GIB
            )
        for name in (BIG, SMALL):
            await self.sees_model(name, "not loaded", state="not-loaded")


@pytest.fixture(scope="module")
def stage() -> Iterator[tuple[Station, Engine, Engine]]:
    station = Station(CARD)
    home = station.folder / "ollama"
    models = [f"--model={name}={size}" for name, size in ((BIG, "13G"), (SMALL, "3G"), (HUGE, "60G"))]
    ollama = station.engine(
        "ollama", "--port", "0", *models, "--home", home, "--load-time", "400ms", "--return-delay", "100ms",
        executable=disguised_python(home / "bin" / "ollama"),
    )  # fmt: skip
    comfyui = station.engine("comfyui", "--port", "0", "--return-delay", "100ms")
    station.describe({"ollama": OLLAMA.format(url=ollama.url), "comfyui": COMFYUI.format(url=comfyui.url)})
    yield station, ollama, comfyui
    station.close()


@pytest.fixture
async def scene(stage: tuple[Station, Engine, Engine]) -> AsyncIterator[Scene]:
    station, ollama, comfyui = stage
    # Of each test's own: it remembers who was asked, who had his memory back at once, and what loads took.
    for left in station.state.iterdir():
        left.unlink()
    daemon = await asyncio.to_thread(lambda: station.daemon().wait_ready())
    observer = await observer_of(station.bus.address)
    scene = Scene(station, ollama, comfyui, observer, daemon)
    await scene.clear()
    observer.signals.clear()
    yield scene
    await hang_up(observer)
    await asyncio.to_thread(station.dismiss, scene.daemon)


async def test_the_catalogue_says_what_there_is_and_what_fits(scene: Scene) -> None:
    await scene.fill_comfyui("14G")
    big = await scene.sees_model(BIG, "what fits beside ComfyUI", fit="after-release")
    assert "comfyui" in big["fit_detail"]
    huge = await scene.model(HUGE)
    assert huge["fit"] == "never"
    assert "comfyui" not in huge["fit_detail"]
    small = await scene.model(SMALL)
    assert (small["fit"], small["state"], small["size"]) == ("now", "not-loaded", 3 * GIB * 90 // 100)
    engine = await scene.engine()
    assert engine["Capabilities"] == ["list", "resident", "load", "unload"]
    assert engine["ModelsProblem"] == ""
    comfyui = await scene.observer.properties(names.engine_path("comfyui"), "Engine")
    assert any(limit.startswith("load: it loads a model when a prompt uses it") for limit in comfyui["Limits"])
    card = await scene.observer.gpu(CARD.uuid)
    assert 0 < card["Ceiling"] < card["MemoryTotal"]


async def test_a_load_makes_room_first_and_is_measured(scene: Scene) -> None:
    await scene.fill_comfyui("14G")
    job = await scene.load(BIG)
    assert job["State"] == "succeeded", job["Detail"]
    result = job["Result"]
    assert result["taken"] == 13 * GIB
    assert (result["gpu"], result["spilled"], result["retried"]) == (CARD.uuid, False, False)
    assert result["duration"] >= 400_000
    assert (await scene.observer.tenant("comfyui"))["Holding"] < GIB
    await scene.sees_model(
        BIG, "what was measured", state="loaded", held=13 * GIB, needs=13 * GIB, needs_source="measured"
    )
    kept = await scene.observer.sees(names.gpu_path(CARD.uuid), "Gpu", "nothing kept", Reservations=lambda r: not r)
    assert kept["Plan"] == ""


async def test_a_load_that_has_ended_shows_at_once(scene: Scene) -> None:
    assert (await scene.load(SMALL))["State"] == "succeeded"
    assert (await scene.model(SMALL))["state"] == "loaded"
    assert (await scene.observer.tenant("ollama"))["ActivityReason"] != "no model is loaded"


async def test_what_a_load_took_is_known_after_a_restart(scene: Scene) -> None:
    assert (await scene.load(SMALL))["State"] == "succeeded"
    await scene.restart()
    await scene.sees_model(SMALL, "what was measured", needs=3 * GIB, needs_source="measured")
    await scene.sees_model(BIG, "what never was", needs_source="estimated from its size")


async def test_the_command_line_follows_a_load_to_its_end(scene: Scene) -> None:
    command = (sys.executable, "-m", "gpusupervisor.cli.main")
    done = await scene.station.bus.run(*command, "load", "ollama", SMALL)
    assert done.status == 0, done.errors
    assert "loaded: 3.0 GiB of VRAM in " in done.output
    assert re.search(r" of about 3\.[06] GiB are loaded", done.errors), "as estimated, or as Ollama says once it has it"
    await scene.observer.sees_tenant("ollama", "idle again", Activity=lambda state: state == "idle")
    await scene.fail_loads(2)
    failed = await scene.station.bus.run(*command, "load", "ollama", BIG)
    assert failed.status == 1
    assert "out of memory twice" in failed.errors


async def test_a_load_of_what_is_loaded_is_no_load_and_teaches_nothing(scene: Scene) -> None:
    assert (await scene.load(SMALL))["Result"]["taken"] == 3 * GIB
    await scene.observer.sees_tenant("ollama", "idle", Activity=lambda state: state == "idle")
    again = await scene.load(SMALL)
    assert (again["State"], again["Result"]["taken"]) == ("succeeded", 0), again["Detail"]
    telemetry = f"{names.BUS_NAME}.Telemetry"
    events = await scene.observer.ask(names.TELEMETRY_PATH, telemetry, "Events", "ttsu", 0, 0, "load", 0)
    assert len(events) == 1
    [fact] = [each for each in await scene.observer.ask(names.TELEMETRY_PATH, telemetry, "Learned")
              if each["kind"] == "model-need"]  # fmt: skip
    assert (fact["tenant"], fact["model"], fact["value"]) == ("ollama", SMALL, 3 * GIB)


async def test_an_unload_is_measured(scene: Scene) -> None:
    assert (await scene.load(SMALL))["State"] == "succeeded"
    await scene.observer.sees_tenant("ollama", "idle", Activity=lambda state: state == "idle")
    result = await scene.unload(SMALL)
    assert result["freed"] == 3 * GIB
    assert (await scene.model(SMALL))["state"] == "not-loaded"


async def test_one_request_may_follow_the_other_at_once(scene: Scene) -> None:
    """That its memory has grown is our own doing, and no reason to refuse."""
    assert (await scene.load(SMALL))["State"] == "succeeded"
    second = await scene.load(BIG)
    assert second["State"] == "succeeded", second["Detail"]
    assert (await scene.unload(BIG))["freed"] == 13 * GIB


async def test_nothing_is_unloaded_from_an_engine_that_works(scene: Scene) -> None:
    body = json.dumps({"model": SMALL, "prompt": "x", "options": {"num_predict": 60}}).encode()
    request = urllib.request.Request(f"{scene.ollama.url}/api/generate", body, method="POST")
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=20) as answer:
        await asyncio.to_thread(answer.readline)
        await scene.observer.sees_tenant("ollama", "busy", Activity=lambda state: state == "busy")
        for ask in (scene.unload, scene.start_load):
            with pytest.raises(CallFailed) as failed:
                await ask(SMALL)
            assert failed.value.name == "Busy"


async def test_out_of_memory_once_is_tried_again(scene: Scene) -> None:
    await scene.fill_comfyui("9G")
    await scene.fail_loads(1)
    job = await scene.load(BIG)
    assert job["State"] == "succeeded", job["Detail"]
    assert job["Result"]["retried"] is True
    assert job["Result"]["taken"] == 13 * GIB
    assert (await scene.observer.tenant("comfyui"))["Holding"] < GIB, "there was room, but not as much as it took"


async def test_out_of_memory_twice_names_who_holds_the_memory(scene: Scene) -> None:
    await scene.fill_comfyui("6G")
    await scene.fail_loads(2)
    job = await scene.load(SMALL)
    assert job["State"] == "failed"
    assert "out of memory twice" in job["Detail"]
    assert "cudaMalloc failed" in job["Detail"]
    assert "comfyui" in job["Detail"]


async def test_a_model_that_can_never_fit_is_refused_before_anybody_is_asked(scene: Scene) -> None:
    await scene.fill_comfyui("6G")
    with pytest.raises(CallFailed) as failed:
        await scene.start_load(HUGE)
    assert failed.value.name == "WontFit"
    assert "24.0 GiB" in failed.value.text
    assert (await scene.observer.tenant("comfyui"))["Holding"] > 5 * GIB
    assert "ReleaseStarted" not in scene.observer.heard()


async def test_a_cancelled_load_is_undone(scene: Scene) -> None:
    job = await scene.start_load(BIG)
    await scene.observer.sees_tenant("ollama", "loading", Holding=lambda held: held > GIB)
    await scene.observer.ask(job, f"{names.BUS_NAME}.Job", "Cancel")
    assert (await scene.end_of(job))["State"] == "cancelled"
    await scene.observer.sees_tenant("ollama", "empty again", Holding=lambda held: held == 0)
    await scene.sees_model(BIG, "not loaded", state="not-loaded")


@pytest.mark.parametrize(
    ("engine", "model", "error"),
    [("nobody", "x", "NoSuchEngine"), ("ollama", "x", "NoSuchModel"), ("comfyui", "x", "NotSupported")],
)
async def test_what_cannot_be_loaded_is_told_at_once(scene: Scene, engine: str, model: str, error: str) -> None:
    with pytest.raises(CallFailed) as failed:
        await scene.observer.ask(names.ENGINES_PATH, f"{names.BUS_NAME}.Engines", "LoadModel", "ss", engine, model)
    assert failed.value.name == error


async def test_a_spilled_model_is_reported_and_loaded_anew_on_request(scene: Scene) -> None:
    await scene.fill_comfyui("14G")
    await asyncio.to_thread(scene.ollama.post, "/api/generate", {"model": BIG})  # nobody made room
    await scene.sees_model(BIG, "spilled", spilled=True)

    def tells(checks: list[dict[str, Any]]) -> bool:
        return any(check["id"] == "models-ollama" and "in system memory" in check["summary"] for check in checks)

    await scene.observer.sees(names.HEALTH_PATH, "Health", "the check", Checks=tells)
    await scene.observer.sees_tenant("ollama", "idle", Activity=lambda state: state == "idle")
    job = await scene.load(BIG)
    assert job["State"] == "succeeded", job["Detail"]
    await scene.sees_model(BIG, "whole", spilled=False, held=13 * GIB)


async def test_a_spilled_model_is_unloaded_when_idle_where_its_tenant_wants_that(
    stage: tuple[Station, Engine, Engine], scene: Scene
) -> None:
    station, ollama, _ = stage
    await scene.fill_comfyui("14G")
    await asyncio.to_thread(scene.ollama.post, "/api/generate", {"model": BIG})
    await scene.sees_model(BIG, "spilled", spilled=True)
    station.describe({"ollama": "reload-spilled = true\n" + OLLAMA.format(url=ollama.url)})
    try:
        await scene.observer.manager("Reload")
        await asyncio.to_thread(scene.comfyui.post, "/free", {"unload_models": True})
        await scene.sees_model(BIG, "unloaded for its next request", state="not-loaded")
    finally:
        station.describe({"ollama": OLLAMA.format(url=ollama.url)})
        await scene.observer.manager("Reload")
