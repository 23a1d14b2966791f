"""The arbiter over a world whose memory moves in simulated time."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from gpusupervisor.arbitration.arbiter import LATE_WINDOW, RETRY_AFTER, Arbiter
from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.eligibility import Objection, refusal
from gpusupervisor.arbitration.events import Event, PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.execute import ReleaseReply
from gpusupervisor.arbitration.plan import Request, make_release
from gpusupervisor.arbitration.situation import (
    Assessment,
    GpuSituation,
    PlanResult,
    ReleasePlan,
    Situation,
    TenantSituation,
    UnmanagedHolder,
)
from gpusupervisor.errors import Busy
from tests.arbitration.builders import CARD, GIB, MINUTE, NOW, situation, starving, tenant
from tests.arbitration.fake_world import SECOND, FakeWorld
from tests.arbitration.seen import doing, process, seen

OTHER = "GPU-2"
ARBITER_RESERVATION = 45 * SECOND


@dataclass
class Bench:
    """An arbiter, what it announced, and the plans that it carries out."""

    world: FakeWorld
    events: list[Event] = field(default_factory=list)
    tasks: list[asyncio.Task[PlanResult]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.arbiter = Arbiter(self.world, self.world, self.events.append, self._spawn, ARBITER_RESERVATION)

    def _spawn(self, work: Coroutine[Any, Any, PlanResult]) -> asyncio.Task[PlanResult]:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.append(task)
        return task

    def act(self, now: Situation | None = None, *, automatic: bool = True) -> dict[str, Assessment]:
        now = now or self.world.situation
        return self.arbiter.act(now, assess(now), automatic=automatic)

    async def ended(self) -> None:
        """Wait for every plan under way."""
        async with asyncio.timeout(10):
            await asyncio.gather(*self.tasks)

    def made(self) -> list[PlanMade]:
        return [event for event in self.events if isinstance(event, PlanMade)]

    def started(self) -> list[PlanStarted]:
        return [event for event in self.events if isinstance(event, PlanStarted)]

    def results(self) -> list[PlanResult]:
        return [event.result for event in self.events if isinstance(event, PlanFinished)]

    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]


class Benches:
    """Makes them; what they still carry out at the end is ended."""

    def __init__(self) -> None:
        self.all: list[Bench] = []

    def __call__(self, *tenants: TenantSituation, **more: Any) -> Bench:
        bench = Bench(FakeWorld(situation(*tenants, **more)))
        self.all.append(bench)
        return bench


@pytest.fixture
async def bench() -> AsyncIterator[Benches]:
    benches = Benches()
    yield benches
    for each in benches.all:
        each.arbiter.abandon()
        await asyncio.gather(*each.tasks, return_exceptions=True)


async def test_a_starved_tenant_is_served_and_the_plan_announced_before_it_starts(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9, floors={CARD: GIB}))
    table.world.comes_back["lazy"] = (0, 8 * GIB)
    explained = table.act()
    assert table.kinds() == ["PlanMade", "PlanStarted"]
    assert not table.world.requested
    await table.ended()
    assert table.kinds() == ["PlanMade", "PlanStarted", "StepFinished", "PlanFinished"]
    assert table.made()[0].plan == table.started()[0].plan == table.results()[0].plan
    assert table.results()[0].outcome == "satisfied"
    assert explained["asker"].reason.endswith("plan-1 asks lazy")


async def test_nobody_starved_means_nothing_is_announced(bench: Benches) -> None:
    table = bench(starving(need=8, held=8), tenant("lazy", 9), free=1)
    assert not table.act()["asker"].starved
    assert not table.events


async def test_a_tenant_that_something_of_ours_works_with_is_not_asked(bench: Benches) -> None:
    arbiter = bench(starving(need=8), tenant("lazy", 9)).arbiter
    tenants = {"lazy": doing("idle"), "idler": doing("idle")}
    looked = seen(process(1, 9, "lazy"), process(2, 9, "idler"), tenants=tenants)
    with arbiter.using("lazy", "a job has it work"):
        now = arbiter.situation(looked, 0)
        assert (now.tenants["lazy"].used_by, now.tenants["idler"].used_by) == ("a job has it work", "")
        with pytest.raises(Busy, match="lazy is in use: a job has it work"), arbiter.using("lazy", "another job"):
            pass
        askable = replace(now.tenants["lazy"], has_release=True)
        assert refusal(askable, CARD) == Objection("busy", "a job has it work")
    assert arbiter.situation(looked, 0).tenants["lazy"].used_by == ""


async def test_one_plan_per_gpu_at_a_time(bench: Benches) -> None:
    table = bench(starving("a", need=8), starving("b", need=8), tenant("lazy", 9), tenant("idler", 9))
    table.world.comes_back = {"lazy": (0, 9 * GIB), "idler": (0, 9 * GIB)}
    explained = table.act()
    assert len(table.started()) == 1
    assert table.arbiter.running.keys() == {CARD}
    assert explained["b"].reason.endswith("plan-1 is being carried out")
    again = table.act()
    assert len(table.started()) == 1
    assert again["a"].reason.endswith("plan-1 is being carried out")


async def test_of_two_starved_tenants_the_one_of_higher_priority_is_served_first(bench: Benches) -> None:
    table = bench(starving("a", need=8, priority=40), starving("b", need=8, priority=60), tenant("lazy", 9))
    table.act()
    assert [event.plan.beneficiary for event in table.started()] == ["b"]


async def test_gpus_are_served_side_by_side(bench: Benches) -> None:
    gpus = {uuid: GpuSituation(uuid, "RTX", 24 * GIB, 0) for uuid in (CARD, OTHER)}
    here = starving("a", 2, need=8)
    there = replace(starving("b", 2, need=8), holdings={OTHER: 2 * GIB})
    table = bench(here, there, tenant("lazy", 9), tenant("idler", 9, holdings={OTHER: 9 * GIB}), gpus=gpus)
    table.act()
    assert {event.plan.gpu for event in table.started()} == {CARD, OTHER}
    assert table.arbiter.running.keys() == {CARD, OTHER}


async def test_the_same_blocked_plan_is_announced_once_and_not_every_tick(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("worker", 20, "busy"))
    for free in (0, 0.3, 0.1):
        explained = table.act(situation(starving(need=8), tenant("worker", 20 - free, "busy"), free=free))
    assert table.kinds() == ["PlanMade"]
    assert "worker" in explained["asker"].reason
    assert "busy" in explained["asker"].reason


async def test_a_blocked_plan_is_announced_again_when_who_is_in_the_way_changes(bench: Benches) -> None:
    table = bench()
    stranger = UnmanagedHolder(77, "blender", 9 * GIB)
    table.act(situation(starving(need=8), tenant("worker", 20, "busy")))
    table.act(situation(starving(need=8), tenant("worker", 11, "busy"), unmanaged=(stranger,)))
    table.act(situation(starving(need=8), tenant("worker", 11, "unknown"), unmanaged=(stranger,)))
    assert [len(event.plan.blockers) for event in table.made()] == [1, 2, 2]
    assert [event.plan.id for event in table.made()] == ["plan-1", "plan-2", "plan-3"]


async def test_blockers_whose_sizes_overtake_each_other_are_no_other_plan(bench: Benches) -> None:
    table = bench()
    for first, second in ((9, 10), (10, 9), (9, 10)):
        table.act(situation(starving(need=8), tenant("x", first, "busy"), tenant("y", second, "busy")))
    assert table.kinds() == ["PlanMade"]


async def test_a_plan_is_announced_anew_after_the_tenant_was_not_starved_for_a_while(bench: Benches) -> None:
    table = bench()
    blocked = situation(starving(need=8), tenant("worker", 20, "busy"))
    table.act(blocked)
    table.act(replace(blocked, now=NOW + SECOND))
    content = situation(starving(need=8), free=9)
    table.act(replace(content, now=NOW + 2 * SECOND))
    table.act(replace(blocked, now=NOW + 3 * SECOND))
    assert [event.plan.id for event in table.made()] == ["plan-1"], "that was but a moment"
    table.act(replace(content, now=NOW + 2 * MINUTE))
    table.act(replace(blocked, now=NOW + 2 * MINUTE + SECOND))
    assert [event.plan.id for event in table.made()] == ["plan-1", "plan-2"]


async def test_a_need_that_never_fits_is_said_and_nothing_is_asked(bench: Benches) -> None:
    table = bench(starving(need=40), tenant("lazy", 9))
    explained = table.act()
    assert explained["asker"].reason.endswith("It can never fit on this GPU")
    assert table.kinds() == ["PlanMade"]
    assert not table.tasks


async def test_observe_only_announces_and_says_what_it_would_do_but_starts_nothing(bench: Benches) -> None:
    long_idle = tenant("dusty", 3, idle_release_after=MINUTE)
    table = bench(starving(need=8), tenant("lazy", 9), long_idle)
    for _ in range(3):
        explained = table.act(automatic=False)
    assert table.kinds() == ["PlanMade"]
    assert explained["asker"].reason.endswith("Observe-only: plan-1 would ask lazy")
    assert not table.tasks


async def test_an_announced_plan_is_started_once_it_may_act(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9))
    table.act(automatic=False)
    table.act(automatic=True)
    assert table.kinds() == ["PlanMade", "PlanStarted"]
    assert table.started()[0].plan.id == "plan-1"


async def test_a_plan_that_did_not_satisfy_is_not_tried_again_at_once(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9))
    table.world.replies["lazy"] = ReleaseReply("refused", "404 not found")
    table.act()
    await table.ended()
    explained = table.act()
    assert len(table.started()) == 1
    assert "will be asked after half a minute" in explained["asker"].reason
    table.world.time += RETRY_AFTER - 1
    table.act(replace(table.world.situation, now=table.world.time))
    assert len(table.started()) == 1
    table.world.time += 1
    table.act(replace(table.world.situation, now=table.world.time))
    assert len(table.started()) == 2


async def test_every_start_has_an_announcement_of_its_own(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9))
    table.world.replies["lazy"] = ReleaseReply("refused", "404 not found")
    for _ in range(3):
        table.act(replace(table.world.situation, now=table.world.time))
        await table.ended()
        table.act(replace(table.world.situation, now=table.world.time))
        table.world.time += RETRY_AFTER
    started = [event.plan.id for event in table.started()]
    assert len(started) == len(set(started)) == 3
    assert set(started) <= {event.plan.id for event in table.made()}
    assert len(table.made()) <= 4


async def test_room_that_was_made_is_kept_for_its_beneficiary(bench: Benches) -> None:
    table = bench(starving(need=8, held=2), tenant("lazy", 9))
    table.world.comes_back["lazy"] = (0, 9 * GIB)
    table.act()
    await table.ended()
    kept = table.arbiter.reservations.current({"asker": {CARD: 2 * GIB}}, table.world.now())
    assert [(r.gpu, r.tenant, r.size) for r in kept] == [(CARD, "asker", 6 * GIB)]
    assert kept[0].expires_at == table.world.now() + ARBITER_RESERVATION


async def test_what_the_beneficiary_holds_elsewhere_is_not_kept_here(bench: Benches) -> None:
    spread = starving(need=12, holdings={CARD: 3 * GIB, OTHER: 5 * GIB})
    table = bench(spread, tenant("lazy", 9))
    table.world.comes_back["lazy"] = (0, 9 * GIB)
    table.act()
    await table.ended()
    assert table.results()[0].outcome == "satisfied"
    kept = table.arbiter.reservations.current({"asker": {CARD: 3 * GIB}}, table.world.now())
    assert [r.size for r in kept] == [4 * GIB]


async def test_room_for_nobody_in_particular_is_kept_from_nobody(bench: Benches) -> None:
    table = bench(tenant("lazy", 9))
    table.world.comes_back["lazy"] = (0, 9 * GIB)
    plan = table.arbiter.plan(table.world.situation, Request("make-room", CARD, "", 8 * GIB))
    assert (await table.arbiter.carry_out(plan)).outcome == "satisfied"
    assert not table.arbiter.reservations.current({}, table.world.now())


async def test_nothing_is_kept_after_a_plan_that_failed(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9))
    table.world.replies["lazy"] = ReleaseReply("refused", "no")
    table.act()
    await table.ended()
    assert table.results()[0].outcome == "failed"
    assert not table.arbiter.reservations.current({}, table.world.now())


async def test_a_tenant_that_was_idle_for_long_enough_is_released_without_any_beneficiary(bench: Benches) -> None:
    table = bench(
        tenant("dusty", 9, idle_release_after=20 * MINUTE), tenant("fresh", 9, idle_release_after=60 * MINUTE)
    )
    table.world.comes_back["dusty"] = (0, 9 * GIB)
    table.act()
    await table.ended()
    assert [event.plan.cause for event in table.made()] == ["idle"]
    assert [name for name, _ in table.world.requested] == ["dusty"]
    assert table.results()[0].outcome == "satisfied"


async def test_idle_releases_of_one_gpu_come_one_after_the_other(bench: Benches) -> None:
    dusty = [tenant(name, 5, idle_release_after=MINUTE) for name in ("a", "b")]
    table = bench(*dusty)
    table.act()
    assert len(table.started()) == 1


async def test_an_idle_release_waits_while_its_gpu_is_busy_with_a_plan(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9), tenant("dusty", 5, idle_release_after=MINUTE, priority=30))
    table.act()
    assert [event.plan.cause for event in table.started()] == ["starved"]


def a_release(table: "Bench") -> ReleasePlan:
    return make_release(table.world.situation, "lazy", "plan-9", "release")


async def test_a_request_starts_the_cooldown_and_counts_against_the_budget(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9))
    table.arbiter.asked(a_release(table), "lazy")
    past = table.arbiter.history.of("lazy")
    assert past.cooldown_until == table.world.now() + table.world.cooldown("lazy")
    assert past.releases_within_hour(table.world.now()) == 1


async def test_a_tenant_in_cooldown_or_without_budget_is_not_asked(bench: Benches) -> None:
    table = bench()
    for held_back in (
        tenant("lazy", 9, cooldown_until=NOW + 1),
        tenant("lazy", 9, releases_left=0),
        tenant("lazy", 9, releasing=True),
        tenant("lazy", 9, paused_for={"asker": NOW + 1}),
    ):
        explained = table.act(situation(starving(need=8), held_back))
        assert "lazy" in explained["asker"].reason
        assert "cooldown" in explained["asker"].reason
    assert not table.started()


async def test_a_floor_is_learned_from_what_a_release_left(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("lazy", 9))
    table.world.comes_back["lazy"] = (0, round(8.5 * GIB))
    table.act()
    await table.ended()
    assert table.arbiter.history.learned.floors("lazy") == {CARD: GIB // 2}


async def test_memory_that_comes_back_late_is_credited_once(bench: Benches) -> None:
    table = await _with_a_pending_release(bench)
    busy = {"lazy": doing("busy"), "asker": doing("busy")}
    still_there = seen(process(1, 9, "lazy"), tenants=busy, now=NOW + MINUTE)
    table.events.clear()
    table.arbiter.credit_late(still_there)
    assert not table.events
    gone = seen(process(1, 0.5, "lazy"), tenants=busy, free=8.5, now=NOW + 2 * MINUTE)
    table.arbiter.credit_late(gone)
    table.arbiter.credit_late(gone)
    (event,) = table.events
    assert isinstance(event, StepFinished)
    assert (event.result.outcome, event.result.late, event.result.freed) == ("freed", True, round(8.5 * GIB))
    assert not table.arbiter.is_waiting
    assert table.arbiter.history.learned.floors("lazy") == {CARD: GIB // 2}


async def test_what_a_tenant_held_that_is_not_described_any_more_is_not_credited(bench: Benches) -> None:
    """Its process is a stranger's now, and must not count as somebody who took what had come back."""
    table = await _with_a_pending_release(bench)
    table.events.clear()
    table.arbiter.credit_late(seen(process(1, 9), tenants={"asker": doing("busy")}, now=NOW + MINUTE))
    assert not table.events


