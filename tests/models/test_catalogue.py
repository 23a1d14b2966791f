"""The catalogue over real HTTP: when it asks, what it keeps, and that nobody waits for anybody."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.model_apis import door as door_module
from gpusupervisor.models.catalogue import MOVE, REFRESH, RETRY, SOONEST, EngineFacts, EngineModels, ModelCatalogue
from gpusupervisor.models.model import Model
from gpusupervisor.models.needs import Needs, estimate
from tests.http_peer import Peer
from tests.models.builders import NoEvidence

SECOND = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.time = 0

    def now(self) -> int:
        return self.time

    def realtime(self, instant: int) -> int:
        return instant


class Evidence(NoEvidence):
    """What a test says was measured, and which files it says there are."""

    def __init__(self) -> None:
        self.needs: dict[str, int] = {}
        self.sizes: dict[str, int] = {}
        self.changes = 0

    def need(self, engine: str, model: str) -> int | None:
        return self.needs.get(model)

    def size(self, engine: str, model: str) -> int | None:
        return self.sizes.get(model)

    def revision(self) -> object:
        return self.changes


class Scene:
    def __init__(self, catalogue: ModelCatalogue, clock: Clock, peer: Peer, evidence: Evidence) -> None:
        self.evidence = evidence
        self.catalogue = catalogue
        self.clock = clock
        self.peer = peer
        self.facts = EngineFacts("ollama", peer.url, True, "", {}, "idle")

    async def follow(self, after: int = 0, **changes: object) -> int:
        """A tick; returns how many requests it led to."""
        self.clock.time += after
        self.facts = replace(self.facts, **changes)  # type: ignore[arg-type]
        before = len(self.peer.asked)
        self.catalogue.follow({"ollama": self.facts})
        await self.settle()
        return len(self.peer.asked) - before

    async def settle(self) -> None:
        looks = {task for task in asyncio.all_tasks() if task.get_name() == "models of ollama"}
        if looks:
            await asyncio.wait(looks)
        await asyncio.sleep(0)


@pytest.fixture
async def scene(peer: Peer, http: EngineHttp) -> AsyncIterator[Scene]:
    clock = Clock()
    evidence = Evidence()
    catalogue = ModelCatalogue(http, clock, Needs(evidence))
    peer.says("/api/tags", {"models": [{"name": "a:latest", "size": 5 << 30}]})
    peer.says("/api/ps", {"models": []})
    yield Scene(catalogue, clock, peer, evidence)
    await catalogue.close()


async def test_what_is_known_to_be_off_reaches_the_adapter_and_asks_anew(scene: Scene) -> None:
    assert await scene.follow() > 0
    assert await scene.follow(after=5_000_000) == 0
    assert await scene.follow(off=frozenset({"--enable-sleep-mode"})) > 0
    assert scene.catalogue.door("ollama").off == {"--enable-sleep-mode"}


async def test_it_asks_when_an_engine_comes_and_then_only_when_something_says_so(scene: Scene) -> None:
    assert await scene.follow() == 2
    assert [model.name for model in scene.catalogue.of("ollama").models] == ["a:latest"]
    known = scene.catalogue.of("ollama")
    for _ in range(50):
        assert await scene.follow(after=SECOND) == 0
    assert scene.catalogue.of("ollama") is known
    assert await scene.follow(after=REFRESH) == 2
    assert scene.catalogue.of("ollama") is known, "the same answer is the very same value"


@pytest.mark.parametrize("change", [{"signs": "busy"}, {"holdings": {"GPU-1": MOVE}}])
async def test_a_sign_of_change_is_looked_into_but_not_too_often(scene: Scene, change: dict[str, object]) -> None:
    await scene.follow()
    assert await scene.follow(after=SECOND // 10, **change) == 0
    assert await scene.follow(after=SOONEST) == 2
    assert await scene.follow(after=SOONEST, holdings={"GPU-1": MOVE + 5}) == (2 if "signs" in change else 0)


async def test_while_a_model_loads_it_is_followed(scene: Scene) -> None:
    scene.peer.says("/props", {"role": "router"})
    scene.peer.says("/models", {"data": [{"id": "a", "status": {"value": "loading"}}]})
    assert await scene.follow(engine="llama.cpp") == 2
    assert await scene.follow(after=SOONEST) == 2
    scene.peer.says("/models", {"data": [{"id": "a", "status": {"value": "loaded"}}]})
    assert await scene.follow(after=SOONEST) == 2
    assert await scene.follow(after=SOONEST) == 0


async def test_what_went_wrong_is_tried_again_sooner_and_what_was_known_stays(scene: Scene) -> None:
    await scene.follow()
    scene.peer.answers.clear()
    await scene.follow(after=REFRESH)
    known = scene.catalogue.of("ollama")
    assert [(model.name, model.state) for model in known.models] == [("a:latest", "unknown")]
    assert "which models there are is unknown" in known.problem
    scene.peer.says("/api/tags", {"models": [{"name": "a:latest", "size": 5 << 30}]})
    scene.peer.says("/api/ps", {"models": []})
    assert await scene.follow(after=RETRY) == 2
    assert (scene.catalogue.of("ollama").models[0].state, scene.catalogue.of("ollama").problem) == ("not-loaded", "")


async def test_an_unreachable_engine_is_not_asked_and_its_models_are_kept_without_a_state(scene: Scene) -> None:
    await scene.follow()
    assert await scene.follow(after=REFRESH, reachable=False, detail="nothing listens there") == 0
    known = scene.catalogue.of("ollama")
    assert [(model.name, model.state) for model in known.models] == [("a:latest", "unknown")]
    assert known.problem == "nothing listens there"
    await scene.follow()
    assert scene.catalogue.of("ollama") is known
    assert await scene.follow(after=SOONEST, reachable=True, detail="") == 2


async def test_one_that_does_not_answer_delays_nobody(
    scene: Scene, http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "TIMEOUT", 300_000)
    silent = Peer(silent={"/api/tags", "/api/ps"})
    await silent.start()
    slow = EngineFacts("ollama", silent.url, True, "", {}, "")
    scene.catalogue.follow({"ollama": scene.facts, "slow": slow})
    await scene.settle()
    assert scene.catalogue.of("ollama").models
    assert scene.catalogue.of("slow").problem == "not asked yet"
    known = await scene.catalogue.look("slow")
    assert "in time" in known.problem
    await silent.stop()


async def test_a_look_on_request_is_a_fresh_one(scene: Scene) -> None:
    await scene.follow()
    scene.peer.says("/api/tags", {"models": [{"name": "b:latest"}]})
    known = await scene.catalogue.look("ollama")
    assert [model.name for model in known.models] == ["b:latest"]
    assert (await scene.catalogue.look("nobody")).models == ()


async def test_an_engine_at_another_address_is_another(scene: Scene, http: EngineHttp) -> None:
    await scene.follow()
    other = Peer()
    await other.start()
    other.says("/api/tags", {"models": []})
    other.says("/api/ps", {"models": []})
    await scene.follow(endpoint=other.url)
    assert scene.catalogue.of("ollama").models == ()
    assert other.asked
    await other.stop()


async def test_one_that_is_gone_is_forgotten_and_its_look_ended(scene: Scene) -> None:
    scene.peer.silent = {"/api/tags"}
    scene.catalogue.follow({"ollama": scene.facts})
    await scene.peer.arrived.wait()
    scene.catalogue.follow({})
    assert scene.catalogue.of("ollama").models == ()


async def test_a_mistake_of_an_adapter_is_told_and_harms_nobody(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    await scene.follow()
    monkeypatch.setattr(type(scene.catalogue.api("ollama")), "look", broken)
    await scene.catalogue.look("ollama")
    assert "bug in gpusupervisor" in scene.catalogue.of("ollama").problem
    assert "ZeroDivisionError" in caplog.text


async def test_what_is_learned_and_forgotten_shows_at_once(scene: Scene) -> None:
    await scene.follow()
    known = scene.catalogue.of("ollama")
    scene.evidence.needs["a:latest"], scene.evidence.changes = 7 << 30, 1
    assert await scene.follow(after=1) == 0
    [model] = scene.catalogue.of("ollama").models
    assert (model.needs, model.needs_source) == (7 << 30, "measured")
    scene.evidence.needs.clear()
    scene.evidence.changes = 2
    assert await scene.follow(after=1) == 0
    assert scene.catalogue.of("ollama") == known


async def test_the_files_on_disk_tell_what_a_model_needs_whose_size_its_engine_does_not_tell(scene: Scene) -> None:
    scene.peer.says("/props", {"role": "router"})
    scene.peer.says("/models", {"data": [{"id": "a", "status": {"value": "unloaded"}}]})
    scene.evidence.sizes["a"] = 5 << 30
    await scene.follow(engine="llama.cpp")
    [model] = scene.catalogue.of("ollama").models
    assert (model.needs, model.needs_source) == (estimate(5 << 30), "estimated from its size")
    scene.peer.says("/models/checkpoints", ["a"])
    scene.peer.says("/models", ["checkpoints"])
    await scene.follow(after=SOONEST, engine="comfyui")
    assert [model.needs for model in scene.catalogue.of("ollama").models] == [None], "it loads none by name"


def test_latest_may_be_left_out_and_reasons_are_found() -> None:
    known = EngineModels((Model("a:latest"), Model("b")), "", ("list",), ("load: it cannot",))
    assert (known.find("a"), known.find("b"), known.find("c")) == (Model("a:latest"), Model("b"), None)
    assert (known.cannot("load"), known.cannot("unload")) == ("it cannot", "")
