"""Loads and unloads in a world of a test's own: what is asked of whom, in which order, and what errors say."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpusupervisor.arbitration.plan import Request
from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.engines.model_apis.listing import Reply
from gpusupervisor.errors import Blocked, Busy, LoadFailed, NotReclaimable, ReleaseFailed, WontFit
from gpusupervisor.models import load as load_module
from gpusupervisor.models import unload as unload_module
from gpusupervisor.models.catalogue import EngineModels
from gpusupervisor.models.fit import Manners
from gpusupervisor.models.load import Load, LoadResult
from gpusupervisor.models.model import Model
from gpusupervisor.models.unload import unload
from tests.arbitration.builders import CARD, GIB, situation, tenant
from tests.models.builders import model

DONE, OUT_OF_MEMORY = Reply("done"), Reply("out-of-memory", "cudaMalloc failed")
COMFYUI = tenant("comfyui", 8)


class Clock:
    def now(self) -> int:
        return int(asyncio.get_running_loop().time() * 1_000_000)

    def realtime(self, instant: int) -> int:
        return instant


@dataclass
class World:
    """One card, an engine of 0 GiB, and what a test adds."""

    now: Situation
    replies: list[Reply] = field(default_factory=lambda: [DONE])
    listings: list[str] = field(default_factory=list)
    """States of the model, one per look; the last stays."""
    done: list[str] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    holding: int = 0
    grows_to: int = 4 * GIB
    shrinks_to: int = 0
    learned: int = 0
    other: str = "not-loaded"
    cannot: tuple[str, ...] = ()
    hang: bool = False
    failed: str = ""

    async def look(self, engine: str) -> Situation:
        return self.now

    async def measure(self, engine: str) -> Mapping[str, Measurement]:
        return {CARD: Measurement(self.holding, 24 * GIB - self.holding, {})}

    async def make_room(self, request: Request) -> None:
        self.done.append(f"room for {request.need / GIB:g}")

    def keep_room(self, gpu: str, engine: str, size: int) -> None:
        self.kept.append(size)

    async def list_models(self, engine: str) -> EngineModels:
        state = self.listings.pop(0) if len(self.listings) > 1 else self.listings[0] if self.listings else "loaded"
        listed = model(state=state, failed=self.failed)
        return EngineModels((listed, model("other", state=self.other)), "", (), self.cannot)

    async def load(self, engine: str, name: str) -> Reply:
        self.done.append(f"load {name}")
        if self.hang:
            self.holding = GIB
            await asyncio.Event().wait()
        reply = self.replies.pop(0)
        if reply.outcome in ("done", "started"):
            self.holding = self.grows_to
        return reply

    async def unload(self, engine: str, name: str) -> Reply:
        self.done.append(f"unload {name}")
        self.holding = self.shrinks_to
        return self.replies.pop(0)

    def measured(self, engine: str, learned: Model, size: int) -> None:
        self.learned = size


def world(*others: object, free: float = 20, **more: object) -> World:
    engine = tenant("ollama", 0, working_priority=50)
    return World(situation(engine, *others, free=free), **more)  # type: ignore[arg-type]


async def run(scene: World, wanted: Model | None = None, manners: Manners = Manners()) -> LoadResult:  # noqa: B008
    said: list[tuple[int, str]] = []
    load = Load("ollama", wanted or model(), manners, scene, Clock())
    return await load.run(lambda progress, detail, result=None: said.append((progress, detail)))


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POLL", "LIST_EVERY", "CLEANING_UP", "SETTLE"):
        monkeypatch.setattr(load_module, name, 0.02)
    monkeypatch.setattr(unload_module, "POLL", 0.01)
    monkeypatch.setattr(unload_module, "SETTLE", 200_000)
    monkeypatch.setattr(unload_module, "QUIET", 20_000)


async def test_with_room_there_nobody_is_asked_and_it_is_kept_until_the_end() -> None:
    scene = world()
    result = await run(scene)
    assert scene.done == ["load m"]
    assert (result.taken, result.gpu, result.retried) == (4 * GIB, CARD, False)
    assert (scene.kept[0], scene.kept[-1]) == (4 * GIB, 0)
    assert scene.learned == 4 * GIB


async def test_room_is_made_before_the_engine_is_asked() -> None:
    scene = world(COMFYUI, free=2)
    await run(scene)
    assert scene.done == ["room for 4", "load m"]


async def test_what_is_too_large_or_blocked_is_refused_before_anything_is_done() -> None:
    for wanted, error in ((model(needs=30), WontFit), (model(needs=9), Blocked)):
        scene = world(replace(COMFYUI, activity="busy", priority=50), free=2)
        with pytest.raises(error):
            await run(scene, wanted)
        assert scene.done == []


async def test_out_of_memory_leads_to_one_reclaim_and_one_retry() -> None:
    scene = world(COMFYUI, free=4, replies=[OUT_OF_MEMORY, DONE])
    result = await run(scene)
    assert scene.done == ["load m", "room for 5", "load m"], "a quarter more than was thought"
    assert result.retried


async def test_the_reclaim_goes_no_further_than_can_be_reached() -> None:
    scene = world(tenant("comfyui", 0.5), free=4, replies=[OUT_OF_MEMORY, DONE])
    await run(scene)
    assert scene.done == ["load m", "room for 4.5", "load m"]


async def test_out_of_memory_twice_names_the_holders() -> None:
    scene = world(replace(COMFYUI, activity="busy", priority=50), free=4, replies=[OUT_OF_MEMORY, OUT_OF_MEMORY])
    with pytest.raises(Blocked) as failed:
        await run(scene)
    assert "out of memory twice while loading m: cudaMalloc failed" in str(failed.value)
    assert "comfyui (8.0 GiB, busy)" in str(failed.value)
    assert scene.done == ["load m", "load m"]
    assert scene.kept[-1] == 0


async def test_an_unknown_need_makes_no_room_until_the_engine_has_none() -> None:
    scene = world(COMFYUI, free=1, replies=[OUT_OF_MEMORY, DONE])
    await run(scene, model(needs=None))
    assert scene.done == ["load m", "room for 9", "load m"]


async def test_another_error_is_told_in_the_engines_words() -> None:
    scene = world(replies=[Reply("refused", "invalid file magic")])
    with pytest.raises(LoadFailed) as failed:
        await run(scene)
    assert str(failed.value) == "ollama did not load m: invalid file magic."


async def test_a_load_in_the_background_is_followed_to_its_end() -> None:
    scene = world(replies=[Reply("started")], listings=["not-loaded", "loading", "loading", "loaded"])
    assert (await run(scene)).taken == 4 * GIB


async def test_a_load_in_the_background_that_fails_is_told() -> None:
    for listings, why in ((["loading", "loading", "not-loaded"], ""), (["not-loaded"], "exit code 1")):
        scene = world(replies=[Reply("started")], listings=listings, failed=why)
        with pytest.raises(LoadFailed):
            await run(scene)


EXITED = "its process ended with exit code 1"


async def test_a_load_that_failed_with_too_little_free_was_probably_out_of_memory() -> None:
    """llama.cpp's router tells only the exit code."""
    scene = world(COMFYUI, free=4, replies=[Reply("started"), Reply("started")])
    scene.listings, scene.failed, scene.grows_to = ["not-loaded"], EXITED, round(23.75 * GIB)
    real, said = scene.load, []

    async def second_succeeds(engine: str, name: str) -> Reply:
        if "load m" in scene.done:
            scene.listings, scene.grows_to = ["loaded"], 4 * GIB
        return await real(engine, name)

    scene.load = second_succeeds  # type: ignore[method-assign]
    load = Load("ollama", model(), Manners(), scene, Clock())
    result = await load.run(lambda progress, detail, result=None: said.append(detail))
    assert scene.done == ["load m", "room for 5", "load m"]
    assert result.retried
    told = next(each for each in said if "probably" in each)
    assert told == (
        "ollama failed, probably for lack of memory (its process ended with exit code 1, with 256.0 MiB of VRAM free): "
        "making more room for a second try"
    )


