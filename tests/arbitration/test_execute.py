"""Execution against a world whose memory moves in simulated time."""

from dataclasses import replace

from gpusupervisor.arbitration.execute import Execution, ReleaseReply, Unfinished, late_return
from gpusupervisor.arbitration.plan import Request, make_plan, make_release
from gpusupervisor.arbitration.situation import PlanResult, ReleasePlan, Situation, StepResult
from gpusupervisor.arbitration.verify import Measurement
from tests.arbitration.builders import CARD, GIB, NOW, situation, starving, tenant
from tests.arbitration.fake_world import SECOND, FakeWorld


async def run(world: FakeWorld, plan: ReleasePlan) -> tuple[PlanResult, list[Unfinished]]:
    result = await Execution(plan, world, world, world, world.sleep).run()
    return result, world.unfinished


def hand_off(world: FakeWorld, need: int) -> ReleasePlan:
    return make_plan(world.situation, Request("starved", CARD, "asker", need * GIB), "plan-1")


async def test_memory_that_comes_back_is_freed_and_the_plan_satisfied() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("lazy", 9, floors={CARD: GIB})))
    world.comes_back["lazy"] = (400_000, 8 * GIB)
    result, unfinished = await run(world, hand_off(world, 8))
    assert result.outcome == "satisfied"
    assert [(s.outcome, s.freed) for s in result.steps] == [("freed", 8 * GIB)]
    assert 400_000 <= result.steps[0].duration <= 500_000
    assert world.left["lazy"] == {CARD: GIB}
    assert not unfinished


async def test_an_answer_of_success_without_memory_is_a_failure() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("liar", 9)))
    result, unfinished = await run(world, hand_off(world, 8))
    assert result.outcome == "failed"
    assert result.steps[0].outcome == "failed"
    assert "nothing came back" in result.steps[0].detail
    assert len(unfinished) == 1


async def test_a_refusal_is_told_in_the_engines_words_and_not_waited_for() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("stubborn", 9)))
    world.replies["stubborn"] = ReleaseReply("refused", "404 model not found")
    result, _ = await run(world, hand_off(world, 8))
    assert (result.steps[0].outcome, result.steps[0].detail) == ("refused", "404 model not found")
    assert world.time == NOW


async def test_a_tenant_that_began_to_work_is_skipped() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("woken", 9)))
    plan = hand_off(world, 8)
    world.on_look = lambda s: replace(s, tenants={**s.tenants, "woken": tenant("woken", 9, "busy")})
    result, _ = await run(world, plan)
    assert result.steps[0].outcome == "skipped"
    assert result.steps[0].detail.startswith("busy: ")
    assert not world.requested


async def test_steps_after_enough_are_skipped() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("a", 4, priority=1), tenant("b", 4, priority=2)))
    world.comes_back["a"] = (0, 4 * GIB)
    plan = hand_off(world, 8)

    def somebody_ended(now: Situation) -> Situation:
        extra = 4 * GIB if world.requested and now.gpus[CARD].free == 4 * GIB else 0
        return replace(now, gpus={CARD: replace(now.gpus[CARD], free=now.gpus[CARD].free + extra)})

    world.on_look = somebody_ended
    result, _ = await run(world, plan)
    assert [s.outcome for s in result.steps] == ["freed", "skipped"]
    assert "there is room already" in result.steps[1].detail
    assert result.outcome == "satisfied"


async def test_a_beneficiary_that_has_stopped_needs_nothing_any_more() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("lazy", 9)))
    plan = hand_off(world, 8)
    world.on_look = lambda s: replace(s, tenants={**s.tenants, "asker": tenant("asker", 0, "idle")})
    result, _ = await run(world, plan)
    assert result.steps[0].outcome == "skipped"
    assert "no longer busy" in result.steps[0].detail


async def test_an_unload_behind_running_work_is_pending_not_failed() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("ollama", 9)), defers=True)
    plan = hand_off(world, 8)

    def begins_to_work_when_asked(now: Situation) -> Situation:
        busy = tenant("ollama", 9, "busy")
        return replace(now, tenants={**now.tenants, "ollama": busy}) if world.requested else now

    world.on_look = begins_to_work_when_asked
    result, unfinished = await run(world, plan)
    assert result.steps[0].outcome == "pending"
    assert world.time - NOW < 2 * SECOND
    assert unfinished[0].step.tenant == "ollama"


async def test_a_part_that_came_back_within_the_window_is_partial() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("lazy", 9)))
    world.comes_back["lazy"] = (SECOND, 3 * GIB)
    result, unfinished = await run(world, hand_off(world, 8))
    assert (result.steps[0].outcome, result.steps[0].freed) == ("partial", 3 * GIB)
    assert result.outcome == "insufficient"
    assert "still missing" in result.detail
    assert unfinished


async def test_a_step_ends_early_when_what_came_is_enough() -> None:
    world = FakeWorld(situation(starving(need=4), tenant("large", 20)))
    world.comes_back["large"] = (SECOND, 5 * GIB)
    result, unfinished = await run(world, hand_off(world, 4))
    assert result.outcome == "satisfied"
    assert result.steps[0].outcome == "partial"
    assert world.time - NOW < 2 * SECOND
    assert unfinished


async def test_a_gpu_that_is_lost_during_a_release_fails_the_step_with_the_reason() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("lazy", 9)), gpu_gone=True)
    result, _ = await run(world, hand_off(world, 8))
    assert result.steps[0].outcome == "failed"
    assert "the GPU is lost" in result.steps[0].detail
    assert not world.requested


async def test_a_request_that_timed_out_is_still_measured() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("slow", 9)))
    world.replies["slow"] = ReleaseReply("failed", "no answer within 10s")
    world.comes_back["slow"] = (2 * SECOND, 9 * GIB)
    result, _ = await run(world, hand_off(world, 8))
    assert result.steps[0].outcome == "freed"


async def test_a_release_on_request_is_measured_on_every_gpu_and_needs_no_beneficiary() -> None:
    world = FakeWorld(situation(tenant("lazy", 9)))
    world.comes_back["lazy"] = (0, 9 * GIB)
    result, _ = await run(world, make_release(world.situation, "lazy", "plan-1", "release"))
    assert result.outcome == "satisfied"
    assert result.freed == 9 * GIB


async def test_memory_is_measured_at_least_every_quarter_of_a_second() -> None:
    world = FakeWorld(situation(starving(need=8), tenant("liar", 9)))
    await run(world, hand_off(world, 8))
    assert world.measured >= 40


def test_what_comes_back_after_the_plan_is_credited_as_late() -> None:
    plan = hand_off(FakeWorld(situation(starving(need=8), tenant("lazy", 9))), 8)
    before = {CARD: Measurement(9 * GIB, 0, {})}
    pending = StepResult("lazy", "pending", 9 * GIB, 0, SECOND, "later")
    unfinished = Unfinished(plan, plan.steps[0], before, pending, NOW)
    assert late_return(unfinished, before, NOW + SECOND) is None
    result = late_return(unfinished, {CARD: Measurement(0, 9 * GIB, {})}, NOW + 30 * SECOND)
    assert result is not None
    assert result.late
    assert (result.outcome, result.freed, result.duration) == ("freed", 9 * GIB, 30 * SECOND)
