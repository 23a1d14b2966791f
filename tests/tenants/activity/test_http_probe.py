"""The `http` probe: three values from any JSON."""

from dataclasses import replace

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.processes.settings_files import SettingsFile
from gpusupervisor.tenants.activity.probes.http import HttpProbe
from gpusupervisor.tenants.activity.verdict import Observation
from gpusupervisor.tenants.definition import ProbeSpec
from tests.http_peer import HTML, REDIRECT, Peer, reply
from tests.tenants.activity.builders import SECOND, context, holder, presence

JOBS = ProbeSpec("http", get="/status", busy_when="jobs > `0`", timeout=10 * SECOND)
IMPATIENT = replace(JOBS, timeout=100_000)
SLEEPER = ProbeSpec(
    "http", get="/slots", first="/props", asleep_when="is_sleeping", busy_when="[0].is_processing", timeout=10 * SECOND
)


async def look(spec: ProbeSpec, peer: Peer, http: EngineHttp) -> Observation:
    return await HttpProbe(spec).observe(context(http, presence(peer.url), 7))


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({"jobs": 2}, "busy"),
        ({"jobs": 0}, "idle"),
        ({"jobs": None}, "unknown"),
        ({"jobs": "0"}, "unknown"),
        ({}, "unknown"),
        ([], "unknown"),
        ("idle", "unknown"),
    ],
)
async def test_true_is_busy_false_is_idle_and_all_else_unknown(
    peer: Peer, http: EngineHttp, said: object, state: str
) -> None:
    peer.says("/status", said)
    seen = await look(JOBS, peer, http)
    assert (seen.state, seen.observed_at) == (state, 7)


async def test_an_expression_that_does_not_fit_the_answer_is_unknown(peer: Peer, http: EngineHttp) -> None:
    peer.says("/status", {"jobs": "many"})
    spec = ProbeSpec("http", get="/status", busy_when="sum(jobs) > `0`", timeout=10 * SECOND)
    seen = await look(spec, peer, http)
    assert seen.state == "unknown"
    assert "expression does not fit" in seen.reason


async def test_what_sleeps_is_idle_and_is_not_woken(peer: Peer, http: EngineHttp) -> None:
    peer.says("/props", {"is_sleeping": True})
    seen = await look(SLEEPER, peer, http)
    assert (seen.state, seen.reason) == ("idle", "asleep")
    assert peer.paths == ["/props"]


@pytest.mark.parametrize("props", [{"is_sleeping": False}, {}])
async def test_what_does_not_sleep_is_asked(peer: Peer, http: EngineHttp, props: object) -> None:
    peer.says("/props", props)
    peer.says("/slots", [{"is_processing": True}])
    assert (await look(SLEEPER, peer, http)).state == "busy"


@pytest.mark.parametrize(
    ("line", "spared"),
    [
        (("llama-server", "--sleep-idle-seconds", "300"), True),
        (("llama-server", "--sleep-idle-seconds", "-1"), False),
        (("llama-server", "--sleep-idle-seconds"), False),
        (("llama-server",), False),
    ],
)
async def test_what_would_go_to_sleep_is_not_kept_awake(
    peer: Peer, http: EngineHttp, line: tuple[str, ...], spared: bool
) -> None:
    peer.says("/props", {"is_sleeping": False})
    peer.says("/slots", [{"is_processing": False}])
    spec = replace(SLEEPER, sleep_flag="--sleep-idle-seconds")
    seen = await HttpProbe(spec).observe(context(http, presence(peer.url, holder(command_line=line))))
    assert (seen.state, seen.defers) == (("unknown", True) if spared else ("idle", False))
    assert peer.paths == (["/props"] if spared else ["/props", "/slots"])
    peer.says("/props", {"is_sleeping": True})
    asleep = await HttpProbe(spec).observe(context(http, presence(peer.url, holder(command_line=line))))
    assert (asleep.state, asleep.reason) == ("idle", "asleep")


@pytest.mark.parametrize(
    ("files", "hidden", "spared"),
    [
        ((SettingsFile("/f", values=(("sleep-idle-seconds", "60"),)),), frozenset(), True),
        ((SettingsFile("/f", values=(("sleep-idle-seconds", "-1"),)),), frozenset(), False),
        ((SettingsFile("/f", readable=False),), frozenset(), True),
        ((), frozenset({"environment"}), True),
        ((), frozenset(), False),
    ],
)
async def test_what_may_go_to_sleep_by_its_configuration_file_is_not_kept_awake(
    peer: Peer, http: EngineHttp, files: tuple[SettingsFile, ...], hidden: frozenset[str], spared: bool
) -> None:
    peer.says("/props", {"is_sleeping": False})
    peer.says("/slots", [{"is_processing": False}])
    one = holder(command_line=("llama-server",))
    assert one.identity is not None
    one = replace(one, identity=replace(one.identity, configuration=files, hidden=hidden))
    spec = replace(SLEEPER, sleep_flag="--sleep-idle-seconds")
    seen = await HttpProbe(spec).observe(context(http, presence(peer.url, one)))
    assert (seen.state, seen.defers) == (("unknown", True) if spared else ("idle", False))
    assert ("/slots" in peer.paths) == (not spared)