async def test_late_memory_is_not_waited_for_for_ever(bench: Benches) -> None:
    table = await _with_a_pending_release(bench)
    busy = {"lazy": doing("busy")}
    table.arbiter.credit_late(seen(process(1, 9, "lazy"), tenants=busy, now=table.world.now() + LATE_WINDOW + SECOND))
    assert not table.arbiter.is_waiting


async def test_a_pending_tenant_is_not_asked_again(bench: Benches) -> None:
    table = await _with_a_pending_release(bench)
    what = seen(process(1, 9, "lazy"), tenants={"lazy": doing("idle"), "asker": doing("busy")}, now=NOW + MINUTE)
    now = table.arbiter.situation(what, 0)
    assert now.tenants["lazy"].releasing
    plan = table.arbiter.plan_of_release(now, "lazy")
    assert not plan.steps


async def test_asking_again_ends_the_watch_over_the_earlier_request(bench: Benches) -> None:
    table = await _with_a_pending_release(bench)
    table.arbiter.asked(a_release(table), "lazy")
    assert not table.arbiter.is_waiting


async def test_a_persons_plan_is_announced_and_not_started(bench: Benches) -> None:
    table = bench(tenant("lazy", 9))
    plan = table.arbiter.plan(table.world.situation, Request("make-room", CARD, "", 8 * GIB))
    assert table.kinds() == ["PlanMade"]
    assert plan.sufficient
    table.world.comes_back["lazy"] = (0, 9 * GIB)
    result = await table.arbiter.carry_out(plan)
    assert (result.outcome, result.plan) == ("satisfied", plan)
    assert not table.arbiter.running


