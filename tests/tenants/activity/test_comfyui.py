"""What the `comfyui` probe makes of a queue, and of how a prompt ended."""

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.probes.comfyui import ComfyUiProbe
from gpusupervisor.tenants.activity.probes.process_activity import Signs
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec
from tests.http_peer import HTML, REDIRECT, Peer, reply
from tests.tenants.activity.builders import SECOND, context, holder, presence


def probe() -> ComfyUiProbe:
    return ComfyUiProbe(ProbeSpec("comfyui", timeout=10 * SECOND))


def length(peer: Peer, remaining: object) -> None:
    peer.says("/prompt", {"exec_info": {"queue_remaining": remaining}})


def queue(peer: Peer, running: list[str], pending: int = 0) -> None:
    rows = [[1, each, {"1": {"inputs": {"text": "a secret wish"}}}, {}, ["1"]] for each in running]
    peer.says("/queue", {"queue_running": rows, "queue_pending": [[2, "later", {}, {}, []]] * pending})


async def looks(watcher: ComfyUiProbe, http: EngineHttp, peer: Peer, start: int, end: int) -> list[Observation]:
    """One look every ten seconds, at which its processes do nothing."""
    who = presence(peer.url, holder(sm=0))
    return [await watcher.observe(context(http, who, at * SECOND)) for at in range(start, end + 1, 10)]


async def test_an_empty_queue_is_idle_for_one_small_request(peer: Peer, http: EngineHttp) -> None:
    length(peer, 0)
    seen = await probe().observe(context(http, presence(peer.url)))
    assert (seen.state, seen.reason) == ("idle", "its queue is empty")
    assert peer.paths == ["/prompt"]


@pytest.mark.parametrize(
    ("remaining", "reason"), [(1, "its queue reports 1 prompt"), (3, "its queue reports 3 prompts")]
)
async def test_a_queue_with_prompts_is_a_word(peer: Peer, http: EngineHttp, remaining: int, reason: str) -> None:
    length(peer, remaining)
    seen = await probe().observe(context(http, presence(peer.url, holder(sm=90))))
    assert (seen.state, seen.reason) == ("busy", reason)
    assert "will run no further job" in seen.impact


async def test_the_queue_is_not_read_while_its_processes_work(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    watcher = probe()
    for at in range(0, 600, 10):
        signs = Signs(sm_at=at * SECOND)
        await watcher.observe(context(http, presence(peer.url, holder(sm=90)), at * SECOND, signs=signs))
    assert "/queue" not in peer.paths


async def test_nobodys_prompt_gets_into_an_observation(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    queue(peer, ["a"])
    seen = await looks(probe(), http, peer, 0, 80)
    assert "/queue" in peer.paths
    assert "secret" not in repr(seen)


async def test_the_same_prompt_at_the_head_is_no_progress_and_another_one_is(peer: Peer, http: EngineHttp) -> None:
    length(peer, 2)
    watcher = probe()
    queue(peer, ["a"])
    assert (await looks(watcher, http, peer, 1, 41))[-1].progressed_at == SECOND
    queue(peer, ["b"])
    assert (await looks(watcher, http, peer, 51, 61))[-1].progressed_at == 51 * SECOND


async def test_a_queue_that_shrinks_makes_progress(peer: Peer, http: EngineHttp) -> None:
    watcher = probe()
    queue(peer, ["a"])
    length(peer, 2)
    await looks(watcher, http, peer, 0, 50)
    length(peer, 1)
    assert (await looks(watcher, http, peer, 60, 60))[-1].progressed_at == 60 * SECOND


async def test_prompts_that_nobody_takes_are_named(peer: Peer, http: EngineHttp) -> None:
    length(peer, 2)
    queue(peer, [], pending=2)
    seen = await looks(probe(), http, peer, 0, 60)
    assert seen[-1].reason == "its queue reports 2 prompts, none of which is running"


async def test_a_queue_too_large_to_read_leaves_the_verdict_to_the_processes(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    peer.answers["/queue"] = reply(b'"' + b"x" * (1 << 20) + b'"')
    seen = await looks(probe(), http, peer, 0, 60)
    assert (seen[-1].state, seen[-1].progressed_at) == ("busy", 0)


def history(exception: str) -> object:
    error = ["execution_error", {"prompt_id": "a", "exception_type": exception, "current_inputs": {"text": ["secret"]}}]
    status = {"status_str": "error", "completed": False, "messages": [["execution_start", {}], error]}
    return {"a": {"prompt": [1, "a", {}, {}, []], "outputs": {}, "status": status, "meta": {}}}


@pytest.mark.parametrize(
    ("exception", "failed"),
    [("torch.OutOfMemoryError", True), ("torch.cuda.OutOfMemoryError", True), ("ValueError", False)],
)
async def test_a_prompt_that_failed_for_lack_of_memory_is_noticed_once_it_ended(
    peer: Peer, http: EngineHttp, exception: str, failed: bool
) -> None:
    length(peer, 1)
    watcher = probe()
    await looks(watcher, http, peer, 10, 10)
    assert not any(path.startswith("/history") for path in peer.paths)
    length(peer, 0)
    peer.says("/history", history(exception))
    seen = await looks(watcher, http, peer, 20, 30)
    assert [each.out_of_memory_at for each in seen] == ([20 * SECOND] * 2 if failed else [None] * 2)
    assert [asked.target for asked in peer.asked].count("/history?max_items=1") == 1
    assert "secret" not in repr(seen)


@pytest.mark.parametrize("said", [[], {"a": 1}, {"a": {"status": {"messages": [1, ["execution_error"]]}}}, "x", None])
async def test_a_history_of_another_shape_says_nothing(peer: Peer, http: EngineHttp, said: object) -> None:
    length(peer, 1)
    watcher = probe()
    await looks(watcher, http, peer, 10, 10)
    length(peer, 0)
    peer.says("/history", said)
    (seen,) = await looks(watcher, http, peer, 20, 20)
    assert (seen.state, seen.out_of_memory_at) == ("idle", None)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(reply(b""), id="empty"),
        pytest.param(reply(HTML), id="html"),
        pytest.param(reply(b"{}"), id="partial"),
        pytest.param(reply(b'{"exec_info": {"queue_remaining": "0"}}'), id="text"),
        pytest.param(reply(b'{"exec_info": {"queue_remaining": true}}'), id="bool"),
        pytest.param(reply(b'{"exec_info": {"queue_remaining": -1}}'), id="negative"),
        pytest.param(reply(b'{"exec_info": {"queue_remaining": 0.0}}'), id="fraction"),
        pytest.param(reply(b'{"exec_info": [0]}'), id="list"),
        pytest.param(reply(b'{"exec_info": {"queue_rem'), id="truncated"),
        pytest.param(REDIRECT, id="redirect"),
        pytest.param(reply(b"no", 403), id="forbidden"),
    ],
)
async def test_an_unusable_answer_is_unknown(peer: Peer, http: EngineHttp, raw: bytes) -> None:
    peer.answers["/prompt"] = raw
    seen = await probe().observe(context(http, presence(peer.url, holder())))
    assert seen.state == "unknown"
    assert seen.reason.startswith("its API answered")


async def test_nobody_listening_is_absent_and_unreachable(http: EngineHttp) -> None:
    seen = await probe().observe(context(http, presence("http://127.0.0.1:1")))
    assert (seen.state, seen.unreachable) == ("absent", True)