async def test_a_server_that_may_sleep_is_not_kept_awake_while_it_holds_no_vram_either(
    peer: Peer, http: EngineHttp
) -> None:
    peer.says("/props", {"is_sleeping": False})
    server = holder(command_line=("llama-server", "--sleep-idle-seconds", "300")).identity
    assert server is not None
    idle = replace(presence(peer.url), servers=(server,))
    seen = await HttpProbe(replace(SLEEPER, sleep_flag="--sleep-idle-seconds")).observe(context(http, idle))
    assert (seen.state, seen.defers) == ("unknown", True)
    assert peer.paths == ["/props"]


async def test_of_several_processes_only_those_are_spared_that_would_go_to_sleep(peer: Peer, http: EngineHttp) -> None:
    peer.says("/props", {"is_sleeping": False})
    peer.says("/slots", [{"is_processing": True}])
    spec = replace(SLEEPER, sleep_flag="--sleep-idle-seconds", worker_port_flag="--port")
    port = ("llama-server", "--port", str(peer.port))
    sleeper = holder(1, command_line=(*port, "--sleep-idle-seconds", "300"))
    both = presence("", sleeper, holder(2, command_line=port))
    assert (await HttpProbe(spec).observe(context(http, both))).state == "busy"
    peer.says("/slots", [{"is_processing": False}])
    seen = await HttpProbe(spec).observe(context(http, both))
    assert (seen.state, seen.defers) == ("unknown", True), "the quiet of both decides"
    peer.says("/slots", {"error": "no list"})
    doubtful = await HttpProbe(spec).observe(context(http, both))
    assert (doubtful.state, doubtful.defers) == ("unknown", False)


async def test_when_sleep_cannot_be_asked_for_nothing_else_is_sent(peer: Peer, http: EngineHttp) -> None:
    peer.says("/slots", [{"is_processing": False}])
    seen = await look(SLEEPER, peer, http)
    assert seen.state == "unknown"
    assert peer.paths == ["/props"]


@pytest.mark.parametrize(
    "raw",
    [
        reply(b""), reply(HTML), reply(b'{"jobs": 0'), reply(b'{"jobs": 0}', 500), reply(b'{"jobs": 0}', 404),
        REDIRECT, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", reply(b"[" * 60_000 + b"]" * 60_000),
        reply(b'{"jobs": 0, "x": "' + b"y" * (1 << 20) + b'"}'),
    ],
)  # fmt: skip
async def test_an_unusable_answer_is_unknown_with_a_reason(peer: Peer, http: EngineHttp, raw: bytes) -> None:
    peer.answers["/status"] = raw
    seen = await look(JOBS, peer, http)
    assert seen.state == "unknown"
    assert seen.reason.startswith("its API ")


async def test_a_server_that_never_answers_is_unknown(peer: Peer, http: EngineHttp) -> None:
    peer.silent.add("/status")
    seen = await look(IMPATIENT, peer, http)
    assert (seen.state, seen.unreachable) == ("unknown", False)


async def test_nobody_listening_is_absent(http: EngineHttp) -> None:
    seen = await HttpProbe(JOBS).observe(context(http, presence("http://127.0.0.1:1")))
    assert (seen.state, seen.unreachable) == ("absent", True)


async def test_without_an_endpoint_it_is_unknown_while_something_of_it_is_there(http: EngineHttp) -> None:
    seen = await HttpProbe(JOBS).observe(context(http, presence("", holder())))
    assert (seen.state, seen.reason) == ("unknown", "its API cannot be asked: no address is known")
    gone = await HttpProbe(JOBS).observe(context(http, presence("")))
    assert (gone.state, gone.reason) == ("absent", "it does not run, or holds no VRAM")


async def test_another_machine_is_asked_only_when_a_file_names_it(http: EngineHttp) -> None:
    named = replace(presence("http://192.0.2.1:9", holder()), endpoint_is_written=False)
    seen = await HttpProbe(JOBS).observe(context(http, named))
    assert (seen.state, seen.reason) == (
        "unknown", "its API cannot be asked: http://192.0.2.1:9 is not on this machine",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "trouble"),
    [
        (reply(b'{"jobs": 0}'), ""),
        (reply(b"{}"), ""),
        (reply(HTML), "nonsense"),
        (reply(b"{}", 500), "nonsense"),
        (REDIRECT, "nonsense"),
        (reply(b"{}", 401), "needs-key"),
        (reply(b"{}", 403), "needs-key"),
    ],
)
async def test_what_is_wrong_with_an_api_is_told_apart(
    peer: Peer, http: EngineHttp, answer: bytes, trouble: str
) -> None:
    peer.answers["/status"] = answer
    assert (await look(JOBS, peer, http)).trouble == trouble


async def test_an_api_that_is_silent_is_slow_and_one_that_is_not_there_unreachable(
    peer: Peer, http: EngineHttp
) -> None:
    peer.silent.add("/status")
    assert (await look(IMPATIENT, peer, http)).trouble == "slow"
    nobody = await HttpProbe(JOBS).observe(context(http, presence("http://127.0.0.1:1", holder())))
    assert nobody.trouble == "unreachable"
    nowhere = await HttpProbe(JOBS).observe(context(http, presence("", holder())))
    assert nowhere.trouble == "not-allowed"
