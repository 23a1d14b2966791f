"""Execution against a world whose memory moves in simulated time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gpusupervisor.arbitration.execute import Execution, ReleaseReply, Unfinished, late_return
from gpusupervisor.arbitration.plan import Request, make_plan, make_release
from gpusupervisor.arbitration.situation import PlanResult, ReleasePlan, Situation, StepResult
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.errors import GpuUnavailable
from tests.arbitration.builders import CARD, GIB, NOW, situation, starving, tenant

SECOND = 1_000_000


@dataclass
class FakeWorld:
    """Tenants whose memory comes back after a delay, on a clock that only sleeping moves."""

    situation: Situation
    replies: dict[str, ReleaseReply] = field(default_factory=dict)
    comes_back: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Tenant to (microseconds after the request, bytes)."""
    on_look: Callable[[Situation], Situation] = lambda s: s
    defers: bool = False
    gpu_gone: bool = False
    time: int = NOW
    requested: list[tuple[str, int]] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)
    measured: int = 0
    left: dict[str, Mapping[str, int]] = field(default_factory=dict)
    unfinished: list[Unfinished] = field(default_factory=list)

    def now(self) -> int:
        return self.time

    def realtime(self, instant: int) -> int:
        return instant

    async def sleep(self, seconds: float) -> None:
        self.time += round(seconds * SECOND)

    def _update(self) -> None:
        tenants, free = dict(self.situation.tenants), self.situation.gpus[CARD].free
        for name, at in self.requested:
            delay, size = self.comes_back.get(name, (0, 0))
            if size and self.time >= at + delay:
                holder = tenants[name]
                tenants[name] = replace(holder, holdings={CARD: holder.holdings[CARD] - size})
                free += size
                del self.comes_back[name]
        card = replace(self.situation.gpus[CARD], free=free)
        self.situation = replace(self.situation, tenants=tenants, gpus={CARD: card}, now=self.time)

    async def look(self, tenant: str) -> Situation:
        self._update()
        self.situation = self.on_look(self.situation)
        return self.situation

    async def request(self, tenant: str) -> ReleaseReply:
        self.requested.append((tenant, self.time))
        return self.replies.get(tenant, ReleaseReply("accepted", "ok"))

    async def measure(self, tenant: str, gpus: tuple[str, ...]) -> Mapping[str, Measurement]:
        self.measured += 1
        if self.gpu_gone:
            raise GpuUnavailable("the GPU is lost")
        self._update()
        others = {t.id: t.holdings.get(CARD, 0) for t in self.situation.tenants.values() if t.id != tenant}
        held = self.situation.tenants[tenant].holdings.get(CARD, 0)
        return {gpu: Measurement(held, self.situation.gpus[CARD].free, others) for gpu in gpus}

    def settle_time(self, tenant: str) -> int:
        return 10 * SECOND

    def defers_when_busy(self, tenant: str) -> bool:
        return self.defers

    def cooldown(self, tenant: str) -> int:
        return 30 * SECOND

    def held(self, tenant: str, gpu: str) -> int:
        return self.situation.tenants[tenant].holdings.get(gpu, 0) if tenant in self.situation.tenants else 0

    def asked(self, tenant: str) -> None:
        pass

    def watch(self, unfinished: Unfinished) -> None:
        self.unfinished.append(unfinished)

    def finished(self, plan: ReleasePlan, result: StepResult, left: Mapping[str, int]) -> None:
        self.results.append(result)
        self.left[result.tenant] = left


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
    assert "not busy any more" in result.steps[0].detail


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
