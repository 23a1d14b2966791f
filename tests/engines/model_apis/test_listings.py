"""What adapters make of what engines answer, in the shapes of real ones; nothing else is asked than what is passive."""

from collections.abc import Mapping

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines.model_apis.door import Door
from gpusupervisor.engines.model_apis.known import MODEL_APIS, capabilities, model_api
from gpusupervisor.engines.model_apis.listing import Listed, Listing
from tests.http_peer import Peer

DIGEST = "fd5f44c0b5aff6453726119fc560d73a8a995a55b4a49804bc24b1969ecf1794"
TAG = {"name": "smollm2:latest", "model": "smollm2:latest", "size": 98362745, "digest": DIGEST, "details": {}}
LOADED = {
    "name": "smollm2:latest", "model": "smollm2:latest", "size": 210690374, "digest": DIGEST, "size_vram": 0,
    "expires_at": "2026-11-29T15:59:51.380624782Z", "context_length": 4096,
}  # fmt: skip
GGUF = "/srv/models/SmolLM2-135M-Instruct.Q4_1.gguf"

ONE = {"data": [{"id": GGUF, "meta": {"n_ctx": 2048, "size": 96576768, "ftype": "Q4_1"}}], "object": "list"}


def routed(name: str, **status: object) -> dict[str, object]:
    return {"id": name, "aliases": [], "object": "model", "status": {"args": ["llama-server"], **status}}


async def look(engine: str, peer: Peer, http: EngineHttp, answers: Mapping[str, object]) -> Listing:
    for path, value in answers.items():
        peer.says(path, value)
    return await model_api(engine).look(Door(http, peer.url))


