"""What the `ollama` probe makes of what Ollama and its runners answer."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.tenants.activity.probes.ollama import OllamaProbe
from gpusupervisor.tenants.activity.probes.ollama_answers import runner_ports, wall_clock
from gpusupervisor.tenants.activity.probes.process_activity import Signs
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec
from tests.http_peer import HTML, REDIRECT, Peer, reply
from tests.processes.builders import process
from tests.tenants.activity.builders import GIB, MIDNIGHT, SECOND, context, holder, presence

SPEC = ProbeSpec("ollama", timeout=10 * SECOND)
IMPATIENT = replace(SPEC, timeout=100_000)
FOR_EVER = "2319-03-11T15:42:39.914006061Z"


def stamp(seconds: float) -> str:
    """So many seconds after the tests' instant 0, as Go writes it."""
    whole = datetime.fromtimestamp(MIDNIGHT // SECOND + int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.895425588Z"


def wanted(seen: Observation) -> int | None:
    """Bytes that its models take in total."""
    return seen.placement.wanted if seen.placement else None


def model(name: str = "llama3:8b", size: int = 6 * GIB, vram: int = 6 * GIB, expires: str = "") -> dict[str, object]:
    return {
        "name": name,
        "model": name,
        "size": size,
        "digest": "fd5f44",
        "details": {"format": "gguf", "families": ["llama"]},
        "expires_at": expires or stamp(300),
        "size_vram": vram,
        "context_length": 4096,
    }


@pytest.fixture
async def ollama(peer: Peer) -> Peer:
    peer.says("/api/version", {"version": "0.33.0-rc2"})
    peer.says("/api/ps", {"models": []})
    return peer


@pytest.fixture
async def runner() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    peer.says("/slots", [{"id": 0, "is_processing": False}])
    yield peer
    await peer.stop()


def runs_on(port: int) -> tuple[str, ...]:
    return ("/usr/lib/ollama/llama-server", "--model", "/blob", "--port", str(port), "--host", "127.0.0.1")


def quiet(seconds: int) -> Signs:
    """Processes that were watched for so long and did nothing."""
    return Signs(sm_is_known=True, quiet_span=seconds * SECOND)


async def look(ollama: Peer, http: EngineHttp, *, runner: Peer | None = None) -> Observation:
    who = presence(ollama.url, *([holder(command_line=runs_on(runner.port))] if runner else []))
    return await OllamaProbe(SPEC).observe(context(http, who))


async def test_without_a_model_it_is_idle_and_its_version_known(ollama: Peer, http: EngineHttp) -> None:
    seen = await look(ollama, http)
    assert (seen.state, seen.reason) == ("idle", "no model is loaded")
    assert (seen.version, seen.placement, seen.pinned) == ("0.33.0-rc2", None, False)


async def test_a_runner_with_a_working_slot_is_busy(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    ollama.says("/api/ps", {"models": [model()]})
    runner.says("/slots", [{"id": 0, "is_processing": False}, {"id": 1, "is_processing": True}])
    seen = await look(ollama, http, runner=runner)
    assert (seen.state, seen.reason) == ("busy", "a request is running on llama3:8b")


async def test_a_runner_with_idle_slots_is_idle(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    ollama.says("/api/ps", {"models": [model()]})
    seen = await look(ollama, http, runner=runner)
    assert (seen.state, wanted(seen)) == ("idle", 6 * GIB)


async def test_a_runner_that_still_loads_is_busy(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    ollama.says("/api/ps", {"models": [model()]})
    runner.says("/slots", {"error": {"code": 503, "message": "Loading model"}}, 503)
    assert (await look(ollama, http, runner=runner)).state == "busy"


async def test_one_idle_runner_does_not_vouch_for_two_models(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    ollama.says("/api/ps", {"models": [model(), model("gemma:2b")]})
    seen = await look(ollama, http, runner=runner)
    assert seen.state == "unknown"
    assert "llama3:8b (and 1 more)" in seen.reason


@pytest.mark.parametrize("status", [404, 501, 500])
async def test_an_older_runner_without_slots_leaves_it_unknown(
    ollama: Peer, http: EngineHttp, runner: Peer, status: int
) -> None:
    ollama.says("/api/ps", {"models": [model()]})
    runner.says("/slots", {"error": "no"}, status)
    assert (await look(ollama, http, runner=runner)).state == "unknown"


@pytest.mark.parametrize("slots", [[], {}, [{"id": 0}], [1], [{"is_processing": "false"}], None])
async def test_slots_of_a_wrong_shape_are_no_evidence(
    ollama: Peer, http: EngineHttp, runner: Peer, slots: object
) -> None:
    ollama.says("/api/ps", {"models": [model()]})
    runner.says("/slots", slots)
    assert (await look(ollama, http, runner=runner)).state == "unknown"


async def test_an_expiry_in_the_past_protects_even_with_idle_slots(
    ollama: Peer, http: EngineHttp, runner: Peer
) -> None:
    ollama.says("/api/ps", {"models": [model(expires=stamp(-5))]})
    seen = await look(ollama, http, runner=runner)
    assert seen.state == "stirring"
    assert "past its keep-alive" in seen.reason


async def test_a_keep_alive_that_ran_out_while_the_machine_was_suspended_is_no_work_for_ever(
    ollama: Peer, http: EngineHttp, runner: Peer
) -> None:
    ollama.says("/api/ps", {"models": [model(expires=stamp(-5))]})
    probe = OllamaProbe(SPEC)
    who = presence(ollama.url, holder(sm=0, command_line=runs_on(runner.port)))
    states = [(await probe.observe(context(http, who, at * SECOND, signs=quiet(at)))).state for at in (0, 5, 10)]
    assert states == ["stirring", "stirring", "idle"]
    runner.says("/slots", [{"id": 0, "is_processing": True}])
    assert (await probe.observe(context(http, who, 15 * SECOND))).state == "busy"


async def test_an_expiry_that_moved_forward_was_used_just_now(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    probe = OllamaProbe(SPEC)
    who = presence(ollama.url, holder(command_line=runs_on(runner.port)))
    ollama.says("/api/ps", {"models": [model(expires=stamp(300))]})
    assert (await probe.observe(context(http, who))).state == "idle"
    ollama.says("/api/ps", {"models": [model(expires=stamp(301))]})
    assert (await probe.observe(context(http, who, SECOND))).reason == "llama3:8b was used or loaded a moment ago"
    assert (await probe.observe(context(http, who, 2 * SECOND))).state == "idle"


async def test_a_pinned_model_says_so(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    ollama.says("/api/ps", {"models": [model(expires=FOR_EVER)]})
    seen = await look(ollama, http, runner=runner)
    assert (seen.state, seen.pinned) == ("idle", True)


async def test_a_spilled_model_tells_what_it_wants(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    ollama.says("/api/ps", {"models": [model(size=13 * GIB, vram=9 * GIB)]})
    runner.says("/slots", [{"id": 0, "is_processing": True}])
    seen = await look(ollama, http, runner=runner)
    assert (seen.state, wanted(seen)) == ("busy", 13 * GIB)
    assert seen.reason.endswith("part of it did not fit into VRAM")


async def test_models_of_the_cloud_hold_nothing_here(ollama: Peer, http: EngineHttp) -> None:
    ollama.says("/api/ps", {"models": [{"name": "gpt:cloud", "remote_host": "https://ollama.com"}]})
    seen = await look(ollama, http)
    assert (seen.state, seen.placement) == ("idle", None)


async def test_an_older_runner_is_idle_once_its_processes_were_seen_quiet(ollama: Peer, http: EngineHttp) -> None:
    ollama.says("/api/ps", {"models": [model(expires=FOR_EVER)]})
    probe = OllamaProbe(SPEC)
    who = presence(ollama.url, holder(sm=0, command_line=("ollama", "runner")))
    states = [(await probe.observe(context(http, who, at * SECOND, signs=quiet(at)))).state for at in (0, 5, 10, 11)]
    assert states == ["unknown", "unknown", "idle", "idle"]


async def test_an_older_runner_is_not_idle_within_ten_seconds_of_any_life(ollama: Peer, http: EngineHttp) -> None:
    ollama.says("/api/ps", {"models": [model()]})
    probe, who = OllamaProbe(SPEC), presence(ollama.url, holder(sm=0))
    await probe.observe(context(http, who))
    for at, state in ((15, "unknown"), (16, "idle")):
        signs = replace(quiet(20), live_at=6 * SECOND)
        assert (await probe.observe(context(http, who, at * SECOND, signs=signs))).state == state


async def test_a_model_seen_for_the_first_time_is_not_idle_on_old_quiet(ollama: Peer, http: EngineHttp) -> None:
    probe = OllamaProbe(SPEC)
    who = presence(ollama.url, holder(sm=0))
    for at in (0, 10, 20):
        await probe.observe(context(http, who, at * SECOND, signs=quiet(at)))
    ollama.says("/api/ps", {"models": [model()]})
    assert (await probe.observe(context(http, who, 21 * SECOND, signs=quiet(21)))).state == "unknown"


async def test_the_version_is_asked_once_and_again_after_it_was_gone(ollama: Peer, http: EngineHttp) -> None:
    probe = OllamaProbe(SPEC)
    for at in range(3):
        await probe.observe(context(http, presence(ollama.url), at))
    assert ollama.paths.count("/api/version") == 1
    gone = await probe.observe(context(http, presence("http://127.0.0.1:1"), 3))
    assert (gone.state, gone.unreachable, gone.version) == ("absent", True, "")
    await probe.observe(context(http, presence(ollama.url), 4))
    assert ollama.paths.count("/api/version") == 2


async def test_it_only_reads(ollama: Peer, http: EngineHttp, runner: Peer) -> None:
    ollama.says("/api/ps", {"models": [model()]})
    await look(ollama, http, runner=runner)
    assert {asked.verb for asked in ollama.asked + runner.asked} == {"GET"}
    assert set(ollama.paths) == {"/api/ps", "/api/version"}


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(reply(b""), id="empty"),
        pytest.param(reply(HTML, content_type="text/html"), id="html"),
        pytest.param(reply(b'{"models": [{"na'), id="truncated"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", id="cut off"),
        pytest.param(reply(b'{"models": "' + b"x" * (1 << 20) + b'"}'), id="huge"),
        pytest.param(REDIRECT, id="redirect"),
        pytest.param(reply(b'{"error": "busy"}', 500), id="error"),
        pytest.param(reply(b"{}"), id="partial"),
        pytest.param(reply(b'{"models": null}'), id="null"),
        pytest.param(reply(b"[]"), id="list"),
        pytest.param(reply(b'{"models": ["llama3"]}'), id="names only"),
        pytest.param(reply(b'{"models": [{"name": "x", "size": 1, "size_vram": 1}]}'), id="no expiry"),
        pytest.param(
            reply(b'{"models": [{"name": "x", "size": "1", "expires_at": "2026-11-29T15:59:51Z"}]}'), id="types"
        ),
        pytest.param(reply(b'{"models": [{"name": "x", "size": 1, "expires_at": "2026-13-29T15:59:51Z"}]}'), id="date"),
    ],
)
async def test_an_unusable_answer_is_unknown_with_a_reason(ollama: Peer, http: EngineHttp, raw: bytes) -> None:
    ollama.answers["/api/ps"] = raw
    seen = await look(ollama, http)
    assert seen.state == "unknown"
    assert seen.reason.startswith("its API answered") or "closed the connection" in seen.reason
    assert not seen.unreachable


async def test_a_server_that_never_answers_is_unknown(ollama: Peer, http: EngineHttp) -> None:
    ollama.silent.add("/api/ps")
    seen = await OllamaProbe(IMPATIENT).observe(context(http, presence(ollama.url)))
    assert (seen.state, seen.trouble) == ("unknown", "slow")
    assert seen.reason.startswith("its API did not ")
    assert seen.reason.endswith(" in time")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-11-29T00:00:00.895425588Z", MIDNIGHT / SECOND + 0.895425),
        ("2024-06-04T14:38:31.83753-07:00", 1717537111.83753),
        ("2024-06-04T23:38:31+02:00", 1717537111),
        ("0001-01-01T00:00:00Z", -62135596800),
    ],
)
def test_timestamps_as_go_writes_them(text: str, seconds: float) -> None:
    assert wall_clock(text) == pytest.approx(seconds * SECOND, abs=1)


@pytest.mark.parametrize("text", ["", "soon", "2026-11-29", "2026-11-29T25:00:00Z", 5, None, "٢٠٢٦-11-29T00:00:00Z"])
def test_what_is_no_timestamp_is_none(text: object) -> None:
    assert wall_clock(text) is None


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        (("llama-server", "--port", "4000"), (4000,)),
        (("llama-server", "--port=4000"), (4000,)),
        (("ollama", "runner", "--port", "4000", "--port", "4001"), (4001,)),
        (("ollama", "serve"), ()),
        (("x", "--port"), ()),
        (("x", "--port", "http"), ()),
        (("x", "--port", "99999"), ()),
    ],
)
def test_a_runners_port_is_read_from_its_command_line(line: tuple[str, ...], ports: tuple[int, ...]) -> None:
    assert runner_ports([holder(command_line=line), holder(command_line=line)]) == ports


async def test_a_model_whose_runner_was_killed_is_listed_and_not_there(peer: Peer, http: EngineHttp) -> None:
    """Ollama does not notice that an idle runner has ended."""
    peer.says("/api/ps", {"models": [model()]})
    peer.says("/api/version", {"version": "0.30.0"})
    here = replace(presence(peer.url), servers=(process(50),))
    seen = await OllamaProbe(SPEC).observe(context(http, here))
    assert "lists llama3:8b, but no process of it holds VRAM: its runner has ended" in seen.reason
    assert wanted(seen) is None


async def test_a_version_is_forgotten_with_its_process(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/ps", {"models": []})
    probe = OllamaProbe(SPEC)
    for pid, version in ((50, "0.3.0"), (60, "0.30.0")):
        peer.says("/api/version", {"version": version})
        here = replace(presence(peer.url), servers=(process(pid),))
        for _ in range(2):
            assert (await probe.observe(context(http, here))).version == version
    assert peer.paths.count("/api/version") == 2
