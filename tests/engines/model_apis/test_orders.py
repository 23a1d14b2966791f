"""How engines are asked to load and unload."""

import asyncio
import json

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.model_apis import text
from gpusupervisor.engines.model_apis.door import Door
from gpusupervisor.engines.model_apis.known import MODEL_APIS, model_api
from tests.http_peer import Peer, reply

LOADS = [
    ("ollama", "POST", "/api/generate", {"model": "m", "stream": False}, "done"),
    ("llama.cpp", "POST", "/models/load", {"model": "m"}, "started"),
    ("llama-swap", "GET", "/upstream/m/health", None, "done"),
    ("vllm", "POST", "/wake_up", None, "done"),
    ("localai", "POST", "/backend/load", {"model": "m"}, "done"),
    ("lm-studio", "POST", "/api/v1/models/load", {"model": "m"}, "done"),
    ("automatic1111", "POST", "/sdapi/v1/options", {"sd_model_checkpoint": "m"}, "done"),
    ("tabbyapi", "POST", "/v1/model/load", {"model_name": "m"}, "done"),
    ("text-generation-webui", "POST", "/v1/internal/model/load", {"model_name": "m"}, "done"),
    ("speaches", "POST", "/api/ps/m", None, "done"),
    ("lemonade", "POST", "/v1/load", {"model_name": "m"}, "done"),
]  # fmt: skip
UNLOADS = [
    ("llama.cpp", "POST", "/models/unload", {"model": "m"}, "started"),
    ("llama-swap", "POST", "/api/models/unload/m", None, "done"),
    ("vllm", "POST", "/sleep", None, "done"),
    ("localai", "POST", "/backend/shutdown", {"model": "m"}, "done"),
    ("automatic1111", "POST", "/sdapi/v1/unload-checkpoint", {}, "done"),
    ("tabbyapi", "POST", "/v1/model/unload", None, "done"),
    ("koboldcpp", "POST", "/api/admin/reload_config", {"filename": "unload_model"}, "started"),
    ("text-generation-webui", "POST", "/v1/internal/model/unload", None, "done"),
    ("speaches", "DELETE", "/api/ps/m", None, "done"),
    ("lemonade", "POST", "/v1/unload", {"model_name": "m"}, "done"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "verb", "path", "body", "outcome"), LOADS)
async def test_a_load_is_asked_in_the_engines_way(
    peer: Peer, http: EngineHttp, engine: str, verb: str, path: str, body: object, outcome: str
) -> None:
    peer.says(path, {})
    reply = await model_api(engine).load(Door(http, peer.url), "m")
    assert reply.outcome == outcome
    [asked] = peer.asked
    assert (asked.verb, asked.target) == (verb, path)
    assert (json.loads(asked.body) if asked.body else None) == body


@pytest.mark.parametrize(("engine", "verb", "path", "body", "outcome"), UNLOADS)
async def test_an_unload_is_asked_in_the_engines_way(
    peer: Peer, http: EngineHttp, engine: str, verb: str, path: str, body: object, outcome: str
) -> None:
    peer.says(path, {})
    reply = await model_api(engine).unload(Door(http, peer.url), "m")
    assert reply.outcome == outcome
    [asked] = peer.asked
    assert (asked.verb, asked.target.partition("?")[0]) == (verb, path)
    assert (json.loads(asked.body) if asked.body else None) == body


@pytest.mark.parametrize(
    ("last", "outcome", "detail"),
    [
        ('{"model_type":"model","module":33,"modules":33,"status":"finished"}', "done", ""),
        (
            '{"error":{"message":"CUDA out of memory. Tried to allocate 2.00 GiB"}}',
            "out-of-memory",
            "CUDA out of memory",
        ),
        ('{"error":{"message":"No such quantization"}}', "refused", "No such quantization"),
    ],
)
async def test_tabbyapi_tells_of_a_failed_load_in_the_last_of_its_events(
    peer: Peer, http: EngineHttp, last: str, outcome: str, detail: str
) -> None:
    events = f'data: {{"model_type":"model","module":1,"modules":33,"status":"processing"}}\r\n\r\ndata: {last}\r\n\r\n'
    peer.answers["/v1/model/load"] = reply(events.encode(), content_type="text/event-stream")
    answer = await model_api("tabbyapi").load(Door(http, peer.url), "m")
    assert answer.outcome == outcome
    assert detail in answer.detail


async def test_a_model_that_sleeps_below_a_router_is_woken_by_a_question(peer: Peer, http: EngineHttp) -> None:
    peer.says("/models/load", {"error": {"code": 400, "message": "model is already running"}}, 400)
    peer.says("/slots", [{"id": 0, "is_processing": False}])
    reply = await model_api("llama.cpp").load(Door(http, peer.url), "org/m:Q4")
    assert reply.outcome == "done"
    assert [request.target for request in peer.asked] == ["/models/load", "/slots?model=org%2Fm%3AQ4"]


