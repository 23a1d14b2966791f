"""What the `comfyui` probe makes of a queue, and when it stops believing it."""

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.probes.comfyui import ComfyUiProbe
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import ProbeSpec
from tests.http_peer import HTML, REDIRECT, Peer, reply
from tests.tenants.activity.builders import GIB, SECOND, context, holder, presence

STUCK_AFTER = 60 * SECOND


def probe() -> ComfyUiProbe:
    return ComfyUiProbe(ProbeSpec("comfyui", timeout=10 * SECOND), STUCK_AFTER)


def length(peer: Peer, remaining: object) -> None:
    peer.says("/prompt", {"exec_info": {"queue_remaining": remaining}})


def queue(peer: Peer, running: list[str], pending: int = 0) -> None:
    rows = [[1, each, {"1": {"inputs": {"text": "a secret wish"}}}, {}, ["1"]] for each in running]
    peer.says("/queue", {"queue_running": rows, "queue_pending": [[2, "later", {}, {}, []]] * pending})


async def looks(
    watcher: ComfyUiProbe, http: EngineHttp, who: TenantPresence, start: int, end: int
) -> list[Observation]:
    """One look every ten seconds."""
    return [await watcher.observe(context(http, who, at * SECOND, cpu=0)) for at in range(start, end + 1, 10)]


async def test_an_empty_queue_is_idle_for_one_small_request(peer: Peer, http: EngineHttp) -> None:
    length(peer, 0)
    seen = await probe().observe(context(http, presence(peer.url)))
    assert (seen.state, seen.reason) == ("idle", "its queue is empty")
    assert peer.paths == ["/prompt"]


@pytest.mark.parametrize(("remaining", "reason"), [(1, "1 prompt in its queue"), (3, "3 prompts in its queue")])
async def test_a_queue_with_prompts_is_busy(peer: Peer, http: EngineHttp, remaining: int, reason: str) -> None:
    length(peer, remaining)
    seen = await probe().observe(context(http, presence(peer.url, holder(sm=90))))
    assert (seen.state, seen.reason) == ("busy", reason)


async def test_a_job_that_computes_is_believed_for_ever_and_its_queue_not_read(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    seen = await looks(probe(), http, presence(peer.url, holder(sm=90)), 0, 600)
    assert {each.state for each in seen} == {"busy"}
    assert "/queue" not in peer.paths


async def test_an_entry_without_life_becomes_stuck(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    queue(peer, ["a"])
    who = presence(peer.url, holder(sm=0, unit="comfyui.service"))
    seen = await looks(probe(), http, who, 0, 80)
    assert [each.state for each in seen] == ["busy"] * 6 + ["stuck"] * 3
    assert "it claims to be running a prompt" in seen[-1].reason
    assert "will run no job" in seen[-1].impact
    assert seen[-1].remedy == "restart it: systemctl restart comfyui.service"


async def test_a_job_over_which_the_machine_was_suspended_is_not_stuck_when_it_wakes(
    peer: Peer, http: EngineHttp
) -> None:
    length(peer, 1)
    queue(peer, ["a"])
    watcher, who, morning = probe(), presence(peer.url, holder(sm=0)), 8 * 3600
    await looks(watcher, http, who, 0, 50)
    seen = await looks(watcher, http, who, morning, morning + 60)
    assert [each.state for each in seen] == ["busy"] * 6 + ["stuck"]


async def test_nobodys_prompt_gets_into_an_observation(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    queue(peer, ["a"])
    seen = await looks(probe(), http, presence(peer.url, holder(sm=0)), 0, 80)
    assert "secret" not in repr(seen)


async def test_life_after_stuck_is_busy_again(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    queue(peer, ["a"])
    watcher = probe()
    assert (await looks(watcher, http, presence(peer.url, holder(sm=0)), 0, 60))[-1].state == "stuck"
    alive = await watcher.observe(context(http, presence(peer.url, holder(sm=40)), 70 * SECOND))
    assert alive.state == "busy"


async def test_moving_vram_is_life(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    queue(peer, ["a"])
    watcher = probe()
    for at in range(0, 200, 10):
        who = presence(peer.url, holder(used=GIB + at * (4 << 20), sm=0))
        assert (await watcher.observe(context(http, who, at * SECOND))).state == "busy"


async def test_another_prompt_at_the_head_is_life(peer: Peer, http: EngineHttp) -> None:
    length(peer, 2)
    watcher = probe()
    queue(peer, ["a"])
    who = presence(peer.url, holder(sm=0))
    await looks(watcher, http, who, 0, 40)
    queue(peer, ["b"])
    assert {each.state for each in await looks(watcher, http, who, 50, 100)} == {"busy"}


async def test_a_queue_that_shrinks_is_life(peer: Peer, http: EngineHttp) -> None:
    watcher = probe()
    who = presence(peer.url, holder(sm=0))
    queue(peer, ["a"])
    length(peer, 2)
    await looks(watcher, http, who, 0, 50)
    length(peer, 1)
    assert (await watcher.observe(context(http, who, 60 * SECOND, cpu=0))).state == "busy"


async def test_waiting_prompts_that_nobody_takes_are_stuck(peer: Peer, http: EngineHttp) -> None:
    length(peer, 2)
    queue(peer, [], pending=2)
    seen = await looks(probe(), http, presence(peer.url, holder(sm=0)), 0, 60)
    assert seen[-1].state == "stuck"
    assert "prompts wait in its queue" in seen[-1].reason


async def test_without_a_view_of_gpu_or_cpu_time_nothing_is_called_stuck(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    queue(peer, ["a"])
    watcher = probe()
    who = presence(peer.url, holder(sm=None))
    states = {(await watcher.observe(context(http, who, at * SECOND))).state for at in range(0, 200, 10)}
    assert states == {"busy"}


async def test_a_queue_too_large_to_read_leaves_the_verdict_to_the_signs_of_life(peer: Peer, http: EngineHttp) -> None:
    length(peer, 1)
    peer.answers["/queue"] = reply(b'"' + b"x" * (1 << 20) + b'"')
    seen = await looks(probe(), http, presence(peer.url, holder(sm=0, user_unit="comfyui.service")), 0, 60)
    assert seen[-1].state == "stuck"
    assert seen[-1].remedy == "restart it: systemctl --user restart comfyui.service"


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
