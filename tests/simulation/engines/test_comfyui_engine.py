"""The simulated ComfyUI: its queue, /free, and a worker that dies."""

import json
from typing import Any

import pytest

from gpusupervisor.engine_http import Answer, EngineHttp
from gpusupervisor.simulation.engines.launch import Engine
from tests.simulation.engines.conftest import CardView, Start

GIB, MIB = 1 << 30, 1 << 20
SOON = 10_000_000


async def post(http: EngineHttp, comfy: Engine, path: str, body: object) -> Answer:
    return await http.request("POST", comfy.url, path, timeout=SOON, body=json.dumps(body).encode())


async def get(http: EngineHttp, comfy: Engine, path: str) -> Any:
    return (await http.get(comfy.url, path, timeout=SOON)).json()


async def submit(http: EngineHttp, comfy: Engine, seconds: float, vram: str = "8G") -> None:
    node = {"class_type": "SimulatedSampler", "inputs": {"seconds": seconds, "vram": vram}}
    answer: Any = (await post(http, comfy, "/prompt", {"prompt": {"1": node}, "client_id": "me"})).json()
    assert answer["node_errors"] == {}


async def drained(http: EngineHttp, comfy: Engine) -> None:
    """Wait until its queue is empty."""
    while (await get(http, comfy, "/prompt"))["exec_info"]["queue_remaining"]:
        pass


async def test_idle_it_holds_its_context_and_its_queue_is_empty(start: Start, http: EngineHttp, view: CardView) -> None:
    comfy = await start("comfyui")
    assert await get(http, comfy, "/prompt") == {"exec_info": {"queue_remaining": 0}}
    assert await get(http, comfy, "/api/queue") == {"queue_running": [], "queue_pending": []}
    (process,) = view.processes()
    assert (process.pid, process.used) == (comfy.pid, 500 * MIB)
    assert (await get(http, comfy, "/system_stats"))["system"]["comfyui_version"] == "0.3.64"


async def test_prompts_run_one_after_the_other_and_their_memory_stays(
    start: Start, http: EngineHttp, view: CardView
) -> None:
    comfy = await start("comfyui")
    await submit(http, comfy, 0.3)
    await submit(http, comfy, 0.1)
    await view.until(lambda: any(process.sm for process in view.processes()))
    queue = await get(http, comfy, "/queue")
    assert (len(queue["queue_running"]), len(queue["queue_pending"])) == (1, 1)
    assert queue["queue_running"][0][2]["1"]["class_type"] == "SimulatedSampler"
    await drained(http, comfy)
    assert view.held() == 500 * MIB + 8 * GIB
    assert len(await get(http, comfy, "/history")) == 2


async def test_free_while_idle_gives_back_all_but_the_context(start: Start, http: EngineHttp, view: CardView) -> None:
    comfy = await start("comfyui")
    await submit(http, comfy, 0.01)
    await view.until(lambda: view.held() > 8 * GIB)
    answer = await post(http, comfy, "/free", {"unload_models": True, "free_memory": True})
    assert (answer.status, answer.body) == (200, b"")
    await view.until(lambda: view.held() == 500 * MIB)


async def test_free_while_running_waits_for_the_prompt(start: Start, http: EngineHttp, view: CardView) -> None:
    comfy = await start("comfyui")
    await submit(http, comfy, 0.5)
    await view.until(lambda: view.held() > 8 * GIB)
    assert (await post(http, comfy, "/free", {"free_memory": True})).status == 200
    assert (await get(http, comfy, "/prompt"))["exec_info"]["queue_remaining"] == 1
    assert view.held() > 8 * GIB
    await view.until(lambda: view.held() == 500 * MIB)
    assert len(await get(http, comfy, "/history")) == 1


@pytest.mark.parametrize("body", [b"", b"not json", b"[]"])
async def test_free_without_an_object_is_an_internal_error(start: Start, http: EngineHttp, body: bytes) -> None:
    comfy = await start("comfyui")
    answer = await http.request("POST", comfy.url, "/free", timeout=SOON, body=body)
    assert (answer.status, answer.body) == (500, b"500 Internal Server Error\n\nServer got itself in trouble")


async def test_a_dead_worker_leaves_its_entry_and_executes_no_free(
    start: Start, http: EngineHttp, view: CardView
) -> None:
    comfy = await start("comfyui")
    await submit(http, comfy, 0.01)
    await drained(http, comfy)
    await post(http, comfy, "/prompt", {"prompt": {"1": {"class_type": "SimulatedDefect"}}})
    while not (await get(http, comfy, "/queue"))["queue_running"]:
        pass
    assert (await post(http, comfy, "/free", {"unload_models": True, "free_memory": True})).status == 200
    await submit(http, comfy, 0.01)
    queue = await get(http, comfy, "/queue")
    assert (len(queue["queue_running"]), len(queue["queue_pending"])) == (1, 1)
    assert (view.held(), [process.sm for process in view.processes()]) == (500 * MIB + 8 * GIB, [0])


@pytest.mark.parametrize("prompt", [{}, None, {"1": {"class_type": "NoSuch"}}, {"1": "x"}])
async def test_a_prompt_that_cannot_run_is_rejected(start: Start, http: EngineHttp, prompt: object) -> None:
    comfy = await start("comfyui")
    answer = await post(http, comfy, "/prompt", {"prompt": prompt})
    assert answer.status == 400
    assert (await get(http, comfy, "/prompt"))["exec_info"]["queue_remaining"] == 0


async def test_a_foreign_origin_is_forbidden(start: Start, http: EngineHttp) -> None:
    comfy = await start("comfyui")
    foreign = await http.request(
        "POST", comfy.url, "/free", timeout=SOON, body=b"{}", headers=[("Origin", "http://evil.example")]
    )
    assert foreign.status == 403


async def test_it_ends_cleanly(start: Start, view: CardView) -> None:
    comfy = await start("comfyui")
    assert await comfy.stop() == 0
    assert view.held() == 0