async def test_koboldcpp_says_no_with_status_200(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/admin/reload_config", {"success": False})
    koboldcpp, door = model_api("koboldcpp"), Door(http, peer.url)
    assert (await koboldcpp.load(door, "m.kcpps")).outcome == "refused"
    assert (await koboldcpp.unload(door, "m")).outcome == "refused"


@pytest.mark.parametrize(("result", "outcome"), [("koboldcpp/other-name", "done"), ("inactive", "failed")])
async def test_koboldcpp_is_followed_until_it_is_up_again(
    peer: Peer, http: EngineHttp, monkeypatch: pytest.MonkeyPatch, result: str, outcome: str
) -> None:
    monkeypatch.setattr(text, "RESTARTING", 0.01)
    peer.says("/api/admin/reload_config", {"success": True})
    load = asyncio.create_task(model_api("koboldcpp").load(Door(http, peer.url), "m.kcpps"))
    while peer.paths.count("/api/v1/model") < 2:  # it does not answer yet
        await asyncio.sleep(0.01)
    peer.says("/api/v1/model", {"result": result})
    assert (await load).outcome == outcome
    assert json.loads(peer.asked[0].body) == {"filename": "m.kcpps"}


async def test_vllm_sleeps_by_query(peer: Peer, http: EngineHttp) -> None:
    peer.says("/sleep", {})
    await model_api("vllm").unload(Door(http, peer.url), "m")
    assert peer.paths == ["/sleep?level=1"]


async def test_ollama_unloads_by_the_name_under_which_it_is_loaded(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/tags", {"models": [{"name": "a:latest", "digest": "d"}, {"name": "b:latest", "digest": "d"}]})
    peer.says("/api/ps", {"models": [{"name": "b:latest", "digest": "d"}]})
    peer.says("/api/generate", {"done_reason": "unload"})
    assert (await model_api("ollama").unload(Door(http, peer.url), "a:latest")).outcome == "done"
    assert json.loads(peer.asked[-1].body) == {"model": "b:latest", "keep_alive": 0}


async def test_ollama_is_not_asked_to_unload_what_is_not_loaded(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/tags", {"models": [{"name": "a:latest", "digest": "d"}]})
    peer.says("/api/ps", {"models": []})
    reply = await model_api("ollama").unload(Door(http, peer.url), "a:latest")
    assert (reply.outcome, reply.detail) == ("done", "it is not loaded")
    assert all(asked.verb == "GET" for asked in peer.asked)  # up to 0.3.10 it would have been loaded first


async def test_ollama_is_not_asked_blindly_when_it_does_not_say_what_is_loaded(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/tags", {"models": [{"name": "a:latest"}]})
    peer.says("/api/ps", {"error": "boom"}, 500)
    assert (await model_api("ollama").unload(Door(http, peer.url), "a:latest")).outcome == "failed"
    assert all(asked.verb == "GET" for asked in peer.asked)


async def test_every_instance_of_an_lm_studio_model_is_unloaded(peer: Peer, http: EngineHttp) -> None:
    instances = [{"id": "m"}, {"id": "m:2"}]
    peer.says("/api/v1/models", {"models": [{"key": "m", "loaded_instances": instances}]})
    peer.says("/api/v1/models/unload", {})
    assert (await model_api("lm-studio").unload(Door(http, peer.url), "m")).outcome == "done"
    bodies = [json.loads(asked.body)["instance_id"] for asked in peer.asked if asked.body]
    assert bodies == ["m", "m:2"]


async def test_a_name_cannot_leave_its_place_in_a_path(peer: Peer, http: EngineHttp) -> None:
    await model_api("llama-swap").load(Door(http, peer.url), "../api?x=#/y")
    assert peer.paths == ["/upstream/..%2Fapi%3Fx%3D%23%2Fy/health"]


async def test_in_use_is_a_refusal_in_the_engines_words(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/ps/m", {"detail": "Model is in use"}, 409)
    reply = await model_api("speaches").unload(Door(http, peer.url), "m")
    assert reply.outcome == "refused"
    assert "409" in reply.detail
    assert "in use" in reply.detail


async def test_a_missing_key_is_told_as_that(peer: Peer, http: EngineHttp) -> None:
    peer.says("/v1/model/load", {}, 401)
    assert "key" in (await model_api("tabbyapi").load(Door(http, peer.url), "m")).detail


async def test_nobody_on_another_machine_is_ordered_about(http: EngineHttp) -> None:
    reply = await model_api("ollama").load(Door(http, "http://192.0.2.1:11434"), "m")
    assert reply.outcome == "failed"
    assert "not on this machine" in reply.detail


@pytest.mark.parametrize("engine", sorted(e for e, api in MODEL_APIS.items() if "load" in api.cannot))
async def test_what_cannot_load_by_name_says_why_and_asks_nobody(peer: Peer, http: EngineHttp, engine: str) -> None:
    api = model_api(engine)
    for order, ability in ((api.load, "load"), (api.unload, "unload")):
        reply = await order(Door(http, peer.url), "m")
        assert reply.outcome == "refused"
        assert reply.detail == {str(key): why for key, why in api.cannot.items()}[ability]
    assert not peer.asked