CASES: list[tuple[str, dict[str, object], tuple[Listed, ...]]] = [
    ("ollama", {"/api/tags": {"models": [TAG]}, "/api/ps": {"models": []}},
     (Listed("smollm2:latest", "not-loaded", 98362745),)),
    ("ollama", {"/api/tags": {"models": [TAG]}, "/api/ps": {"models": [LOADED]}},
     (Listed("smollm2:latest", "loaded", 98362745, 210690374, 0, context=4096),)),
    ("ollama",  # pinned, under another name of the same blob
     {"/api/tags": {"models": [TAG, TAG | {"name": "b:latest"}]},
      "/api/ps": {"models": [LOADED | {"name": "b:latest", "expires_at": "2319-03-11T15:42:39.914006061Z"}]}},
     (Listed("smollm2:latest", "loaded", 98362745, 210690374, 0, pinned=True, context=4096),
      Listed("b:latest", "loaded", 98362745, 210690374, 0, pinned=True, context=4096))),
    ("ollama",  # a cloud model; one that was deleted on disk while loaded
     {"/api/tags": {"models": [{"name": "gpt:cloud", "remote_host": "https://ollama.com", "size": 384}]},
      "/api/ps": {"models": [LOADED]}},
     (Listed("gpt:cloud", "not-loaded", remote=True),
      Listed("smollm2:latest", "loaded", None, 210690374, 0, context=4096))),
    ("llama.cpp", {"/props": {"is_sleeping": False}, "/v1/models": ONE},
     (Listed(GGUF, "loaded", 96576768),)),
    ("llama.cpp", {"/props": {"is_sleeping": True}, "/v1/models": ONE},
     (Listed(GGUF, "asleep", 96576768),)),
    ("llama.cpp", {"/props": {"model_path": "/srv/models/a.gguf"}, "/v1/models": {"data": [{"id": "alias"}]}},
     (Listed("alias", "loaded", file="/srv/models/a.gguf"),)),
    ("llama.cpp", {"/props": {"model_path": "a.gguf"}, "/v1/models": {"data": [{"id": "alias"}]}},
     (Listed("alias", "loaded"),)),
    ("llama.cpp",  # a router says where the weights are, or what their server is started with
     {"/props": {"role": "router", "model_path": "none"}, "/models": {"data": [
         routed("a", value="unloaded", args=["llama-server", "--alias", "a", "--model", "/m/a.gguf"]),
         routed("b", value="unloaded", args=["llama-server", "-m", "/m/b.gguf"]),
         routed("c", value="unloaded", args="--model /m/c.gguf") | {"path": "/m/c.gguf"},
         routed("d", value="unloaded", args=["--model", 7, "-m"])]}},
     (Listed("a", "not-loaded", file="/m/a.gguf"), Listed("b", "not-loaded", file="/m/b.gguf"),
      Listed("c", "not-loaded", file="/m/c.gguf"), Listed("d", "not-loaded"))),
    ("llama.cpp", {"/props": {}, "/v1/models": {"data": [{"id": GGUF}]}}, (Listed(GGUF, "loaded"),)),  # an older one
    ("llama.cpp",
     {"/props": {"role": "router", "max_instances": 2},
      "/models": {"data": [routed("a", value="loading"), routed("b", value="unloaded", exit_code=1, failed=True),
                           routed("c", value="sleeping"), routed("d", value="loaded"), routed("e", value="new word")]}},
     (Listed("a", "loading"), Listed("b", "not-loaded", failed="its process ended with exit code 1"),
      Listed("c", "asleep"), Listed("d", "loaded"), Listed("e", "unknown"))),
    ("llama-swap",
     {"/v1/models": {"data": [{"id": "a"}, {"id": "b"}]}, "/running": {"running": [{"model": "a", "state": "ready"}]}},
     (Listed("a", "loaded"), Listed("b", "not-loaded"))),
    ("vllm", {"/v1/models": {"data": [{"id": "m"}]}}, (Listed("m", "loaded"),)),
    ("vllm", {"/v1/models": {"data": [{"id": "m"}]}, "/is_sleeping": {"is_sleeping": True}}, (Listed("m", "asleep"),)),
    ("sglang", {"/v1/models": {"data": [{"id": "m"}]}}, (Listed("m", "loaded"),)),
    ("localai", {"/v1/models": {"data": [{"id": "a"}, {"id": "b"}]}, "/system": {"loaded_models": [{"id": "b"}]}},
     (Listed("a", "not-loaded"), Listed("b", "loaded"))),
    ("lm-studio",
     {"/api/v1/models": {"models": [
         {"type": "llm", "key": "a", "size_bytes": 5, "loaded_instances": [{"id": "a", "config": {}}]},
         {"type": "embedding", "key": "b", "size_bytes": 6, "loaded_instances": []}]}},
     (Listed("a", "loaded", 5), Listed("b", "not-loaded", 6))),
    ("lm-studio", {"/api/v0/models": {"data": [{"id": "a", "state": "loaded"}, {"id": "b", "state": "not-loaded"}]}},
     (Listed("a", "loaded"), Listed("b", "not-loaded"))),
    ("automatic1111",
     {"/sdapi/v1/sd-models": [{"title": "v1.safetensors [6ce0161689]", "model_name": "v1"}, {"title": "xl [1]"}],
      "/sdapi/v1/options": {"sd_model_checkpoint": "v1.safetensors [6ce0161689]"}},
     (Listed("v1.safetensors [6ce0161689]", "unknown"), Listed("xl [1]", "not-loaded"))),
    ("invokeai", {"/api/v2/models/": {"models": [{"key": "k", "name": "sdxl", "file_size": 7}]}},
     (Listed("sdxl", size=7),)),
    ("tabbyapi", {"/v1/models": {"data": [{"id": "a"}, {"id": "b"}]}, "/v1/model": {"id": "b"}},
     (Listed("a", "not-loaded"), Listed("b", "loaded"))),
    ("koboldcpp",
     {"/api/v1/model": {"result": "koboldcpp/a"}, "/api/admin/list_options": ["b.kcpps", "unload_model"]},
     (Listed("b.kcpps", "not-loaded"), Listed("a", "loaded"))),
    ("koboldcpp", {"/api/v1/model": {"result": "inactive"}, "/api/admin/list_options": ["b.kcpps"]},
     (Listed("b.kcpps", "not-loaded"),)),
    ("text-generation-webui",
     {"/v1/internal/model/list": {"model_names": ["a", "b"]}, "/v1/internal/model/info": {"model_name": "None"}},
     (Listed("a", "not-loaded"), Listed("b", "not-loaded"))),
    ("speaches", {"/v1/models": {"data": [{"id": "x/w"}]}, "/api/ps": {"models": ["x/w"]}}, (Listed("x/w", "loaded"),)),
    ("comfyui",
     {"/models": ["checkpoints", "configs", "vae"], "/models/checkpoints": ["a.safetensors"], "/models/vae": []},
     (Listed("checkpoints/a.safetensors"),)),
    ("lemonade",
     {"/v1/models": {"data": [{"id": "a"}, {"id": "b"}]}, "/v1/health": {"all_models_loaded": [{"model_name": "b"}]}},
     (Listed("a", "not-loaded"), Listed("b", "loaded"))),
    ("whisper.cpp", {}, ()),
    ("an engine that nobody knows", {}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "answers", "models"), CASES)
