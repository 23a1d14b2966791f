"""The load that engines do: over real sockets, with what the real ones were seen to answer."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.autotune.curve import Work
from gpusupervisor.autotune.load import Place, load_for
from gpusupervisor.autotune.run import Load, Stopped
from gpusupervisor.clock import SystemClock
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.errors import InvalidArgument, NotSupported
from gpusupervisor.simulation.engines.launch import start_engine
from gpusupervisor.simulation.nvml import SimulatedCard
from tests.http_peer import HTML, Peer, reply

CLOCK = SystemClock()
SOON = 10_000_000
OLLAMA: dict[str, Any] = {
    "model": "smollm2",
    "response": "The sky is indeed blue",
    "done": True,
    "done_reason": "length",
    "total_duration": 475848601,
    "load_duration": 1836019,
    "prompt_eval_count": 15,
    "prompt_eval_duration": 141060000,
    "eval_count": 20,
    "eval_duration": 1000,
}
LLAMA_CPP: dict[str, Any] = {
    "content": ", the city of Newtown",
    "stop": True,
    "tokens_predicted": 20,
    "stop_type": "limit",
    "timings": {"prompt_n": 4, "prompt_ms": 196.228, "predicted_n": 20, "predicted_ms": 0.002},
}


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    await peer.stop()


def load(engine: str, http: EngineHttp, peer: Peer, tokens: int = 20) -> Load:
    return load_for(engine, http, CLOCK, Place(peer.url), "smollm2", tokens)


async def test_ollama_is_asked_for_the_same_each_time(http: EngineHttp, peer: Peer) -> None:
    peer.says("/api/generate", OLLAMA)
    ollama = load("ollama", http, peer)
    await ollama.prepare()
    assert await ollama.run(SOON) == Work(20, 1)
    await ollama.run(SOON)
    loading, first, second = (json.loads(asked.body) for asked in peer.asked)
    assert loading == {"model": "smollm2", "stream": False}
    assert first == second
    assert first["options"] == {"num_predict": 20, "seed": 1, "temperature": 0}
    assert "keep_alive" not in first


async def test_llama_cpp_counts_what_it_generated_by_its_own_clock(http: EngineHttp, peer: Peer) -> None:
    peer.says("/health", {"status": "ok"})
    peer.says("/completion", LLAMA_CPP)
    server = load("llama.cpp", http, peer)
    await server.prepare()
    assert await server.run(SOON) == Work(20, 2)
    sent = json.loads(peer.asked[-1].body)
    assert (sent["n_predict"], sent["ignore_eos"], sent["cache_prompt"]) == (20, True, False)


async def test_an_engine_that_does_not_count_time_is_timed_from_outside(http: EngineHttp, peer: Peer) -> None:
    peer.says("/completion", {**LLAMA_CPP, "timings": None})
    begun = CLOCK.now()
    work = await load("llama.cpp", http, peer).run(SOON)
    assert 1 <= work.duration <= CLOCK.now() - begun


@pytest.mark.parametrize("absurd", [-5, 0, 10**18, "soon", True])
async def test_a_time_that_cannot_be_true_is_not_taken(http: EngineHttp, peer: Peer, absurd: object) -> None:
    peer.says("/api/generate", {**OLLAMA, "eval_duration": absurd})
    begun = CLOCK.now()
    assert 1 <= (await load("ollama", http, peer).run(SOON)).duration <= CLOCK.now() - begun


@pytest.mark.parametrize("count", [None, 3, 0, -20, "20", True, 10**9])
async def test_another_number_of_tokens_is_another_load(http: EngineHttp, peer: Peer, count: object) -> None:
    peer.says("/api/generate", {**OLLAMA, "eval_count": count})
    with pytest.raises(Stopped, match="did not make the 20 tokens"):
        await load("ollama", http, peer).run(SOON)


async def test_an_engine_that_cannot_says_why(http: EngineHttp, peer: Peer) -> None:
    peer.says("/api/generate", {"error": "model 'smollm2' not\x1b[2J found"}, 404)
    with pytest.raises(NotSupported, match=r"HTTP 404: model 'smollm2' not \[2J found"):
        await load("ollama", http, peer).prepare()
    peer.says("/health", {"error": {"code": 503, "message": "Loading model"}}, 503)
    with pytest.raises(NotSupported, match="HTTP 503: Loading model"):
        await load("llama.cpp", http, peer).prepare()


async def test_an_engine_that_is_not_there_cannot(http: EngineHttp, peer: Peer) -> None:
    await peer.stop()
    with pytest.raises(NotSupported, match="nothing listens"):
        await load("ollama", http, peer).prepare()


async def test_an_engine_on_another_machine_is_not_asked(http: EngineHttp) -> None:
    with pytest.raises(NotSupported, match="not on this machine"):
        await load_for("llama.cpp", http, CLOCK, Place("http://192.0.2.1:8080"), "", 20).prepare()


@pytest.mark.parametrize("answer", [reply(HTML), reply(b"[]"), reply(b"{}", 500), b"nonsense"])
async def test_nonsense_during_the_sweep_stops_it(http: EngineHttp, peer: Peer, answer: bytes) -> None:
    peer.answers["/completion"] = answer
    with pytest.raises(Stopped):
        await load("llama.cpp", http, peer).run(SOON)


async def test_a_run_that_takes_too_long_is_given_up(http: EngineHttp, peer: Peer) -> None:
    peer.silent.add("/completion")
    with pytest.raises(Stopped, match="in time"):
        await load("llama.cpp", http, peer).run(20_000)
    peer.released.set()


async def test_cancelled_it_hangs_up_so_that_the_engine_stops(http: EngineHttp, peer: Peer) -> None:
    peer.says("/health", {"status": "ok"})
    peer.silent.add("/completion")
    server = load("llama.cpp", http, peer)
    await server.prepare()
    peer.arrived.clear()
    running = asyncio.ensure_future(server.run(SOON))
    await peer.arrived.wait()
    assert peer.connections == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await server.prepare()
    assert peer.connections == 2
    peer.released.set()


def test_engines_without_a_load_are_named(http: EngineHttp) -> None:
    with pytest.raises(NotSupported, match="'comfyui'"):
        load_for("comfyui", http, CLOCK, Place("http://127.0.0.1:8188"), "", 20)


@pytest.mark.parametrize(("model", "tokens"), [("", 256), ("smollm2", 0), ("smollm2", 1_000_000)])
def test_a_load_must_be_described(http: EngineHttp, model: str, tokens: int) -> None:
    with pytest.raises(InvalidArgument):
        load_for("ollama", http, CLOCK, Place("http://127.0.0.1:11434"), model, tokens)


class TestSimulatedOllama:
    """The simulated Ollama as a process, with a model on a simulated card."""

    @pytest.fixture(autouse=True)
    def no_blocking_calls(self) -> None:
        """Not here: it is another process that is waited for."""

    @pytest.fixture
    async def endpoint(self, tmp_path: Path) -> AsyncIterator[str]:
        SimulatedCard(tmp_path / "card").write_card()
        options = ("--port", "0", "--model", "small=6G", "--load-time", "50ms", "--tokens-per-second", "200")
        engine = await start_engine("ollama", "--card", tmp_path / "card", "--return-delay", "10ms", *options)
        yield engine.url
        await engine.stop()

    async def test_it_loads_and_generates(self, http: EngineHttp, endpoint: str) -> None:
        ollama = load_for("ollama", http, CLOCK, Place(endpoint), "small", 20)
        await ollama.prepare()
        work = await ollama.run(SOON)
        assert work.units == 20
        assert work.duration >= 100_000  # 20 tokens at 200 a second

    async def test_a_model_that_it_has_not_is_not_supported(self, http: EngineHttp, endpoint: str) -> None:
        with pytest.raises(NotSupported, match="model 'large' not found"):
            await load_for("ollama", http, CLOCK, Place(endpoint), "large", 20).prepare()
