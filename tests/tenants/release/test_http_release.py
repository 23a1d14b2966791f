"""Asking for memory over HTTP: what is sent, and what is made of the answers."""

import json
from dataclasses import replace

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.definition import Condition, ForEach, ReleaseMethod, VersionRequirement
from gpusupervisor.tenants.release.http_release import MAX_ITEMS, Place, ReleaseAnswer, request_release
from tests.http_peer import HTML, REDIRECT, Peer, reply

PATIENCE = 10_000_000
"""Microseconds: on a machine that does much else, too."""

FREE = ReleaseMethod("http", "POST", "/free", json={"unload_models": True, "free_memory": True}, timeout=PATIENCE)
UNLOAD = ReleaseMethod(
    "http",
    "POST",
    "/api/generate",
    json={"model": "{item}", "keep_alive": 0},
    for_each=ForEach("/api/ps", "models[].name"),
    success_when="done_reason == 'unload'",
    version=VersionRequirement("/api/version", "version", "0.3.11"),
    timeout=PATIENCE,
)
DONE = {"done": True, "done_reason": "unload"}


@pytest.fixture
async def ollama(peer: Peer) -> Peer:
    peer.says("/api/version", {"version": "0.33.0"})
    peer.says("/api/ps", {"models": [{"name": "llama3:8b"}, {"name": "gemma:2b"}]})
    peer.says("/api/generate", DONE)
    return peer


async def release(method: ReleaseMethod, peer: Peer, http: EngineHttp) -> ReleaseAnswer:
    return await request_release(method, Place(peer.url), http)


async def test_one_request_is_sent_with_its_body(peer: Peer, http: EngineHttp) -> None:
    peer.answers["/free"] = reply(b"")
    answer = await release(FREE, peer, http)
    assert (answer.accepted, answer.outcome, answer.detail) == (True, "accepted", "it accepted the request")
    (asked,) = peer.asked
    assert (asked.verb, asked.target) == ("POST", "/free")
    assert json.loads(asked.body) == {"unload_models": True, "free_memory": True}
    assert "Content-Type: application/json\r\n" in asked.head


async def test_every_loaded_item_is_asked_for(ollama: Peer, http: EngineHttp) -> None:
    answer = await release(UNLOAD, ollama, http)
    assert (answer.outcome, answer.detail) == ("accepted", "it accepted all 2 requests")
    assert ollama.paths == ["/api/version", "/api/ps", "/api/generate", "/api/generate"]
    bodies = [json.loads(asked.body) for asked in ollama.asked[2:]]
    assert bodies == [{"model": "llama3:8b", "keep_alive": 0}, {"model": "gemma:2b", "keep_alive": 0}]
    assert [each.item for each in answer.items] == ["llama3:8b", "gemma:2b"]


async def test_nothing_loaded_is_nothing_to_release(ollama: Peer, http: EngineHttp) -> None:
    ollama.says("/api/ps", {"models": []})
    answer = await release(UNLOAD, ollama, http)
    assert (answer.accepted, answer.outcome) == (False, "nothing-to-release")
    assert "/api/generate" not in ollama.paths


@pytest.mark.parametrize("version", ["0.3.10", "0.1", None, 3])
async def test_too_old_an_engine_is_not_asked(ollama: Peer, http: EngineHttp, version: object) -> None:
    ollama.says("/api/version", {"version": version})
    answer = await release(UNLOAD, ollama, http)
    assert (answer.accepted, answer.outcome) == (False, "refused")
    assert "0.3.11 or later" in answer.detail
    assert ollama.paths == ["/api/version"]


@pytest.mark.parametrize("version", ["0.0.0", "nightly", "0.0.0-dirty"])
async def test_an_unknown_version_is_not_old(ollama: Peer, http: EngineHttp, version: str) -> None:
    ollama.says("/api/version", {"version": version})
    answer = await release(UNLOAD, ollama, http)
    assert answer.outcome != "refused"
    assert "/api/ps" in ollama.paths


async def test_a_version_that_cannot_be_asked_for_fails(ollama: Peer, http: EngineHttp) -> None:
    ollama.answers["/api/version"] = reply(HTML)
    answer = await release(UNLOAD, ollama, http)
    assert answer.outcome == "failed"
    assert ollama.paths == ["/api/version"]


async def test_a_refusal_of_the_only_item_is_refused_with_the_engines_words(ollama: Peer, http: EngineHttp) -> None:
    ollama.says("/api/ps", {"models": [{"name": "gone"}]})
    ollama.says("/api/generate", {"error": "model 'gone' not found\u001b[31m"}, 404)
    answer = await release(UNLOAD, ollama, http)
    assert (answer.accepted, answer.outcome) == (False, "refused")
    assert "gone: answered with status 404" in answer.detail
    assert "not found" in answer.detail
    assert answer.detail.isprintable()


@pytest.mark.parametrize("said", [{"done_reason": "load"}, {}, [], None, {"done_reason": True}])
async def test_an_answer_other_than_success_is_refused(ollama: Peer, http: EngineHttp, said: object) -> None:
    ollama.says("/api/generate", said)
    answer = await release(UNLOAD, ollama, http)
    assert (answer.accepted, answer.outcome) == (False, "refused")