async def test_real_answers_are_understood(
    peer: Peer, http: EngineHttp, engine: str, answers: dict[str, object], models: tuple[Listed, ...]
) -> None:
    listing = await look(engine, peer, http, answers)
    assert listing.models == models
    assert listing.problems == ()


WAKING = ("/slots", "/metrics", "/upstream", "/api/generate", "/api/chat", "/v1/chat", "/models/load")


@pytest.mark.parametrize(("engine", "answers", "models"), CASES)
async def test_looking_only_reads(
    peer: Peer, http: EngineHttp, engine: str, answers: dict[str, object], models: tuple[Listed, ...]
) -> None:
    await look(engine, peer, http, answers)
    assert all(asked.verb == "GET" and not asked.target.startswith(WAKING) for asked in peer.asked)
    assert not any("?" in asked.target for asked in peer.asked)


async def test_a_vllm_without_sleep_mode_is_not_put_to_sleep_though_it_could_be_asked(
    peer: Peer, http: EngineHttp
) -> None:
    peer.says("/is_sleeping", {"is_sleeping": False})
    peer.says("/v1/models", {"data": [{"id": "m"}]})
    door = Door(http, peer.url, off=frozenset({"--enable-sleep-mode"}))
    listing = await model_api("vllm").look(door)
    assert listing.models == (Listed("m", "loaded"),)
    assert "--enable-sleep-mode" in listing.cannot["unload"]


async def test_a_koboldcpp_with_a_password_does_not_name_its_model(peer: Peer, http: EngineHttp) -> None:
    answers = {"/api/v1/model": {"result": "koboldcpp/protected-model"}, "/api/admin/list_options": []}
    listing = await look("koboldcpp", peer, http, answers)
    assert listing.models == ()
    assert "--password" in listing.problems[0]
    assert "admin password" in listing.cannot["unload"]


def test_one_that_spilled_says_so() -> None:
    assert Listed("m", "loaded", 5, wants=10, held=9).spilled
    assert not Listed("m", "loaded", 5, wants=10, held=10).spilled
    assert not Listed("m", "loaded", 5, wants=10).spilled


async def test_a_llama_server_that_is_loading_is_loading(peer: Peer, http: EngineHttp) -> None:
    error = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    peer.says("/props", error, 503)
    peer.says("/v1/models", {"data": [{"id": GGUF}]})
    listing = await model_api("llama.cpp").look(Door(http, peer.url))
    assert listing.models == (Listed(GGUF, "loading"),)


@pytest.mark.parametrize(
    ("engine", "answers", "able"),
    [
        ("ollama", {}, ["list", "resident", "load", "unload"]),
        ("llama.cpp", {"/props": {"role": "router"}, "/models": {"data": []}}, ["list", "resident", "load", "unload"]),
        ("llama.cpp", {"/props": {"is_sleeping": False}, "/v1/models": {"data": []}}, ["list", "resident"]),
        ("vllm", {"/is_sleeping": {"is_sleeping": False}}, ["list", "resident", "load", "unload"]),
        ("vllm", {"/v1/models": {"data": []}}, ["list", "resident"]),
        ("lm-studio", {"/api/v0/models": {"data": []}}, ["list", "resident"]),
        ("koboldcpp", {"/api/v1/model": {"result": "koboldcpp/a"}}, ["list", "resident"]),
        ("comfyui", {}, ["list"]),
        ("whisper.cpp", {}, []),
    ],
)
async def test_what_an_instance_can_do_is_known_and_what_not_has_a_reason(
    peer: Peer, http: EngineHttp, engine: str, answers: dict[str, object], able: list[str]
) -> None:
    listing = await look(engine, peer, http, answers)
    assert list(capabilities(model_api(engine), listing)) == able
    assert all(listing.cannot.values())


def test_every_adapter_says_why_it_cannot() -> None:
    for engine, api in MODEL_APIS.items():
        assert all(len(why) > 10 for why in api.cannot.values()), engine
