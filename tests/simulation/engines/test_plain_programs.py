"""The simulated application of nobody's, and the desktop."""

import json

from gpusupervisor.engine_http import Answer, EngineHttp
from gpusupervisor.simulation.engines.launch import Engine
from tests.simulation.engines.conftest import CardView, Start

GIB, MIB = 1 << 30, 1 << 20
SOON = 10_000_000


async def post(http: EngineHttp, app: Engine, path: str, body: object) -> Answer:
    return await http.request("POST", app.url, path, timeout=SOON, body=json.dumps(body).encode())


async def test_the_third_app_gives_back_what_it_is_asked_for(start: Start, http: EngineHttp, view: CardView) -> None:
    app = await start("third_app", "--hold", "4G", "--floor", "200M")
    assert view.held() == 4 * GIB
    assert (await http.get(app.url, "/status", timeout=SOON)).json() == {"jobs": 0, "cached": True}
    assert (await post(http, app, "/drop", {})).json() == {"dropped": True}
    await view.until(lambda: view.held() == 200 * MIB)


async def test_the_third_app_refuses_while_it_works(start: Start, http: EngineHttp, view: CardView) -> None:
    app = await start("third_app")
    await post(http, app, "/work", {"seconds": 0.3})
    assert (await http.get(app.url, "/status", timeout=SOON)).json() == {"jobs": 1, "cached": True}
    refused = await post(http, app, "/drop", {})
    assert (refused.status, refused.json()) == (409, {"dropped": False})
    await view.until(lambda: not any(process.sm for process in view.processes()))
    assert view.held() == 4 * GIB


async def test_the_desktop_holds_graphics_memory_until_it_ends(start: Start, view: CardView) -> None:
    desktop = await start("desktop", "--hold", "900M")
    (process,) = view.processes()
    assert (process.pid, process.used, process.kinds) == (desktop.pid, 900 * MIB, ("graphics",))
    assert await desktop.stop() == 0
    assert view.processes() == []


async def test_killed_a_holder_leaves_nothing_that_counts(start: Start, view: CardView) -> None:
    desktop = await start("desktop")
    await desktop.kill()
    assert view.processes() == []


async def test_nobody_holds_more_than_there_is(start: Start, view: CardView) -> None:
    await start("third_app", "--hold", "20G")
    await start("third_app", "--hold", "20G")
    assert view.held() == 24 * GIB - 400 * MIB