async def test_who_stops_waiting_for_a_plan_does_not_stop_the_plan(bench: Benches) -> None:
    table = bench(tenant("lazy", 9))
    table.world.comes_back["lazy"] = (0, 9 * GIB)
    plan = table.arbiter.plan_of_release(table.world.situation, "lazy")
    waiting = asyncio.ensure_future(table.arbiter.carry_out(plan))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await table.ended()
    assert table.results()[0].outcome == "satisfied"


async def test_an_abandoned_plan_frees_its_gpu_and_asks_nobody_any_more(bench: Benches) -> None:
    table = bench(starving(need=8), tenant("a", 5), tenant("b", 5))
    table.act()
    await _until(lambda: bool(table.world.requested))
    table.arbiter.abandon()
    await asyncio.gather(*table.tasks, return_exceptions=True)
    assert not table.arbiter.running
    assert len(table.world.requested) == 1
    assert not table.results()


async def _until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def _with_a_pending_release(bench: Benches) -> Bench:
    """ "lazy" was asked, and began to work before it could give 9 GiB back."""
    table = bench(starving(need=8), tenant("lazy", 9))
    table.world.defers = True
    table.world.ticking = SECOND  # the world's clock moves on at each measurement

    def begins_to_work(now: Situation) -> Situation:
        if not table.world.requested:
            return now
        return replace(now, tenants={**now.tenants, "lazy": tenant("lazy", 9, "busy")})

    table.world.on_look = begins_to_work
    table.act()
    await table.ended()
    assert [step.outcome for step in table.results()[0].steps] == ["pending"]
    assert table.arbiter.is_waiting
    return table
