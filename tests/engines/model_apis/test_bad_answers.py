"""Whatever an engine answers, its adapter says what is unknown and never raises."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpusupervisor.engine_http import Answer, EngineHttp
from gpusupervisor.engines.model_apis import door as door_module
from gpusupervisor.engines.model_apis.door import Door, refusal
from gpusupervisor.engines.model_apis.known import MODEL_APIS, model_api
from tests.http_peer import HTML, REDIRECT, Peer, reply

PATHS = (
    "/api/tags", "/api/ps", "/props", "/v1/models", "/models", "/running", "/is_sleeping", "/system", "/api/v1/models",
    "/api/v0/models", "/sdapi/v1/sd-models", "/sdapi/v1/options", "/api/v2/models/", "/v1/model", "/api/v1/model",
    "/api/admin/list_options", "/v1/internal/model/list", "/v1/internal/model/info", "/models/checkpoints",
)  # fmt: skip
ASKING = sorted(engine for engine in MODEL_APIS if "list" not in MODEL_APIS[engine].cannot)
TRUNCATED = b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"models":[{"name":"a'
BAD = {
    "empty": reply(b""),
    "html": reply(HTML, content_type="text/html"),
    "half": reply(b'{"models":[{"name":"a"'),
    "redirect": REDIRECT,
    "error": reply(b"boom", 500),
    "key": reply(b'{"error":"no key"}', 401),
    "null": reply(b"null"),
    "number": reply(b"7"),
    "bytes": reply(b"\xff\xfe"),
    "no http": b"220 mail.example ESMTP\r\n",
}


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("engine", ASKING)
async def test_an_unusable_answer_is_a_named_unknown(peer: Peer, http: EngineHttp, engine: str, bad: str) -> None:
    peer.answers = dict.fromkeys(PATHS, BAD[bad])
    listing = await model_api(engine).look(Door(http, peer.url))
    assert not [model for model in listing.models if model.state == "loaded"]
    assert listing.problems
    assert all("is unknown" in problem for problem in listing.problems)


@pytest.mark.parametrize("engine", ASKING)
async def test_one_that_does_not_answer_at_all_delays_nobody_for_long(
    peer: Peer, http: EngineHttp, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "TIMEOUT", 100_000)
    peer.silent = set(PATHS)
    peer.trickling = {"/running"}
    listing = await model_api(engine).look(Door(http, peer.url))
    assert any("in time" in problem for problem in listing.problems)


async def test_a_cut_off_answer_is_not_half_a_list(
    peer: Peer, http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "TIMEOUT", 200_000)
    peer.answers = {"/api/tags": TRUNCATED, "/api/ps": reply(b'{"models":[]}')}
    listing = await model_api("ollama").look(Door(http, peer.url))
    assert listing.models == ()
    assert "which models there are is unknown" in listing.problems[0]


async def test_half_of_the_answers_is_half_of_the_knowledge(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/tags", {"models": [{"name": "a:latest", "size": 5}]})
    peer.answers["/api/ps"] = reply(b"boom", 500)
    listing = await model_api("ollama").look(Door(http, peer.url))
    assert [(model.name, model.state) for model in listing.models] == [("a:latest", "unknown")]
    assert listing.problems == ("which models are loaded is unknown: its API answered /api/ps with status 500",)


async def test_entries_that_cannot_be_read_are_passed_over_and_told(peer: Peer, http: EngineHttp) -> None:
    entries = [7, None, {"name": 5}, {"name": "a\nb"}, {"name": "x" * 600}, {"name": "good", "size": -1}]
    peer.says("/api/tags", {"models": entries})
    peer.says("/api/ps", {"models": []})
    listing = await model_api("ollama").look(Door(http, peer.url))
    assert [(model.name, model.size) for model in listing.models] == [("good", None)]
    assert listing.problems == ("which models there are is unknown: some entries cannot be read, and were left out",)


async def test_a_thousand_models_are_fine_and_a_hundred_thousand_are_cut(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/ps", {"models": []})
    peer.says("/api/tags", {"models": [{"name": f"m{n}", "size": n, "details": {"x": "y" * 800}} for n in range(1000)]})
    listing = await model_api("ollama").look(Door(http, peer.url))
    assert (len(listing.models), listing.problems) == (1000, ())
    peer.says("/api/tags", {"models": [{"name": f"m{n}"} for n in range(100_000)]})
    listing = await model_api("ollama").look(Door(http, peer.url))
    assert len(listing.models) == 4096
    assert "more than 4096" in listing.problems[0]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "models",
                    "data",
                    "id",
                    "name",
                    "status",
                    "value",
                    "running",
                    "model",
                    "loaded_instances",
                    "key",
                    "result",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@settings(
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(answer=JSON, engine=st.sampled_from(ASKING))
async def test_no_json_at_all_makes_an_adapter_raise(peer: Peer, http: EngineHttp, answer: object, engine: str) -> None:
    peer.answers = dict.fromkeys(PATHS, reply(json.dumps(answer).encode()))
    listing = await model_api(engine).look(Door(http, peer.url))
    assert all(model.name for model in listing.models)


@pytest.mark.parametrize(
    "said",
    [
        "llama runner process has terminated: cudaMalloc failed: out of memory",
        "llama runner process has terminated: error loading model: unable to allocate CUDA0 buffer",
        "model requires more system memory (9.1 GiB) than is available (3.2 GiB)",
        "failed to allocate buffer for kv cache",
        "ggml_vulkan: ErrorOutOfDeviceMemory",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "No available memory for the cache blocks",
    ],
)
def test_out_of_memory_is_recognised_in_engines_own_words(said: str) -> None:
    reply_ = refusal(Answer(500, json.dumps({"error": said}).encode(), "application/json"))
    assert reply_.outcome == "out-of-memory"
    assert said[:20] in reply_.detail


@pytest.mark.parametrize("said", ["model 'x' not found", "unable to load model: invalid file", ""])
def test_of_other_errors_the_status_says_whether_it_tried(said: str) -> None:
    assert refusal(Answer(400, said.encode(), "text/plain")).outcome == "refused"
    assert refusal(Answer(500, said.encode(), "text/plain")).outcome == "failed"
