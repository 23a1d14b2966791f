"""Shipped probes and releases against servers that answer as the engines do, and as broken ones do."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.judgement import Course, Evidence, judge
from gpusupervisor.tenants.activity.probes.base import ProbeContext
from gpusupervisor.tenants.activity.probes.build import build_probe
from gpusupervisor.tenants.activity.probes.process_activity import ProcessActivity
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, Observation
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.release.http_release import Place, ReleaseAnswer, request_release
from tests.http_peer import HTML, REDIRECT, Peer, reply
from tests.tenants.activity.builders import GIB, SECOND, context, holder, presence

DEFINITIONS = load_catalog([SHIPPED]).definitions
Engine = Mapping[str, object]
"""What a recorded engine answers, by path; text is sent as text."""

PROPS: Engine = {"/props": {"is_sleeping": False, "total_slots": 1}}
ROUTER_PROPS: Engine = {"/props": {"role": "router", "max_instances": 2, "models_autoload": True}}


def slots(*working: bool) -> object:
    return [{"id": number, "n_ctx": 2048, "is_processing": each} for number, each in enumerate(working)]


def metrics(prefix: str, running: int, waiting: str, count: int) -> str:
    lines = (f'{prefix}num_running_reqs{{m="x"}} {running}.0', f'{prefix}{waiting}{{m="x"}} {count}.0')
    return "# TYPE x gauge\n" + "\n".join(lines) + "\n"


def progress(job_count: object, **more: object) -> Engine:
    state = {"skipped": False, "job": "", "job_count": job_count, "job_no": 0, "sampling_step": 0}
    return {"/sdapi/v1/progress": {"progress": 0.0, "eta_relative": 0.0, "state": state, **more}}


def invoke(pending: object, in_progress: object, *, started: bool = True, processing: object = False) -> Engine:
    queue = {"queue_id": "default", "item_id": None, "pending": pending, "in_progress": in_progress, "total": 3}
    return {
        "/api/v1/queue/default/status": {
            "queue": queue, "processor": {"is_started": started, "is_processing": processing},
        }
    }  # fmt: skip


def kobold(idle: object, queue: object) -> Engine:
    return {"/api/extra/perf": {"last_process": 0, "queue": queue, "idle": idle, "uptime": 9, "idletime": 8}}


SGLANG = "sglang:"

CASES: list[tuple[str, str, Engine, str]] = [
    ("llama-server", "idle", {**PROPS, "/slots": slots(False, False)}, "idle"),
    ("llama-server", "works", {**PROPS, "/slots": slots(False, True)}, "busy"),
    ("llama-server", "sleeps", {"/props": {"is_sleeping": True}}, "idle"),
    ("llama-server", "a router that is not known as one", {**ROUTER_PROPS}, "unknown"),
    ("vllm", "idle", {"/metrics": "vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"}, "idle"),
    ("vllm", "waiting", {"/metrics": "vllm:num_requests_running 0.0\nvllm:num_requests_waiting 2.0\n"}, "busy"),
    ("sglang", "idle", {"/metrics": metrics(SGLANG, 0, "num_queue_reqs", 0)}, "idle"),
    ("sglang", "running", {"/metrics": metrics(SGLANG, 1, "num_queue_reqs", 0)}, "busy"),
    ("sglang", "queued", {"/metrics": metrics(SGLANG, 0, "num_queue_reqs", 3)}, "busy"),
    ("sglang", "without --enable-metrics", {}, "unknown"),
    ("automatic1111", "idle", progress(0), "idle"),
    ("automatic1111", "has just begun", progress(-1), "busy"),
    ("automatic1111", "works", progress(1), "busy"),
    ("automatic1111", "no number", progress("0"), "unknown"),
    ("automatic1111", "null", progress(None), "unknown"),
    ("automatic1111", "no state", {"/sdapi/v1/progress": {"progress": 0.0}}, "unknown"),
    ("automatic1111", "without --api", {}, "unknown"),
    ("invokeai", "idle", invoke(0, 0), "idle"),
    ("invokeai", "works", invoke(0, 1, processing=True), "busy"),
    ("invokeai", "between two", invoke(2, 0), "busy"),
    ("invokeai", "paused by the user", invoke(2, 0, started=False), "idle"),
    ("invokeai", "no numbers", invoke("0", "0"), "unknown"),
    ("invokeai", "no processor", {"/api/v1/queue/default/status": {"queue": {"pending": 0}}}, "unknown"),
    ("koboldcpp", "idle", kobold(1, 0), "idle"),
    ("koboldcpp", "works", kobold(0, 0), "busy"),
    ("koboldcpp", "queued", kobold(1, 2), "busy"),
    ("koboldcpp", "truth values", kobold(True, 0), "unknown"),
    ("koboldcpp", "older, without a queue", {"/api/extra/perf": {"idle": 1}}, "unknown"),
    ("tabbyapi", "healthy", {"/health": {"status": "healthy", "issues": []}}, "unknown"),
    ("text-generation-webui", "none loaded", {"/v1/internal/model/info": {"model_name": "None"}}, "idle"),
    ("text-generation-webui", "one loaded", {"/v1/internal/model/info": {"model_name": "qwen"}}, "unknown"),
    ("text-generation-webui", "null", {"/v1/internal/model/info": {"model_name": None}}, "unknown"),
]  # fmt: skip
ASKED = sorted({engine for engine, *_ in CASES})
"""Engines whose own word decides, by one plain question."""


def record(peer: Peer, engine: Engine) -> None:
    """Make a server answer as this engine does."""
    for path, said in engine.items():
        peer.answers[path] = reply(said.encode(), 200, "text/plain") if isinstance(said, str) else reply(_json(said))


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


async def first_look(tenant: str, where: ProbeContext) -> Observation:
    """What the probe sees that decides."""
    activity = DEFINITIONS[tenant].activity
    assert activity is not None
    probe = build_probe(activity.probes[0])
    assert probe is not None
    return await probe.observe(where)


@pytest.mark.parametrize(
    ("tenant", "engine", "state"), [(t, e, s) for t, _, e, s in CASES], ids=[f"{t}: {n}" for t, n, *_ in CASES]
)
async def test_an_engines_own_word_decides(
    peer: Peer, http: EngineHttp, tenant: str, engine: Engine, state: str
) -> None:
    record(peer, engine)
    seen = await first_look(tenant, context(http, presence(peer.url, holder())))
    assert (seen.state, bool(seen.reason)) == (state, True)
    assert {asked.verb for asked in peer.asked} == {"GET"}, "looking changes nothing"


@pytest.mark.parametrize("tenant", ASKED)
@pytest.mark.parametrize(
    "raw",
    [reply(b""), reply(HTML, content_type="text/html"), reply(b'{"idle": 1, "queue"'), reply(b"[]"), reply(b"null"),
     reply(b'"ok"'), reply(b"{}"), reply(b'{"error": "x"}', 500), REDIRECT,
     b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"],
    ids=["empty", "page", "cut off", "list", "null", "text", "nothing in it", "error", "redirect", "too short"],
)  # fmt: skip
async def test_what_no_engine_answers_is_never_idle(peer: Peer, http: EngineHttp, tenant: str, raw: bytes) -> None:
    activity = DEFINITIONS[tenant].activity
    assert activity is not None
    peer.answers = {path.partition("?")[0]: raw for path in (activity.probes[0].first, activity.probes[0].get)}
    seen = await first_look(tenant, context(http, presence(peer.url, holder())))
    assert seen.state == "unknown"


@pytest.mark.parametrize("tenant", ASKED)
@pytest.mark.parametrize("status", [401, 403])
async def test_an_engine_that_wants_a_key_says_where_to_put_it(
    peer: Peer, http: EngineHttp, tenant: str, status: int
) -> None:
    activity = DEFINITIONS[tenant].activity
    assert activity is not None
    for path in (activity.probes[0].first, activity.probes[0].get):
        peer.answers[path.partition("?")[0]] = reply(b'{"detail": "Unauthorized"}', status)
    where = replace(presence(peer.url, holder()), id=tenant)
    seen = await first_look(tenant, context(http, where))
    assert seen.state == "unknown"
    assert f"status {status}: it wants a key" in seen.reason
    assert f"[endpoint] headers in /etc/gpusupervisor/tenants.d/{tenant}.toml" in seen.reason


def worker(pid: int, peer: Peer) -> tuple[str, ...]:
    return ("/usr/bin/llama-server", "--host", "127.0.0.1", "--port", str(peer.port), "--alias", f"m{pid}")


@pytest.fixture
async def child() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    await peer.stop()


@pytest.mark.parametrize(
    ("child_says", "state"),
    [
        ({**PROPS, "/slots": slots(False)}, "idle"),
        ({**PROPS, "/slots": slots(True)}, "busy"),
        ({"/props": {"is_sleeping": True}}, "idle"),
        ({**PROPS, "/slots": {"error": {"code": 501}}}, "unknown"),
        ({}, "unknown"),
    ],
)
async def test_of_a_router_its_children_are_asked_and_it_itself_for_nothing_that_loads(
    peer: Peer, child: Peer, http: EngineHttp, child_says: Engine, state: str
) -> None:
    record(peer, {**ROUTER_PROPS, "/models": {"data": [{"id": "a", "status": {"value": "loaded"}}]}})
    record(child, child_says)
    where = presence(peer.url, holder(5, command_line=worker(5, child)))
    assert (await first_look("llama-router", context(http, where))).state == state
    assert peer.paths == []
    if child_says.get("/props") == {"is_sleeping": True}:
        assert child.paths == ["/props"], "what sleeps is not woken"


async def test_a_router_is_idle_only_when_all_its_children_are(peer: Peer, child: Peer, http: EngineHttp) -> None:
    record(peer, {**PROPS, "/slots": slots(True)})
    record(child, {**PROPS, "/slots": slots(False)})
    pair = (holder(5, command_line=worker(5, child)), holder(6, command_line=worker(6, peer)))
    assert (await first_look("llama-router", context(http, presence("", *pair)))).state == "busy"
    silent = (pair[0], holder(6, command_line=("/usr/bin/llama-server", "--alias", "m")))
    assert (await first_look("llama-router", context(http, presence("", *silent)))).state == "unknown"
    gone = (pair[0], holder(6, command_line=("llama-server", "--port", "1")))
    assert (await first_look("llama-router", context(http, presence("", *gone)))).state == "unknown"
    assert (await first_look("llama-router", context(http, presence(peer.url)))).state == "absent"


async def watch(tenant: str, peer: Peer, http: EngineHttp, shares: Sequence[int | None]) -> Activity:
    """The verdict after looks ten seconds apart, with these shares of GPU time."""
    spec = DEFINITIONS[tenant].activity
    assert spec is not None
    processes, verdict, course = ProcessActivity(spec), UNOBSERVED, Course()
    probes = [(probe, build_probe(probe)) for probe in spec.probes]
    for number, share in enumerate(shares):
        now = (number + 1) * 10 * SECOND
        where = presence(peer.url, holder(5, 4 * GIB, sm=share, command_line=("x",)))
        processes.take_census(where, now, frozenset(), frozenset())
        processes.cpu.update(where, number, now)
        around = context(http, where, now, signs=processes.signs())
        seen = [
            await probe.observe(around) if probe else processes.observe(watched, where) for watched, probe in probes
        ]
        evidence = Evidence(seen, where, processes.signs())
        verdict, course = judge(evidence, verdict, course, now=now, freshness=15 * SECOND)
    return verdict


@pytest.mark.parametrize("tenant", ["llama-swap", "localai", "lm-studio", "speaches", "whisper-server"])
async def test_who_says_nothing_is_idle_after_long_quiet_alone(peer: Peer, http: EngineHttp, tenant: str) -> None:
    record(peer, {"/running": {"running": [{"model": "a", "state": "ready"}]}})
    assert (await watch(tenant, peer, http, [0])).state == "unknown"
    assert (await watch(tenant, peer, http, [0, 0, 0, 0, 0])).state == "idle"
    assert (await watch(tenant, peer, http, [0, 0, 0, 0, 40])).state == "stirring", "a glimpse"
    assert (await watch(tenant, peer, http, [0, 0, 0, 40, 40])).state == "busy"
    assert (await watch(tenant, peer, http, [None] * 5)).state == "unknown", "a driver that does not tell"
    assert not any(path.startswith(("/upstream", "/v1/")) for path in peer.paths)


@pytest.mark.parametrize(("state", "activity"), [("starting", "claimed"), ("stopping", "stirring"), ("ready", "idle")])
async def test_a_swap_under_way_protects_and_a_loaded_model_says_nothing(
    peer: Peer, http: EngineHttp, state: str, activity: str
) -> None:
    record(peer, {"/running": {"running": [{"model": "a", "state": state}]}})
    assert (await watch("llama-swap", peer, http, [0] * 5)).state == activity


async def test_tabbyapi_is_never_idle_and_never_asked(peer: Peer, http: EngineHttp) -> None:
    record(peer, {"/health": {"status": "healthy"}})
    assert (await watch("tabbyapi", peer, http, [0] * 10)).state == "unknown"
    assert (await watch("tabbyapi", peer, http, [0] * 5 + [30, 30])).state == "busy"
    assert DEFINITIONS["tabbyapi"].release == ()


@pytest.mark.parametrize(
    "tenant",
    [
        "automatic1111",
        "koboldcpp",
        "llama-server",
        "sglang",
        "tabbyapi",
        "text-generation-webui",
        "vllm",
        "whisper-server",
    ],
)
def test_who_would_not_come_back_by_itself_or_come_to_harm_is_not_asked(tenant: str) -> None:
    assert DEFINITIONS[tenant].release == ()


async def release(tenant: str, peer: Peer, http: EngineHttp) -> ReleaseAnswer:
    (rung,) = DEFINITIONS[tenant].release
    return await request_release(rung, Place(peer.url), http)


def sent(peer: Peer) -> list[tuple[str, str, object]]:
    """Verb, path and body of everything that was not only a question."""
    return [
        (asked.verb, asked.target, json.loads(asked.body) if asked.body else None)
        for asked in peer.asked
        if asked.verb != "GET"
    ]


async def test_a_router_is_asked_for_what_it_has_loaded(peer: Peer, http: EngineHttp) -> None:
    models = [{"id": name, "status": {"value": state}} for name, state in
              (("a", "loaded"), ("b", "unloaded"), ("c", "sleeping"), ("d", "loading"))]  # fmt: skip
    record(peer, {**ROUTER_PROPS, "/models": {"data": models}, "/models/unload": {"success": True}})
    assert (await release("llama-router", peer, http)).accepted
    assert sent(peer) == [("POST", "/models/unload", {"model": "a"}), ("POST", "/models/unload", {"model": "c"})]
    assert not any("?" in path for path in peer.paths)


@pytest.mark.parametrize(
    "props", [{"role": "router", "models_autoload": False}, {"is_sleeping": False}, {"role": "router"}, []]
)
async def test_a_router_that_would_not_load_again_is_left_alone(peer: Peer, http: EngineHttp, props: object) -> None:
    record(peer, {"/props": props, "/models": {"data": [{"id": "a", "status": {"value": "loaded"}}]}})
    answer = await release("llama-router", peer, http)
    assert (answer.accepted, sent(peer)) == (False, [])


async def test_a_router_that_refuses_says_why(peer: Peer, http: EngineHttp) -> None:
    record(peer, {**ROUTER_PROPS, "/models": {"data": [{"id": "a", "status": {"value": "loaded"}}]}})
    peer.says("/models/unload", {"error": {"code": 400, "message": "model is not running"}}, 400)
    answer = await release("llama-router", peer, http)
    assert (answer.outcome, "model is not running" in answer.detail) == ("refused", True)


async def test_llama_swap_unloads_everything_without_starting_anything(peer: Peer, http: EngineHttp) -> None:
    record(peer, {"/unload": "OK"})
    assert (await release("llama-swap", peer, http)).accepted
    assert peer.paths == ["/unload"]


async def test_localai_is_asked_for_each_model(peer: Peer, http: EngineHttp) -> None:
    record(peer, {"/system": {"backends": ["llama-cpp"], "loaded_models": [{"id": "a"}, {"id": "b/c"}]}})
    peer.says("/backend/shutdown", {"message": "model stopped"})
    assert (await release("localai", peer, http)).accepted
    assert sent(peer) == [
        ("POST", "/backend/shutdown", {"model": "a"}),
        ("POST", "/backend/shutdown", {"model": "b/c"}),
    ]
    peer.says("/backend/shutdown", {"error": {"message": "model is still busy"}}, 500)
    answer = await release("localai", peer, http)
    assert (answer.outcome, "still busy" in answer.detail) == ("refused", True)


async def test_lm_studio_is_asked_for_each_instance(peer: Peer, http: EngineHttp) -> None:
    models = [
        {"key": "q", "loaded_instances": [{"id": "q"}, {"id": "q:2"}]}, {"key": "r", "loaded_instances": []},
    ]  # fmt: skip
    record(peer, {"/api/v1/models": {"models": models}, "/api/v1/models/unload": {"instance_id": "q"}})
    answer = await release("lm-studio", peer, http)
    assert answer.accepted is True, answer.detail
    assert [body for _, _, body in sent(peer)] == [{"instance_id": "q"}, {"instance_id": "q:2"}]


async def test_an_older_lm_studio_cannot_be_asked(peer: Peer, http: EngineHttp) -> None:
    answer = await release("lm-studio", peer, http)
    assert (answer.outcome, sent(peer)) == ("failed", [])
    assert "status 404" in answer.detail


async def test_invokeai_empties_its_cache(peer: Peer, http: EngineHttp) -> None:
    peer.answers["/api/v2/models/empty_model_cache"] = reply(b"null")
    assert (await release("invokeai", peer, http)).accepted
    assert sent(peer) == [("POST", "/api/v2/models/empty_model_cache", None)]


async def test_speaches_in_use_is_a_refusal(peer: Peer, http: EngineHttp) -> None:
    name = "Systran/faster-whisper-large-v3"
    record(peer, {"/api/ps": {"models": [name]}})
    path = "/api/ps/Systran%2Ffaster-whisper-large-v3"
    peer.answers[path] = reply(b'{"detail": "Model is in use"}', 409)
    answer = await release("speaches", peer, http)
    assert (answer.outcome, "409" in answer.detail, "in use" in answer.detail) == ("refused", True, True)
    peer.answers[path] = reply(b"")
    assert (await release("speaches", peer, http)).accepted
    assert sent(peer)[-1] == ("DELETE", path, None)


@pytest.mark.parametrize("tenant", ["llama-router", "localai", "lm-studio", "speaches"])
@pytest.mark.parametrize(
    "raw", [reply(b""), reply(HTML), reply(b'{"models": "all"}'), reply(b"{", 200), reply(b"{}", 401)]
)
async def test_without_a_list_of_what_is_loaded_nothing_is_sent(
    peer: Peer, http: EngineHttp, tenant: str, raw: bytes
) -> None:
    (rung,) = DEFINITIONS[tenant].release
    assert rung.for_each is not None
    record(peer, ROUTER_PROPS)
    peer.answers[rung.for_each.get] = raw
    answer = await release(tenant, peer, http)
    assert (answer.accepted, sent(peer)) == (False, [])


def kobold_as_ollama() -> Engine:
    return {"/api/tags": {"models": [{"name": "koboldcpp"}]}, "/api/ps": {"models": []}, **kobold(0, 1)}


async def test_koboldcpp_is_asked_as_what_it_is_though_it_answers_as_ollama(peer: Peer, http: EngineHttp) -> None:
    record(peer, kobold_as_ollama())
    assert (await first_look("koboldcpp", context(http, presence(peer.url, holder())))).state == "busy"
    assert peer.paths == ["/api/extra/perf"]


def endpoints(definitions: Mapping[str, TenantDefinition]) -> dict[str, str]:
    return {each.id: each.endpoint.url for each in definitions.values() if each.endpoint}


def test_only_those_with_a_port_of_their_own_are_asked_while_they_are_away() -> None:
    own = {each.id for each in DEFINITIONS.values() if each.endpoint and each.endpoint.own_port}
    assert own == {"ollama", "comfyui"}
    urls = endpoints(DEFINITIONS)
    assert all(list(urls.values()).count(urls[each]) == 1 for each in own)


@pytest.mark.parametrize(
    ("loaded", "activity"),
    [
        ([], "idle"),
        ([{"model_name": "a", "is_busy": False}], "idle"),
        ([{"model_name": "a", "is_busy": False}, {"model_name": "b", "is_busy": True}], "claimed"),
        ([{"model_name": "a"}], "unknown"),
    ],
)
async def test_lemonade_tells_of_each_model_whether_it_works(
    peer: Peer, http: EngineHttp, loaded: list[object], activity: str
) -> None:
    record(peer, {"/v1/health": {"all_models_loaded": loaded}})
    assert (await watch("lemonade", peer, http, [0] * 5)).state == activity


async def test_lemonades_models_are_unloaded_but_those_that_are_pinned(peer: Peer, http: EngineHttp) -> None:
    loaded = [{"model_name": "a", "pinned": False}, {"model_name": "b", "pinned": True}, {"model_name": "c"}]
    record(peer, {"/v1/health": {"all_models_loaded": loaded}, "/v1/unload": {"status": "success"}})
    assert (await release("lemonade", peer, http)).accepted
    assert peer.paths.count("/v1/unload") == 2
