"""Models on D-Bus: what is shown, what is asked of polkit, and jobs that load."""

import asyncio
from dataclasses import replace

import pytest

from gpusupervisor.bus import names
from gpusupervisor.bus.model_views import model_list
from gpusupervisor.bus.views import engine_view, gpu_view
from gpusupervisor.clock import UNKNOWN
from gpusupervisor.errors import WontFit
from gpusupervisor.models.fit import Fit
from gpusupervisor.models.fit_book import CardFit
from gpusupervisor.models.load_speed import LoadEstimate
from gpusupervisor.models.model import Model
from gpusupervisor.state import State
from tests.bus.builders import CARD, GIB, make_state
from tests.bus.conftest import Client, PrivateBus, Starter
from tests.bus.fakes import FakeController, FixedAuthority

MODELS = (
    Model(
        "llama3:8b",
        "loaded",
        5 * GIB,
        6 * GIB,
        "reported",
        4 * GIB,
        spilled=True,
        cached_problem="the helper is not there",
    ),
    Model("b", load_estimate=LoadEstimate(3_000_000, "RAM")),
)
FITS = (Fit("now", "there is room"), Fit("unknown", "how much VRAM it needs is not known"))
ENGINE_PATH = names.engine_path("ollama")


def with_models(state: State) -> State:
    shown = replace(
        state.engines["ollama"], models=MODELS, fits=FITS, models_problem="part is unknown",
        capabilities=("list", "load"), limits=("unload: it has no such call",),
    )  # fmt: skip
    return replace(state, engines={"ollama": shown}, cards={CARD: CardFit(20 * GIB, "1 model fits but")})


def test_models_are_shown_with_what_is_known() -> None:
    state = with_models(make_state())
    shown = engine_view(state, "ollama")
    first, second = (
        {key: value.value for key, value in entry.items()} for entry in model_list(state.engines["ollama"])
    )
    assert first == {
        "name": "llama3:8b", "state": "loaded", "size": 5 * GIB, "needs": 6 * GIB, "needs_source": "reported",
        "held": 4 * GIB, "spilled": True, "pinned": False, "remote": False,
        "cached": UNKNOWN, "cached_problem": "the helper is not there", "load_estimate": "",
        "fit": "now", "fit_detail": "there is room",
    }  # fmt: skip
    assert second["load_estimate"] == "from RAM, about 3s"
    assert (second["needs"], second["size"], second["fit"]) == (UNKNOWN, UNKNOWN, "unknown")
    assert (shown["ModelsProblem"], shown["Capabilities"]) == ("part is unknown", ("list", "load"))


def test_the_list_is_made_once_for_as_long_as_nothing_changes() -> None:
    status = with_models(make_state()).engines["ollama"]
    again = replace(status, version="2")
    assert model_list(status) is model_list(again)
    assert model_list(replace(status, models=(Model("c"),), fits=())) is not model_list(status)


def test_models_that_were_not_reckoned_yet_are_shown_all_the_same() -> None:
    status = replace(with_models(make_state()).engines["ollama"], fits=FITS[:1])
    assert [entry["fit"].value for entry in model_list(status)] == ["now", "unknown"]


def test_a_card_shows_its_ceiling() -> None:
    state = with_models(make_state())
    shown = gpu_view(state, state.sample.gpus[0], lambda _instant: 0)
    assert (shown["Ceiling"], shown["FitSummary"]) == (20 * GIB, "1 model fits but")
    bare = gpu_view(make_state(), state.sample.gpus[0], lambda _instant: 0)
    assert (bare["Ceiling"], bare["FitSummary"]) == (None, "")


async def test_loading_is_a_job_with_a_result(
    start: Starter, shared_bus: PrivateBus, controller: FakeController, client: Client
) -> None:
    authority = FixedAuthority()
    service = await start(lambda _bus: authority)
    service.publish(with_models(make_state()))
    made = await shared_bus.call(ENGINE_PATH, "Engine", "LoadModel", "sa{sv}", "llama3:8b", "1", "needs", "t", "7")
    [path] = made.json
    assert controller.calls[-1] == ("load_work", "ollama", "llama3:8b", 7)
    assert authority.asked == [(names.ACTION_LOAD_MODEL, {"tenant": "ollama", "model": "llama3:8b"})]
    await client.wait_for(lambda signals: any(each.path == path and each.member == "Finished" for each in signals))
    [finished] = [each for each in client.signals if each.path == path and each.member == "Finished"]
    assert finished.body[0] == "succeeded"
    result = {key: value.value for key, value in finished.body[2].items()}
    assert (result["taken"], result["speed"], result["retried"]) == (4 * GIB, 2 * GIB, True)


