"""A server that refuses is asked again after pauses that grow, and at once when something has changed."""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from gpusupervisor.engine_http import Answer, EngineHttp, KeyFile, NotAllowed, Unreachable
from gpusupervisor.engine_http.refusals import LONGEST_PAUSE, Refusals
from gpusupervisor.tenants.activity.watched import Watched
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec
from tests.http_peer import Peer
from tests.tenants.activity.builders import context, holder, presence

SOON = 2_000_000
WHERE = "http://127.0.0.1:1"
DAY = 86_400


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    client = EngineHttp(key_owner=os.geteuid())
    yield client
    await client.aclose()


def _requests(refusals: Refusals, status: int, seconds: int) -> list[int]:
    """When a server is asked that always answers this, if somebody wants to know every second."""
    sent = []
    for now in range(seconds):
        if refusals.remembered(WHERE, "/v1/models", (), now) is None:
            sent.append(now)
            refusals.note(WHERE, "/v1/models", (), Answer(status, b"", "text/plain"), now)
    return sent


@pytest.mark.parametrize("status", [401, 403, 407, 429])
def test_a_server_that_refuses_is_asked_twice_in_the_first_minute_and_less_and_less(status: int) -> None:
    sent = _requests(Refusals(), status, DAY)
    pauses = [after - before for before, after in pairwise(sent)]
    assert len([each for each in sent if each < 60]) == 2
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE


@pytest.mark.parametrize("status", [200, 404, 500, 503])
def test_other_answers_are_never_remembered(status: int) -> None:
    assert _requests(Refusals(), status, 10) == list(range(10))


def test_an_answer_that_is_good_again_ends_the_pauses() -> None:
    refusals = Refusals()
    last = _requests(refusals, 401, 1000)[-1]
    refusals.note(WHERE, "/v1/models", (), Answer(200, b"{}", "application/json"), last + LONGEST_PAUSE)
    assert _requests(refusals, 401, 31) == [0, 30]


async def test_a_refusal_stands_for_further_requests_and_other_paths_are_asked(peer: Peer, http: EngineHttp) -> None:
    peer.says("/closed", {"error": "key"}, 401)
    peer.says("/open", {})
    answers = [await http.get(peer.url, path, timeout=SOON) for path in ("/closed", "/open", "/closed", "/open")]
    assert [each.status for each in answers] == [401, 200, 401, 200]
    assert answers[2].body == answers[0].body
    assert peer.paths == ["/closed", "/open", "/open"]


async def test_a_server_that_refused_and_is_gone_is_seen_to_be_gone(peer: Peer, http: EngineHttp) -> None:
    peer.says("/closed", {}, 401)
    for _ in range(2):
        assert (await http.get(peer.url, "/closed", timeout=SOON)).status == 401
    assert (len(peer.asked), peer.connections) == (1, 1)
    await peer.stop()
    async with asyncio.timeout(60):
        while True:
            try:
                await http.get(peer.url, "/closed", timeout=SOON)
            except Unreachable:
                break
            await asyncio.sleep(0.01)


async def test_orders_are_always_sent(peer: Peer, http: EngineHttp) -> None:
    peer.says("/unload", {}, 401)
    for _ in range(2):
        await http.request("POST", peer.url, "/unload", timeout=SOON)
    assert peer.paths == ["/unload", "/unload"]


async def test_another_key_in_the_file_is_tried_at_once(peer: Peer, http: EngineHttp, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("wrong")
    key.chmod(0o640)
    headers = (("Authorization", KeyFile(str(key), "Bearer ")),)
    peer.says("/props", {}, 401)
    for _ in range(2):
        await http.get(peer.url, "/props", timeout=SOON, headers=headers)
    assert len(peer.asked) == 1
    key.write_text("right")
    peer.says("/props", {})
    assert (await http.get(peer.url, "/props", timeout=SOON, headers=headers)).ok
    assert "Bearer right" in peer.asked[-1].head


async def test_another_process_of_the_tenant_is_asked_at_once(peer: Peer, http: EngineHttp) -> None:
    peer.says("/status", {}, 401)
    spec = ActivitySpec((ProbeSpec("http", get="/status", busy_when="busy"),))
    first = presence(peer.url, holder(pid=1))
    second = presence(peer.url, holder(pid=2))
    watched = Watched(first, spec, 0, 0)
    for seen, asked in ((first, 1), (first, 1), (second, 2), (second, 2)):
        await watched.observe(context(http, seen))
        assert len(peer.asked) == asked


async def test_where_nobody_can_be_asked_nothing_is_to_be_forgotten(http: EngineHttp) -> None:
    http.forget_refusals("")
    with pytest.raises(NotAllowed):
        await http.get("", "/x", timeout=SOON)
