"""What is written: changes, once; and on a quiet day nothing."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpusupervisor.arbitration.events import PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.arbitration.situation import Assessment, Situation, StepOutcome, StepResult
from gpusupervisor.controls import Controls
from gpusupervisor.gpu import driver_status
from gpusupervisor.gpu.sample import DriverStatus, GpuState
from gpusupervisor.journal.entry import Entry
from gpusupervisor.journal.messages import health, plans
from gpusupervisor.keepers.chronicle import Chronicle
from gpusupervisor.state import Check, State
from tests.arbitration.builders import CARD, GIB, NOW, situation, starving
from tests.bus.builders import activity, make_plan, make_result, make_state

WELL = Controls(problem="")
BAD = Check("residency", "degraded", "nothing can be measured", "models are not kept warm", "update the kernel")


class Seen(logging.Handler):
    """The entries that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def take(self) -> list[Entry]:
        """Those since the last time."""
        taken, self.records = self.records, []
        return [record.entry for record in taken if hasattr(record, "entry")]


@pytest.fixture
def seen() -> Iterator[Seen]:
    handler, ours = Seen(), logging.getLogger("gpusupervisor")
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    yield handler
    ours.removeHandler(handler)
    ours.setLevel(before)


@pytest.fixture
def chronicle(seen: Seen) -> Chronicle:
    """One that has seen a good state."""
    chronicle = Chronicle()
    chronicle.observe(good())
    seen.take()
    return chronicle


def good(*checks: Check) -> State:
    return replace(make_state(checks=(Check("driver", "ok", "it answers"), *checks)), controls=WELL)


def with_driver(driver: DriverStatus) -> State:
    state = good()
    return replace(state, sample=replace(state.sample, driver=driver))


def with_gpu(gpu_state: GpuState, detail: str = "") -> State:
    state = good(Check(f"gpu-{state_card()}", "ok" if gpu_state == "ok" else "failed", detail))
    (gpu,) = state.sample.gpus
    return replace(state, sample=replace(state.sample, gpus=(replace(gpu, state=gpu_state, detail=detail),)))


def state_card() -> str:
    (gpu,) = good().sample.gpus
    return gpu.identity.uuid


def test_steady_looks_write_nothing(chronicle: Chronicle, seen: Seen) -> None:
    for _ in range(100):
        chronicle.observe(good())
    assert seen.records == []


def test_the_first_look_says_that_the_driver_answers(seen: Seen) -> None:
    Chronicle().observe(good())
    assert seen.take() == [health.DriverAnswers("580.95.05")]


def test_a_driver_in_trouble_is_told_once_with_what_to_do(chronicle: Chronicle, seen: Seen) -> None:
    failing = driver_status.failing("nvmlInit: Unknown Error")
    for _ in range(3):
        chronicle.observe(with_driver(failing))
    [trouble] = seen.take()
    assert trouble == health.DriverTrouble("failing", failing.detail, failing.impact, failing.remedy)
    chronicle.observe(good())
    assert [type(entry) for entry in seen.take()] == [health.DriverAnswers]


def test_a_gpu_that_sleeps_and_wakes_up_is_no_news(chronicle: Chronicle, seen: Seen) -> None:
    for driver in (driver_status.ASLEEP, good().sample.driver, driver_status.ASLEEP):
        chronicle.observe(with_driver(driver))
    assert seen.records == []


def test_a_lost_gpu_and_its_return_are_told_without_its_check(chronicle: Chronicle, seen: Seen) -> None:
    for _ in range(3):
        chronicle.observe(with_gpu("lost", "GPU is lost"))
    [lost] = seen.take()
    assert isinstance(lost, health.GpuLost)
    assert (lost.gpu, lost.state, lost.detail, lost.check) == (
        state_card(), "lost", "GPU is lost", f"gpu-{state_card()}",
    )  # fmt: skip
    chronicle.observe(with_gpu("ok"))
    assert [type(entry) for entry in seen.take()] == [health.GpuBack]


