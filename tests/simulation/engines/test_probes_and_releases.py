"""Probes and releases of the supervisor against engines that run: one hand-over after the other."""

import asyncio
import json
from pathlib import Path

import pytest

from gpusupervisor.clock import SystemClock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.simulation.engines.launch import Engine
from gpusupervisor.tenants.activity.probes.base import Probe, ProbeContext
from gpusupervisor.tenants.activity.probes.build import build_probe
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.census import Holder, TenantPresence
from gpusupervisor.tenants.definition import ForEach, ProbeSpec, ReleaseMethod, VersionRequirement
from gpusupervisor.tenants.release.http_release import Place, request_release
from tests.simulation.engines.conftest import CardView, Start

GIB, MIB = 1 << 30, 1 << 20
SOON = 10_000_000
UNLOAD = ReleaseMethod(
    "http",
    "POST",
    "/api/generate",
    json={"model": "{item}", "keep_alive": 0},
    for_each=ForEach("/api/ps", "models[].name"),
    success_when="done_reason == 'unload'",
    version=VersionRequirement("/api/version", "version", "0.3.11"),
)
FREE = ReleaseMethod("http", "POST", "/free", json={"unload_models": True, "free_memory": True})


class Watcher:
    """A probe that looks at an engine through what the card lists."""

    def __init__(self, probe: Probe, engine: Engine, http: EngineHttp, view: CardView) -> None:
        self._probe, self._engine, self._http, self._view = probe, engine, http, view
        self._clock = SystemClock()
        self.offset = 0
        """Microseconds by which time has moved on for the probe."""

    async def look(self) -> Observation:
        now = self._clock.now() + self.offset
        holders = tuple(
            Holder("GPU-1", process.pid, process.used, _identity(process.pid), "app", "", process.sm)
            for process in self._view.processes()
        )
        held = {"GPU-1": sum(holder.used or 0 for holder in holders)}
        who = TenantPresence("app", "app", self._engine.url, holders, held)
        return await self._probe.observe(ProbeContext(now, self._clock.realtime(now), who, now, self._http))

    async def until(self, state: str) -> Observation:
        async with asyncio.timeout(10):
            while (seen := await self.look()).state != state:
                await asyncio.sleep(0.01)
        return seen


def _identity(pid: int) -> ProcessIdentity:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return ProcessIdentity(ProcessKey(pid, 1), 1, 0, "x", command_line=tuple(words))


def watcher(kind: str, engine: Engine, http: EngineHttp, view: CardView) -> Watcher:
    probe = build_probe(ProbeSpec(kind))
    assert probe is not None
    return Watcher(probe, engine, http, view)


async def post(http: EngineHttp, engine: Engine, path: str, body: object) -> None:
    answer = await http.request("POST", engine.url, path, timeout=SOON, body=json.dumps(body).encode())
    assert answer.ok


async def test_ollama_from_loading_to_a_deferred_release(start: Start, http: EngineHttp, view: CardView) -> None:
    ollama = await start("ollama", "--model", "big=30G", "--load-time", "400ms", "--tokens-per-second", "50")
    seen = watcher("ollama", ollama, http, view)
    assert (await seen.look()).reason == "no model is loaded"
    work = {"model": "big", "prompt": "x", "stream": False, "options": {"num_predict": 40}}
    working = asyncio.create_task(post(http, ollama, "/api/generate", work))
    loading = await seen.until("busy")
    assert "loaded" in loading.reason
    assert loading.reason.endswith("; part of it did not fit into VRAM")
    assert loading.placement is not None
    assert loading.placement.wanted == 30 * GIB
    await view.until(lambda: any(process.sm for process in view.processes()))
    assert (await seen.look()).reason.startswith("a request is running on big:latest")
    answer = await request_release(UNLOAD, Place(ollama.url), http)
    assert answer.accepted
    assert view.held() > 0, "accepted is not released"
    assert (await seen.look()).state == "busy"
    await working
    await view.until(lambda: view.held() == 0)
    assert (await seen.look()).state == "idle"
    assert (await request_release(UNLOAD, Place(ollama.url), http)).outcome == "nothing-to-release"


async def test_a_loaded_ollama_that_does_nothing_is_idle_and_gives_back(
    start: Start, http: EngineHttp, view: CardView
) -> None:
    ollama = await start("ollama", "--model", "small=6G", "--load-time", "50ms")
    await post(http, ollama, "/api/generate", {"model": "small"})
    seen = await watcher("ollama", ollama, http, view).look()
    assert (seen.state, seen.reason) == ("idle", "small:latest is loaded and no request is running")
    assert (await request_release(UNLOAD, Place(ollama.url), http)).accepted
    await view.until(lambda: view.held() == 0)


async def test_an_old_ollama_is_not_asked(start: Start, http: EngineHttp, view: CardView) -> None:
    ollama = await start("ollama", "--model", "small=6G", "--version", "0.3.9")
    await post(http, ollama, "/api/generate", {"model": "small"})
    assert (await request_release(UNLOAD, Place(ollama.url), http)).outcome == "refused"
    assert view.held() == 6 * GIB


async def test_comfyui_busy_idle_and_given_back(start: Start, http: EngineHttp, view: CardView) -> None:
    comfy = await start("comfyui")
    seen = watcher("comfyui", comfy, http, view)
    assert (await seen.look()).state == "idle"
    node = {"class_type": "SimulatedSampler", "inputs": {"seconds": 0.3, "vram": "8G"}}
    await post(http, comfy, "/prompt", {"prompt": {"1": node}})
    assert (await seen.look()).reason == "its queue reports 1 prompt"
    await seen.until("idle")
    assert view.held() == 500 * MIB + 8 * GIB
    assert (await request_release(FREE, Place(comfy.url), http)).accepted
    await view.until(lambda: view.held() == 500 * MIB)


async def test_a_dead_comfyui_worker_goes_on_reporting_its_prompt(
    start: Start, http: EngineHttp, view: CardView
) -> None:
    comfy = await start("comfyui")
    seen = watcher("comfyui", comfy, http, view)
    await post(http, comfy, "/prompt", {"prompt": {"1": {"class_type": "SimulatedDefect"}}})
    told = []
    for _ in range(9):
        told.append(await seen.look())
        seen.offset += 10_000_000
    assert {each.state for each in told} == {"busy"}
    assert len({each.progressed_at for each in told}) == 1
    assert not any(process.sm for process in view.processes())


@pytest.mark.parametrize(("seconds", "state", "outcome"), [(0.0, "idle", "accepted"), (5.0, "busy", "refused")])
async def test_an_application_described_as_data(
    start: Start, http: EngineHttp, view: CardView, seconds: float, state: str, outcome: str
) -> None:
    app = await start("third_app")
    if seconds:
        await post(http, app, "/work", {"seconds": seconds})
    spec = ProbeSpec("http", get="/status", busy_when="jobs > `0`")
    probe = build_probe(spec)
    assert probe is not None
    assert (await Watcher(probe, app, http, view).look()).state == state
    drop = ReleaseMethod("http", "POST", "/drop", success_when="dropped")
    assert (await request_release(drop, Place(app.url), http)).outcome == outcome
    if outcome == "accepted":
        await view.until(lambda: view.held() == 200 * MIB)