async def test_half_of_the_items_is_accepted_and_says_so(http: EngineHttp, peer: Peer) -> None:
    method = ReleaseMethod("http", "DELETE", "/api/ps/{item}", for_each=ForEach("/list", "models"), timeout=PATIENCE)
    peer.says("/list", {"models": ["a", "b/c d", "e"]})
    peer.answers["/api/ps/a"] = reply(b"")
    peer.answers["/api/ps/b%2Fc%20d"] = reply(b'{"detail": "in use"}', 409)
    peer.answers["/api/ps/e"] = reply(b"")
    answer = await release(method, peer, http)
    assert (answer.accepted, answer.outcome) == (True, "accepted")
    assert answer.detail.startswith("it accepted 2 of 3 requests; b/c d: answered with status 409")
    assert [each.outcome for each in answer.items] == ["accepted", "refused", "accepted"]
    assert [asked.verb for asked in peer.asked] == ["GET", "DELETE", "DELETE", "DELETE"]


async def test_the_item_is_filled_into_query_and_nested_body(http: EngineHttp, peer: Peer) -> None:
    method = ReleaseMethod(
        "http",
        "POST",
        "/unload",
        query=(("id", "{item}"), ("mode", "wait")),
        json={"models": [{"id": "{item}", "keep": 0}], "why": "room for {item}"},
        headers=(("X-Reason", "room for {item}"),),
        for_each=ForEach("/list", "@"),
        timeout=PATIENCE,
    )
    peer.says("/list", ["a&b", 7])
    peer.answers["/unload"] = reply(b"")
    assert (await release(method, peer, http)).accepted
    first, second = peer.asked[1:]
    assert (first.target, second.target) == ("/unload?id=a%26b&mode=wait", "/unload?id=7&mode=wait")
    assert json.loads(first.body) == {"models": [{"id": "a&b", "keep": 0}], "why": "room for a&b"}
    assert "X-Reason: room for a&b\r\n" in first.head


async def test_an_engine_that_falls_silent_is_not_asked_for_the_rest(ollama: Peer, http: EngineHttp) -> None:
    ollama.silent.add("/api/generate")
    answer = await release(replace(UNLOAD, timeout=100_000), ollama, http)
    assert (answer.accepted, answer.outcome) == (False, "failed")
    assert [each.detail for each in answer.items] == ["did not answer /api/generate in time", "no longer asked"]
    assert ollama.paths.count("/api/generate") == 1


async def test_nobody_listening_fails(http: EngineHttp) -> None:
    answer = await request_release(FREE, Place("http://127.0.0.1:1"), http)
    assert (answer.outcome, answer.detail) == ("failed", "nothing listens at 127.0.0.1:1")


@pytest.mark.parametrize("endpoint", ["http://192.0.2.1:8188", "http://localhost.example:8188", "https://10.0.0.1"])
async def test_another_machine_is_never_asked(http: EngineHttp, endpoint: str) -> None:
    answer = await request_release(FREE, Place(endpoint), http)
    assert (answer.accepted, answer.outcome) == (False, "refused")
    assert "another machine" in answer.detail


@pytest.mark.parametrize("key", ["prompt", "messages"])
async def test_a_request_that_would_start_work_is_never_sent(peer: Peer, http: EngineHttp, key: str) -> None:
    method = ReleaseMethod("http", "POST", "/api/generate", json={"model": "x", "keep_alive": 0, key: ""})
    answer = await release(method, peer, http)
    assert (answer.outcome, peer.asked) == ("refused", [])
    assert key in answer.detail


@pytest.mark.parametrize(
    "raw",
    [
        reply(b""), reply(HTML), reply(b'{"models": [{'), reply(b'{"models": "all"}'), reply(b"[]", 500), REDIRECT,
        reply(b'{"models": [{"name": true}]}'), reply(b'{"models": [{"name": {"a": 1}}]}'),
        reply(b'{"models": [{"name": ""}]}'), reply(b'{"models": [{"name": "' + b"x" * 600 + b'"}]}'),
        reply(json.dumps({"models": [{"name": str(each)} for each in range(MAX_ITEMS + 1)]}).encode()),
    ],
)  # fmt: skip
async def test_an_unusable_list_fails_and_nothing_is_sent(ollama: Peer, http: EngineHttp, raw: bytes) -> None:
    ollama.answers["/api/ps"] = raw
    answer = await release(UNLOAD, ollama, http)
    assert (answer.accepted, answer.outcome) == (False, "failed")
    assert answer.detail.startswith("it was not asked")
    assert "/api/generate" not in ollama.paths


@pytest.mark.parametrize(
    "raw", [REDIRECT, reply(HTML, 500), b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", reply(b"x" * (2 << 20))]
)
async def test_an_unusable_answer_is_not_accepted(peer: Peer, http: EngineHttp, raw: bytes) -> None:
    peer.answers["/free"] = raw
    answer = await release(FREE, peer, http)
    assert not answer.accepted
    assert answer.outcome in ("refused", "failed")


ONLY_IF = ReleaseMethod("http", "POST", "/free", only_if=Condition("/props", "reloads"), timeout=PATIENCE)


async def test_what_is_set_up_for_it_is_asked(peer: Peer, http: EngineHttp) -> None:
    peer.says("/props", {"reloads": True})
    peer.answers["/free"] = reply(b"")
    assert (await release(ONLY_IF, peer, http)).accepted
    assert peer.paths == ["/props", "/free"]


@pytest.mark.parametrize("said", [{"reloads": False}, {"reloads": 1}, {"reloads": "yes"}, {}, []])
async def test_what_is_not_set_up_for_it_is_not_asked(peer: Peer, http: EngineHttp, said: object) -> None:
    peer.says("/props", said)
    answer = await release(ONLY_IF, peer, http)
    assert (answer.outcome, peer.paths) == ("refused", ["/props"])
    assert answer.detail == "it is not configured for this release: reloads is not true"


async def test_what_does_not_tell_how_it_is_set_up_is_not_asked(peer: Peer, http: EngineHttp) -> None:
    answer = await release(ONLY_IF, peer, http)
    assert (answer.outcome, peer.paths) == ("failed", ["/props"])
