"""The simulated Ollama behaves as the real one was seen to, as processes and over HTTP."""

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.simulation.engines.launch import Engine, disguised_python
from gpusupervisor.simulation.nvml import SimulatedCard, SimulatedGpu
from gpusupervisor.tenants.activity.probes.ollama_answers import FOR_EVER, local_models
from tests.simulation.engines.conftest import CardView, Start

GIB = 1 << 30
OPTIONS = ("--model", "small=6G", "--model", "large=40G", "--load-time", "50ms", "--tokens-per-second", "50")
SOON = 10_000_000


async def generate(http: EngineHttp, ollama: Engine, **body: object) -> tuple[int, Any]:
    answer = await http.request(
        "POST", ollama.url, "/api/generate", timeout=SOON, body=json.dumps({"stream": False, **body}).encode()
    )
    return answer.status, answer.json()


async def listed(http: EngineHttp, ollama: Engine) -> list[dict[str, Any]]:
    answer: Any = (await http.get(ollama.url, "/api/ps", timeout=SOON)).json()
    models: list[dict[str, Any]] = answer["models"]
    return models


async def test_loading_holds_vram_in_a_runner_of_its_own(start: Start, http: EngineHttp, view: CardView) -> None:
    ollama = await start("ollama", *OPTIONS)
    assert (await http.get(ollama.url, "/", timeout=SOON)).text() == "Ollama is running"
    assert await listed(http, ollama) == []
    status, answer = await generate(http, ollama, model="small")
    assert (status, answer["done_reason"], answer["response"]) == (200, "load", "")
    (model,) = await listed(http, ollama)
    assert (model["name"], model["size"], model["size_vram"]) == ("small:latest", 6 * GIB, 6 * GIB)
    (process,) = view.processes()
    assert (process.used, process.kinds) == (6 * GIB, ("compute",))
    assert process.pid != ollama.pid
    command_line = Path(f"/proc/{process.pid}/cmdline").read_bytes().decode().split("\0")
    port = command_line[command_line.index("--port") + 1]
    slots = await http.get(f"http://127.0.0.1:{port}", "/slots", timeout=SOON)
    assert slots.json() == [{"id": 0, "n_ctx": 4096, "speculative": False, "is_processing": False}]


async def test_a_power_limit_that_holds_the_clock_down_makes_it_slower(
    start: Start, http: EngineHttp, card: Path
) -> None:
    SimulatedCard(card).change_board(SimulatedGpu().uuid, power=400_000)
    ollama = await start("ollama", *OPTIONS)
    asked = {"model": "small", "prompt": "x", "options": {"num_predict": 10}}
    _, free = await generate(http, ollama, **asked)
    SimulatedCard(card).change_board(SimulatedGpu().uuid, power_default=200_000)
    _, held = await generate(http, ollama, **asked)
    assert 0.2 <= free["eval_duration"] / 1e9 < 0.25
    assert 0.2 * 2 ** (1 / 3) <= held["eval_duration"] / 1e9 < 0.3, "the clock goes with the cube root of the power"


async def test_what_does_not_fit_spills(start: Start, http: EngineHttp) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="large")
    (model,) = await listed(http, ollama)
    assert model["size"] == 40 * GIB
    assert model["size_vram"] == 24 * GIB - (400 << 20)


async def test_unload_during_a_generation_answers_at_once_and_happens_later(
    start: Start, http: EngineHttp, view: CardView
) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="small")
    working = asyncio.create_task(generate(http, ollama, model="small", prompt="hello", options={"num_predict": 50}))
    await view.until(lambda: any(process.sm > 0 for process in view.processes()))
    status, answer = await generate(http, ollama, model="small", keep_alive=0)
    assert (status, answer["done_reason"]) == (200, "unload")
    (model,) = local_models({"models": await listed(http, ollama)})
    assert model.expires_at < time.time_ns() // 1000
    assert not working.done()
    assert view.held() == 6 * GIB
    status, answer = await working
    assert (status, answer["done_reason"], answer["eval_count"]) == (200, "stop", 50)
    assert await listed(http, ollama) == []
    await view.until(lambda: view.held() == 0)


async def test_idle_unload_gives_the_memory_back_a_little_later(start: Start, http: EngineHttp, view: CardView) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="small")
    await generate(http, ollama, model="small", keep_alive=0)
    assert await listed(http, ollama) == []
    assert view.held() == 6 * GIB
    await view.until(lambda: view.held() == 0)


@pytest.mark.parametrize(
    ("name", "status"), [("nosuch", 404), ("small", 200)], ids=["unknown model", "model that is not loaded"]
)
async def test_unloading_what_is_not_there(start: Start, http: EngineHttp, name: str, status: int) -> None:
    ollama = await start("ollama", *OPTIONS)
    told, answer = await generate(http, ollama, model=name, keep_alive=0)
    assert told == status
    assert answer.get("error", "") == ("model 'nosuch' not found" if status == 404 else "")


async def test_keep_alive_decides_when_it_goes(start: Start, http: EngineHttp, view: CardView) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="small", keep_alive=-1)
    (model,) = local_models({"models": await listed(http, ollama)})
    assert model.expires_at > FOR_EVER
    await generate(http, ollama, model="small", keep_alive="100ms")
    await view.until(lambda: view.held() == 0)
    assert await listed(http, ollama) == []


async def test_an_idle_model_makes_way_for_another(start: Start, http: EngineHttp) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="small")
    await generate(http, ollama, model="large")
    assert [model["name"] for model in await listed(http, ollama)] == ["large:latest"]


async def test_a_killed_runner_stays_listed_until_the_next_request(
    start: Start, http: EngineHttp, view: CardView
) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="small")
    (process,) = view.processes()
    os.kill(process.pid, 9)
    await view.until(lambda: view.held() == 0)
    assert len(await listed(http, ollama)) == 1
    await generate(http, ollama, model="small")
    assert view.held() == 6 * GIB


async def test_a_generation_streams_lines_unless_told_otherwise(start: Start, http: EngineHttp) -> None:
    ollama = await start("ollama", *OPTIONS)
    body = json.dumps({"model": "small", "prompt": "x", "options": {"num_predict": 1}}).encode()
    answer = await http.request("POST", ollama.url, "/api/generate", timeout=SOON, body=body)
    lines = [json.loads(line) for line in answer.text().splitlines()]
    assert answer.content_type == "application/x-ndjson"
    assert [line["done"] for line in lines] == [False, True]


async def test_it_ends_cleanly_and_its_runners_with_it(start: Start, http: EngineHttp, view: CardView) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="small")
    assert await ollama.stop() == 0
    assert view.held() == 0


async def test_killed_it_leaves_no_runner(start: Start, http: EngineHttp, view: CardView) -> None:
    ollama = await start("ollama", *OPTIONS)
    await generate(http, ollama, model="small")
    (runner,) = view.processes()
    await ollama.kill()
    await view.until(lambda: view.held() == 0)
    await view.until(lambda: not Path(f"/proc/{runner.pid}/exe").exists())


async def test_disguised_it_looks_like_an_installed_ollama(
    start: Start, http: EngineHttp, view: CardView, tmp_path: Path
) -> None:
    home = tmp_path / "usr"
    executable = disguised_python(home / "bin/ollama")
    ollama = await start("ollama", *OPTIONS, "--home", str(home), executable=executable)
    await generate(http, ollama, model="small")
    (runner,) = view.processes()
    assert os.readlink(f"/proc/{ollama.pid}/exe") == str(executable)
    assert os.readlink(f"/proc/{runner.pid}/exe") == str(home / "lib/ollama/llama-server")
