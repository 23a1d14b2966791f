"""Room for a load is made when no other plan is being carried out on the GPU."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any

from gpusupervisor.arbitration.arbiter import Arbiter
from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.events import Event, PlanFinished, PlanStarted
from gpusupervisor.arbitration.plan import Request
from gpusupervisor.arbitration.situation import PlanResult, Situation
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.keepers.load_books import LoadBooks
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.keepers.model_keeper import ModelKeeper
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.service import Telemetry
from tests.arbitration.builders import CARD, GIB, situation, starving, tenant
from tests.arbitration.fake_world import FakeWorld


async def test_a_plan_that_begins_while_it_is_looked_is_waited_for() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("lazy", 9), tenant("idler", 9), tenant("loader"), free=1))
    world.comes_back = {"lazy": (0, 9 * GIB), "idler": (0, 9 * GIB)}
    events: list[Event] = []
    tasks: list[asyncio.Task[PlanResult]] = []

    def spawn(work: Coroutine[Any, Any, PlanResult]) -> asyncio.Task[PlanResult]:
        tasks.append(asyncio.ensure_future(work))
        return tasks[-1]

    arbiter = Arbiter(world, world, events.append, spawn, 0)

    def serve_the_starved(now: Situation) -> Situation:
        if not tasks:
            arbiter.act(now, assess(now), automatic=True)
        return now

    world.on_look = serve_the_starved
    telemetry = Telemetry(None, Limits(0, 0), world)
    books = LoadBooks(ResidencyKeeper(world, ModelFacts(telemetry)), telemetry)
    async with aclosing(EngineHttp()) as http:
        keeper = ModelKeeper(http, world, world, arbiter, asyncio.ensure_future, books)
        async with asyncio.timeout(10):
            await keeper.make_room(Request("make-room", CARD, "loader", 18 * GIB, rank=50))
            await asyncio.gather(*tasks)
    order = [type(event).__name__ for event in events if isinstance(event, PlanStarted | PlanFinished)]
    assert order == ["PlanStarted", "PlanFinished", "PlanStarted", "PlanFinished"], "one after the other"
    assert {name for name, _ in world.requested} == {"lazy", "idler"}