async def test_by_name_on_the_collection(start: Starter, shared_bus: PrivateBus, controller: FakeController) -> None:
    service = await start()
    service.publish(with_models(make_state()))
    [models] = (await shared_bus.call(names.ENGINES_PATH, "Engines", "Models", "s", "ollama")).json
    assert [model["name"]["data"] for model in models] == ["llama3:8b", "b"]
    result = await shared_bus.call(names.ENGINES_PATH, "Engines", "UnloadModel", "ss", "ollama", "b")
    assert result.json[0]["freed"]["data"] == 4 * GIB
    await shared_bus.call(names.ENGINES_PATH, "Engines", "LoadModel", "ss", "ollama", "b")
    assert [call[:3] for call in controller.calls] == [("unload_model", "ollama", "b"), ("load_work", "ollama", "b")]


async def test_a_model_that_is_being_loaded_is_not_loaded_twice_and_another_one_waits(
    start: Starter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    service = await start()
    service.publish(with_models(make_state()))
    controller.gate.clear()
    load = (names.ENGINES_PATH, "Engines", "LoadModel", "ss")
    both = await asyncio.gather(*(shared_bus.call(*load, "ollama", "b") for _ in range(2)))
    assert [made.json for made in both] == [[names.job_path(1)]] * 2
    refused = await shared_bus.call(*load, "ollama", "llama3:8b")
    assert "ollama is loading b (job 1)" in refused.errors
    assert [call[0] for call in controller.calls] == ["load_work"]
    assert (await shared_bus.call(*load, "comfyui", "b")).json == [names.job_path(2)], "another engine may"
    controller.gate.set()


async def test_a_refusal_is_told_before_there_is_a_job(
    start: Starter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    service = await start()
    service.publish(with_models(make_state()))
    controller.failure = WontFit("it needs 30 GiB")
    failed = await shared_bus.call(ENGINE_PATH, "Engine", "LoadModel", "sa{sv}", "b", "0")
    assert failed.status != 0
    assert "it needs 30 GiB" in failed.errors
    assert (await shared_bus.call(names.JOBS_PATH, "Jobs", "List")).json == [[]]


async def test_who_may_not_is_refused_before_anything(
    start: Starter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    service = await start(lambda _bus: FixedAuthority(allow=False))
    service.publish(with_models(make_state()))
    for member, arguments in (("LoadModel", ("sa{sv}", "b", "0")), ("UnloadModel", ("s", "b"))):
        assert (await shared_bus.call(ENGINE_PATH, "Engine", member, *arguments)).status != 0
    assert controller.calls == []


@pytest.mark.parametrize(
    "arguments",
    [("sa{sv}", "", "0"), ("sa{sv}", "x" * 600, "0"), ("sa{sv}", "b", "1", "nees", "t", "5"),
     ("sa{sv}", "b", "1", "needs", "s", "5"), ("sa{sv}", "b", "1", "needs", "t", "0")],
)  # fmt: skip
async def test_what_has_no_meaning_is_an_invalid_argument(
    start: Starter, shared_bus: PrivateBus, controller: FakeController, arguments: tuple[str, ...]
) -> None:
    service = await start()
    service.publish(with_models(make_state()))
    assert (await shared_bus.call(ENGINE_PATH, "Engine", "LoadModel", *arguments)).status != 0
    assert controller.calls == []


async def test_listeners_are_told_by_name_that_models_changed(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(make_state())
    await client.settle()
    client.signals.clear()
    service.publish(with_models(make_state()))
    await client.wait_for(
        lambda signals: any(s.member == "PropertiesChanged" and "Models" in s.body[2] for s in signals)
    )
    service.publish(with_models(make_state()))
    await client.settle()
    told = [s for s in client.signals if s.path == ENGINE_PATH and "Models" in s.body[2]]
    assert len(told) == 1
    assert "Models" not in told[0].body[1]