def test_a_check_is_told_when_its_state_changes(chronicle: Chronicle, seen: Seen) -> None:
    worse = replace(BAD, state="failed")
    steps = [BAD, BAD, replace(BAD, summary="in other words"), worse, replace(BAD, state="skipped"), worse,
             replace(BAD, state="ok", summary="it is measured")]  # fmt: skip
    told = []
    for check in steps:
        chronicle.observe(good(check))
        told.append([type(entry) for entry in seen.take()])
    assert told == [[health.CheckDegraded], [], [], [health.CheckFailed], [], [], [health.CheckRecovered]]


def test_a_check_that_comes_and_goes_does_not_fill_the_journal_and_its_last_word_is_told(
    chronicle: Chronicle, seen: Seen
) -> None:
    fine = replace(BAD, state="ok", summary="it is measured")
    for second in range(601):
        chronicle.observe(later(good(BAD if second % 20 < 10 else fine), second))
    told = [type(entry) for entry in seen.take()]
    assert told == [health.CheckDegraded, health.CheckRecovered] * 2 + [health.CheckDegraded]
    for second in range(601, 1400):
        chronicle.observe(later(good(fine), second))
    assert [type(entry) for entry in seen.take()] == [health.CheckRecovered]


def later(state: State, seconds: int) -> State:
    return replace(state, situation=replace(state.situation, now=NOW + seconds * 1_000_000))


def test_a_check_says_what_is_broken_what_that_breaks_and_what_to_do(chronicle: Chronicle, seen: Seen) -> None:
    chronicle.observe(good(BAD))
    [entry] = seen.take()
    assert entry == health.CheckDegraded(BAD.id, BAD.state, BAD.summary, BAD.impact, BAD.remedy)
    assert all(part in entry.message() for part in (BAD.summary, BAD.impact, BAD.remedy))


def test_a_check_that_is_gone_is_well(chronicle: Chronicle, seen: Seen) -> None:
    chronicle.observe(good(BAD))
    chronicle.observe(good())
    assert seen.take()[1:] == [health.CheckRecovered(BAD.id, "ok", BAD.summary)]


def test_configuration_problems_have_entries_of_their_own(chronicle: Chronicle, seen: Seen) -> None:
    chronicle.observe(good(Check("configuration", "degraded", "x"), Check("configuration-2", "degraded", "y")))
    assert seen.records == []


def test_a_helper_that_does_not_answer_any_more_is_told_once(seen: Seen) -> None:
    chronicle = Chronicle()
    chronicle.observe(make_state())  # not asked yet
    seen.take()
    for problem in ("", "no answer", "it is not there", ""):
        chronicle.observe(replace(make_state(), controls=Controls(problem=problem)))
    assert seen.take() == [health.HelperLost("no answer"), health.HelperBack()]


def test_without_a_driver_it_is_no_news_that_the_helper_cannot_read_the_gpus_either(seen: Seen) -> None:
    chronicle, blind = Chronicle(), Controls(problem="The GPUs cannot be listed")
    chronicle.observe(replace(with_driver(driver_status.failing("nvmlInit: Unknown Error")), controls=blind))
    assert [type(entry) for entry in seen.take()] == [health.DriverTrouble]
    chronicle.observe(replace(make_state(), controls=blind))
    assert health.HelperLost("The GPUs cannot be listed") in seen.take()


def verdict(*, starved: bool) -> dict[str, Assessment]:
    return {"ollama": Assessment("ollama", starved, CARD, 8 * GIB if starved else 0, "it needs 9 GiB")}


def at(now: int) -> Situation:
    return replace(situation(starving("ollama", need=9)), now=now)


def test_a_starved_tenant_is_told_once_and_how_long_it_was(chronicle: Chronicle, seen: Seen) -> None:
    for second in range(3):
        chronicle.assessed(at(NOW + second), verdict(starved=True))
    chronicle.assessed(at(NOW + 3), verdict(starved=False))
    assert seen.take() == [
        plans.TenantStarved("ollama", "ollama", CARD, 8 * GIB, "it needs 9 GiB"),
        plans.TenantRelieved("ollama", "ollama", 3, "it needs 9 GiB"),
    ]


