"""Engines are asked over real sockets; whatever they answer, nothing breaks and nothing is made up."""

import asyncio
import json

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.engines import ask as module
from gpusupervisor.engines.ask import ask
from gpusupervisor.engines.interpret import ApiFacts
from gpusupervisor.engines.tables import TABLES
from tests.engines.answers import BY_ENGINE, PROPS, ROUTER_PROPS, SYSTEM_STATS, VERSIONS
from tests.engines.builders import process, settings
from tests.http_peer import HTML, REDIRECT, Peer, reply

ASKED = sorted(engine for engine, table in TABLES.items() if table.calls)


def values(facts: ApiFacts | None) -> dict[str, str]:
    assert facts is not None
    return {name: given.value for name, given in facts.told.items()}


async def asked(engine: str, peer: Peer, http: EngineHttp) -> ApiFacts | None:
    return await ask(TABLES[engine], peer.url, http)


@pytest.mark.parametrize("engine", ASKED)
async def test_each_engine_tells_its_version(engine: str, peer: Peer, http: EngineHttp) -> None:
    for path, answer in BY_ENGINE[engine].items():
        peer.says(path, answer)
    facts = await asked(engine, peer, http)
    assert facts is not None
    assert facts.version == VERSIONS[engine]
    assert set(peer.paths) == set(BY_ENGINE[engine])
    assert {request.verb for request in peer.asked} == {"GET"}


async def test_comfyui_tells_its_allocator(peer: Peer, http: EngineHttp) -> None:
    peer.says("/system_stats", SYSTEM_STATS)
    facts = await asked("comfyui", peer, http)
    assert values(facts) == {"pytorch": "2.13.0+cu130", "allocator": "cudaMallocAsync"}
    assert facts is not None
    found = settings("comfyui", process("python main.py"), None, facts)
    assert (found["allocator"].value, found["allocator"].source) == ("cudaMallocAsync", "/system_stats")


async def test_an_old_comfyui_without_half_of_the_fields_is_no_trouble(peer: Peer, http: EngineHttp) -> None:
    peer.says("/system_stats", {"system": {"os": "posix"}, "devices": [{"name": "cpu", "type": "cpu"}]})
    assert await asked("comfyui", peer, http) == ApiFacts()


async def test_llama_server_and_its_router(peer: Peer, http: EngineHttp) -> None:
    peer.says("/props", PROPS)
    assert values(await asked("llama.cpp", peer, http)) == {"context": "2048", "slots": "4", "sleeping": "false"}
    peer.says("/props", ROUTER_PROPS)
    assert values(await asked("llama.cpp", peer, http)) == {"context": "0", "role": "router", "models": "2"}


async def test_what_llama_server_has_switched_off_or_on_is_told(peer: Peer, http: EngineHttp) -> None:
    peer.says("/props", {**PROPS, "endpoint_slots": False, "endpoint_metrics": True})
    facts = await asked("llama.cpp", peer, http)
    assert facts is not None
    found = settings("llama.cpp", process("llama-server"), None, facts)
    assert "never known to be idle" in found["--no-slots"].meaning
    assert (found["--metrics"].value, found["--metrics"].source) == ("true", "/props")
    peer.says("/props", {**ROUTER_PROPS, "models_autoload": False})
    assert values(await asked("llama.cpp", peer, http))["--no-models-autoload"] == "true"


async def test_an_older_sglang_is_asked_by_the_older_name(peer: Peer, http: EngineHttp) -> None:
    peer.says("/get_server_info", {"version": "0.4.1", "enable_memory_saver": True})
    facts = await asked("sglang", peer, http)
    assert facts is not None
    assert (facts.version, values(facts)) == ("0.4.1", {"--enable-memory-saver": "true"})
    assert facts.told["--enable-memory-saver"].source == "/get_server_info"
    assert peer.paths == ["/server_info", "/get_server_info"]


async def test_localai_tells_what_its_page_of_settings_says(peer: Peer, http: EngineHttp) -> None:
    for path, answer in BY_ENGINE["localai"].items():
        peer.says(path, answer)
    facts = await asked("localai", peer, http)
    assert facts is not None
    found = settings("localai", process("local-ai run"), None, facts)
    assert set(found) == {"--max-active-backends", "--enable-watchdog-idle", "--watchdog-idle-timeout"}
    assert found["--watchdog-idle-timeout"].meaning.startswith("an idle model is unloaded after 15min")
    assert {setting.source for setting in found.values()} == {"/api/settings"}