async def test_twice_probably_out_of_memory_names_the_holders() -> None:
    scene = world(replace(COMFYUI, activity="busy", priority=50), free=4, replies=[Reply("started")] * 2)
    scene.listings, scene.failed, scene.grows_to = ["not-loaded"], EXITED, round(23.75 * GIB)
    with pytest.raises(Blocked) as failed:
        await run(scene)
    assert str(failed.value).startswith(
        "ollama failed twice to load m, probably for lack of memory: its process ended with exit code 1, "
        "with 256.0 MiB of VRAM free. "
    )
    assert "comfyui (8.0 GiB, busy)" in str(failed.value)


async def test_a_load_that_failed_with_enough_free_is_not_tried_again() -> None:
    scene = world(replies=[Reply("started")], listings=["not-loaded"], failed=EXITED, grows_to=0)
    with pytest.raises(LoadFailed) as failed:
        await run(scene)
    assert str(failed.value) == "ollama did not load m: its process ended with exit code 1, with 24.0 GiB of VRAM free."
    assert scene.done == ["load m"]


async def test_less_free_than_it_still_needs_is_too_little() -> None:
    """Somebody was faster than the engine, after the room was found."""
    scene = world(free=20, replies=[Reply("failed", "status 500")] * 2, holding=5 * GIB)
    with pytest.raises(Blocked, match=r"probably for lack of memory: status 500, with 19\.0 GiB of VRAM free"):
        await run(scene, model(needs=20))


async def test_what_the_engine_would_have_given_up_for_it_was_not_missing() -> None:
    for manners, error in ((Manners(replaces=True), LoadFailed), (Manners(), Blocked)):
        engine = tenant("ollama", 14, working_priority=50)
        scene = World(situation(engine, free=10), replies=[Reply("failed", "bad file")] * 2, holding=14 * GIB)
        scene.now = situation(engine, free=16 if error is Blocked else 10)
        with pytest.raises(error):
            await run(scene, model(needs=16), manners)


