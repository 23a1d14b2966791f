"""What a tick makes of engines' models: an engine that loads one by itself is measured."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpusupervisor.arbitration.arbiter import Arbiter
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.errors import Busy
from gpusupervisor.keepers.load_books import LoadBooks
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.keepers.model_keeper import ModelKeeper
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.models.growth import REST
from gpusupervisor.models.model import Model
from gpusupervisor.state import EngineStatus
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.service import Telemetry
from gpusupervisor.tenants.activity.verdict import ActivityState
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec
from tests.arbitration.builders import GIB, situation, tenant
from tests.arbitration.fake_world import SECOND, FakeWorld
from tests.arbitration.seen import definition, doing, process, seen
from tests.http_peer import Peer

LOADED = {"name": "a", "size": 5 * GIB, "size_vram": 5 * GIB, "context_length": 8192}
WATCHED = ActivitySpec((ProbeSpec("ollama"), ProbeSpec("vram", idle_after=10 * SECOND)))


class Scene:
    """An Ollama with one model."""

    def __init__(self, http: EngineHttp, peer: Peer) -> None:
        self.peer = peer
        self.world = FakeWorld(situation())
        self.telemetry = Telemetry(None, Limits(0, 0), self.world)
        self.arbiter = Arbiter(self.world, self.world, lambda event: None, asyncio.ensure_future, 0)
        books = LoadBooks(ResidencyKeeper(self.world, ModelFacts(self.telemetry)), self.telemetry)
        self.keeper = ModelKeeper(http, self.world, self.world, self.arbiter, asyncio.ensure_future, books)

    async def tick(
        self, held: float, *loaded: dict[str, object], after: int = REST, activity: ActivityState = "idle"
    ) -> Model:
        """What is shown of the model when so much time has passed and the engine was looked at, where that was due."""
        self.peer.says("/api/ps", {"models": list(loaded)})
        self.world.time += after
        processes = (process(7, held, "ollama"),) if held else ()
        definitions = {"ollama": definition("ollama", activity=WATCHED)}
        tenants = {"ollama": doing(activity)}
        now = seen(*processes, tenants=tenants, definitions=definitions, free=20 - held, now=self.world.time)
        status = EngineStatus("ollama", "ollama", "Ollama", self.peer.url, True, "", "")
        self.keeper.dress({"ollama": status}, now, self.arbiter.situation(now, 0))
        if looks := {task for task in asyncio.all_tasks() if task.get_name() == "models of ollama"}:
            await asyncio.wait(looks)
        await asyncio.sleep(0)
        dressed = self.keeper.dress({"ollama": status}, now, self.arbiter.situation(now, 0))
        return dressed["ollama"].models[0]


@pytest.fixture
async def scene(peer: Peer, http: EngineHttp) -> AsyncIterator[Scene]:
    peer.says("/api/tags", {"models": [{"name": "a", "size": 4 * GIB}]})
    scene = Scene(http, peer)
    yield scene
    await scene.keeper.close()


async def test_what_an_engine_loads_by_itself_is_measured_and_shown_at_once(scene: Scene) -> None:
    await scene.tick(0)
    assert (await scene.tick(0)).needs_source == "estimated from its size"
    assert (await scene.tick(5.5, LOADED)).needs_source == "reported"
    await scene.tick(5.5, LOADED)
    model = await scene.tick(5.5, LOADED)
    assert (model.needs, model.needs_source) == (5.5 * GIB, "measured")
    [fact] = scene.telemetry.learned()
    assert (fact.kind, fact.model, fact.source) == (
        "model-need", "a", "what its last load took, with 8192 tokens of context",
    )  # fmt: skip


async def test_what_something_of_ours_loads_is_not_measured_twice(scene: Scene) -> None:
    await scene.tick(0)
    with scene.arbiter.using("ollama", "a is being loaded"):
        await scene.tick(0)
        await scene.tick(5.5, LOADED)
    for _ in range(3):
        await scene.tick(5.5, LOADED)
    assert scene.telemetry.learned() == ()


async def test_what_is_forgotten_does_not_show_any_more(scene: Scene) -> None:
    scene.telemetry.start()
    scene.telemetry.learn_model_need("ollama", "a", 9 * GIB, None)
    assert (await scene.tick(0)).needs == 9 * GIB
    await scene.telemetry.forget("ollama", "model-need")
    assert (await scene.tick(0, after=1)).needs_source == "estimated from its size"


async def test_a_load_may_follow_a_load_of_ours_for_as_long_as_a_probe_still_sees_that_one(scene: Scene) -> None:
    scene.peer.says("/api/generate", {"done": True})
    await scene.tick(5.5, LOADED)
    scene.world.situation = situation(tenant("ollama", held=5.5))
    await scene.keeper.load_work("ollama", "a", 0)(lambda *_: None)
    await scene.tick(5.5, LOADED, after=12 * SECOND, activity="busy")
    scene.keeper.load_work("ollama", "a", 0)
    await scene.tick(5.5, LOADED, after=4 * SECOND, activity="busy")
    with pytest.raises(Busy):
        scene.keeper.load_work("ollama", "a", 0)