async def test_tabbyapi_tells_the_values_of_the_model_that_is_loaded(peer: Peer, http: EngineHttp) -> None:
    for path, answer in BY_ENGINE["tabbyapi"].items():
        peer.says(path, answer)
    facts = await asked("tabbyapi", peer, http)
    assert values(facts) == {
        "--max-seq-len": "32768", "--cache-size": "65536", "--cache-mode": "8,8", "--max-batch-size": "4",
    }  # fmt: skip


async def test_switches_that_an_api_tells(peer: Peer, http: EngineHttp) -> None:
    for path, answer in (
        *BY_ENGINE["automatic1111"].items(),
        *BY_ENGINE["sglang"].items(),
        *BY_ENGINE["koboldcpp"].items(),
    ):
        peer.says(path, answer)
    webui = await asked("automatic1111", peer, http)
    assert values(webui) == {"--lowvram": "false", "--medvram": "true"}
    assert webui is not None
    assert set(settings("automatic1111", process("python launch.py"), None, webui)) == {"--medvram"}
    sglang = await asked("sglang", peer, http)
    assert sglang is not None
    found = settings("sglang", process("sglang"), None, sglang)
    assert "cannot give memory back" in found["--enable-memory-saver"].meaning
    assert "85%" in found["--mem-fraction-static"].meaning
    kobold = await asked("koboldcpp", peer, http)
    assert kobold is not None
    assert "--admin and --admindir" in settings("koboldcpp", process("koboldcpp"), None, kobold)["admin level"].meaning


@pytest.mark.parametrize("engine", ASKED)
@pytest.mark.parametrize(
    "answer",
    [
        reply(b""),
        reply(HTML, content_type="text/html"),
        reply(b'{"version": "0.1'),
        reply(b'{"detail":"Not authenticated"}', 401),
        reply(b"Internal Server Error", 500, "text/plain"),
        reply(b'{"x": "' + b"x" * (2 << 20) + b'"}'),
        reply(b'{"version": "1"}')[:-5],
        REDIRECT,
        b"SSH-2.0-OpenSSH_9.2\r\n",
    ],
    ids=["empty", "html", "cut", "401", "500", "huge", "truncated", "redirect", "not http"],
)
async def test_no_usable_answer_is_none(
    engine: str, answer: bytes, peer: Peer, http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 300_000)
    peer.answers = dict.fromkeys(BY_ENGINE[engine], answer)
    assert await asked(engine, peer, http) is None


@pytest.mark.parametrize("engine", ASKED)
@pytest.mark.parametrize(
    "answer",
    [None, [], {}, "text", 5, True, {"version": 5, "system": [], "devices": {}, "config": 3}, {"version": {"a": 1}},
     {"system": None, "software": "x", "total_slots": [1], "is_sleeping": {}, "lowvram": [], "admin": None}],
    ids=str,
)  # fmt: skip
async def test_wrong_shapes_tell_nothing(engine: str, answer: object, peer: Peer, http: EngineHttp) -> None:
    peer.answers = dict.fromkeys(BY_ENGINE[engine], reply(json.dumps(answer).encode()))
    facts = await asked(engine, peer, http)
    assert facts in (None, ApiFacts())


async def test_one_path_that_fails_does_not_spoil_the_other(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/v1/app/version", {"version": "6.7.0"})
    facts = await asked("invokeai", peer, http)
    assert facts == ApiFacts("6.7.0")


async def test_a_silent_or_trickling_engine_is_given_up(
    peer: Peer, http: EngineHttp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 50_000)
    peer.silent.add("/api/version")
    peer.trickling.add("/version")
    async with asyncio.timeout(5):
        assert await asked("ollama", peer, http) is None
        assert await asked("vllm", peer, http) is None
    peer.released.set()


async def test_nobody_there_is_none(http: EngineHttp) -> None:
    assert await ask(TABLES["ollama"], "http://127.0.0.1:1", http) is None
    assert await ask(TABLES["ollama"], "", http) is None


async def test_a_version_is_harmless_and_short(peer: Peer, http: EngineHttp) -> None:
    peer.says("/api/version", {"version": "1\x1b[2J" + "9" * 1000})
    facts = await asked("ollama", peer, http)
    assert facts is not None
    assert facts.version.isprintable()
    assert len(facts.version) <= 64