async def test_a_load_in_the_background_whose_engine_falls_silent_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_module, "SILENCE", 0.05)
    scene = world(replies=[Reply("started")], listings=["not-loaded", "loading", "unknown"])
    with pytest.raises(LoadFailed, match="it no longer lists it"):
        await run(scene)


async def test_what_the_engine_does_not_list_is_not_loaded() -> None:
    scene = world(listings=["not-loaded"], grows_to=0)
    with pytest.raises(LoadFailed, match="it says that it is done, but does not list it as loaded"):
        await run(scene)


async def test_a_cancelled_load_is_unloaded_again_if_the_engine_can() -> None:
    for cannot, undone in (((), ["unload m"]), (("unload: never",), [])):
        scene = world(hang=True, cannot=cannot)
        task = asyncio.create_task(run(scene))
        while "load m" not in scene.done:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        assert scene.done == ["load m", *undone]
        assert scene.kept[-1] == 0


async def test_what_was_loaded_before_a_cancelled_load_stays() -> None:
    scene = world(hang=True)
    task = asyncio.create_task(run(scene, model(state="loaded")))
    while "load m" not in scene.done:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (task.cancelled(), scene.done) == (True, ["load m"])


async def test_nothing_is_learned_when_another_model_came_or_went_meanwhile() -> None:
    scene = world()
    real = scene.load

    async def evicting(engine: str, name: str) -> Reply:
        scene.other = "loaded"
        return await real(engine, name)

    scene.load = evicting  # type: ignore[method-assign]
    await run(scene)
    assert scene.learned == 0


@pytest.mark.parametrize("activity", ["busy", "stuck"])
async def test_a_busy_engine_is_not_disturbed(activity: str) -> None:
    scene = World(situation(tenant("ollama", 0, activity), free=20))
    with pytest.raises(Busy):
        await run(scene)
    assert scene.done == []


async def test_one_that_replaces_what_it_has_must_be_known_to_be_idle() -> None:
    scene = World(situation(tenant("ollama", 0, "unknown"), free=20))
    with pytest.raises(Busy):
        await run(scene, manners=Manners(replaces=True))
    assert (await run(scene)).taken == 4 * GIB


@pytest.mark.parametrize("state", ["loaded", "loading", "unknown"])
async def test_one_that_is_empty_has_nothing_that_a_load_could_interrupt(state: str) -> None:
    empty = World(situation(tenant("ollama", 0, "unknown"), free=20), listings=["not-loaded", "loaded"])
    assert (await run(empty, manners=Manners(replaces=True))).taken == 4 * GIB
    holding = World(situation(tenant("ollama", 1, "unknown"), free=20), listings=["not-loaded"])
    used = World(situation(tenant("ollama", 0, "unknown"), free=20), listings=["not-loaded"], other=state)
    blind = World(situation(tenant("ollama", 0, "unknown"), free=20), cannot=("resident: it does not say",))
    for scene in (holding, used, blind):
        with pytest.raises(Busy):
            await run(scene, manners=Manners(replaces=True))
        assert scene.done == []


def loaded(**more: Any) -> World:
    return world(holding=4 * GIB, listings=["loaded", "not-loaded"], **more)


HELD = model(state="loaded", held=4 * GIB)


async def test_an_unload_is_believed_when_it_was_measured() -> None:
    result = await unload("ollama", HELD, loaded(), Clock())
    assert (result.freed, result.detail) == (4 * GIB, "4.0 GiB came back")


async def test_an_unload_that_brought_nothing_back_failed() -> None:
    with pytest.raises(ReleaseFailed) as failed:
        await unload("ollama", HELD, loaded(shrinks_to=4 * GIB), Clock())
    assert "no memory came back" in str(failed.value)


async def test_an_unload_whose_model_stays_listed_failed() -> None:
    scene = loaded()
    scene.listings = ["loaded"]
    with pytest.raises(ReleaseFailed, match="still lists it"):
        await unload("ollama", HELD, scene, Clock())


async def test_one_that_is_not_loaded_needs_no_unload() -> None:
    scene = world(listings=["not-loaded"])
    assert (await unload("ollama", HELD, scene, Clock())).detail == "it was not loaded"
    assert scene.done == []


async def test_a_refused_unload_says_why() -> None:
    with pytest.raises(ReleaseFailed, match="it is in use"):
        await unload("ollama", HELD, loaded(replies=[Reply("refused", "it is in use")]), Clock())


async def test_a_model_that_held_no_vram_is_unloaded_all_the_same() -> None:
    scene = world(holding=0, listings=["loaded", "not-loaded"])
    result = await unload("ollama", model(state="loaded", held=0), scene, Clock())
    assert result.freed == 0
    assert "held hardly any VRAM" in result.detail


@pytest.mark.parametrize(("activity", "error"), [("busy", Busy), ("unknown", NotReclaimable), ("stuck", Busy)])
async def test_nothing_is_unloaded_from_one_that_is_not_known_to_be_idle(activity: str, error: type[Exception]) -> None:
    scene = World(situation(tenant("ollama", 4, activity), free=20))
    with pytest.raises(error):
        await unload("ollama", HELD, scene, Clock())
    assert scene.done == []