def test_a_tenant_that_vanished_starved_may_starve_anew(chronicle: Chronicle, seen: Seen) -> None:
    for assessments in (verdict(starved=True), {}, verdict(starved=True)):
        chronicle.assessed(at(NOW), assessments)
    assert [type(entry) for entry in seen.take()] == [plans.TenantStarved] * 2


def test_a_plan_is_written_with_its_steps_and_blockers(chronicle: Chronicle, seen: Seen) -> None:
    chronicle.event(PlanMade(make_plan()))
    [made] = seen.take()
    assert isinstance(made, plans.PlanMade)
    assert made.tenant == ("ollama", "comfyui")
    assert made.step == ("comfyui (4.0 GiB: idle for 12min, priority 30 below 60)",)
    assert made.blocker == ("train.py (pid 4242) (size unknown, unmanaged: it matches no tenant)",)
    assert (made.shortfall, made.sufficient) == (2 * GIB, "yes")


def test_a_plan_for_nobody_concerns_only_whom_it_asks(chronicle: Chronicle, seen: Seen) -> None:
    chronicle.event(PlanStarted(replace(make_plan(), beneficiary="", cause="idle")))
    assert seen.take() == [plans.PlanStarted("p1", "idle", make_plan().gpu, "", ("comfyui",))]


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("freed", plans.ReleaseDone),
        ("partial", plans.ReleaseDone),
        ("pending", plans.ReleaseDone),
        ("skipped", plans.ReleaseDone),
        ("refused", plans.ReleaseFailed),
        ("failed", plans.ReleaseFailed),
    ],
)
def test_a_step_is_written_with_bytes_and_time(
    outcome: StepOutcome, kind: type[Entry], chronicle: Chronicle, seen: Seen
) -> None:
    result = StepResult("comfyui", outcome, 4 * GIB, 3 * GIB, 800_000, "as it went")
    chronicle.event(StepFinished(make_plan(), result))
    [entry] = seen.take()
    assert type(entry) is kind
    assert isinstance(entry, plans.ReleaseDone | plans.ReleaseFailed)
    assert (entry.engine, entry.outcome, entry.expected, entry.freed, entry.duration) == (
        "comfyui", outcome, 4 * GIB, 3 * GIB, 800_000,
    )  # fmt: skip


def test_memory_that_comes_late_has_a_kind_of_its_own(chronicle: Chronicle, seen: Seen) -> None:
    late = StepResult("comfyui", "freed", 4 * GIB, 4 * GIB, 90_000_000, "late", late=True)
    chronicle.event(StepFinished(make_plan(), late))
    assert [type(entry) for entry in seen.take()] == [plans.ReleaseCameLate]


def test_a_plan_ends_well_or_falls_short(chronicle: Chronicle, seen: Seen) -> None:
    for result in (make_result(), replace(make_result(), outcome="insufficient", available=-5)):
        chronicle.event(PlanFinished(result))
    done, short = seen.take()
    assert isinstance(done, plans.PlanSatisfied)
    assert (done.freed, done.available, done.duration) == (4 * GIB, 9 * GIB, 900_000)
    assert isinstance(short, plans.PlanFellShort)
    assert short.available == 0
    assert short.level > done.level


def test_activities_are_told_to_who_wants_every_detail(chronicle: Chronicle, seen: Seen) -> None:
    logging.getLogger("gpusupervisor").setLevel(logging.DEBUG)
    state = good()
    changed = {**state.activities, "ollama": activity("idle", "it has finished")}
    chronicle.observe(replace(state, activities=changed))
    chronicle.observe(replace(state, activities=changed))
    assert [record.getMessage() for record in seen.records] == [
        "ollama is idle: it has finished", f"looked: {state.status}", f"looked: {state.status}",
    ]  # fmt: skip
