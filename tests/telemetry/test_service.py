"""Telemetry as the rest of the service knows it."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpusupervisor.arbitration.events import PlanFinished, PlanMade, PlanStarted, StepFinished
from gpusupervisor.clock import UNKNOWN, Clock
from gpusupervisor.controls import Controls, GpuControls
from gpusupervisor.errors import Busy, InvalidArgument, NotSupported, SupervisorError
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.jobs import Job
from gpusupervisor.state import Check
from gpusupervisor.telemetry import reader, service
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.database import Database
from gpusupervisor.telemetry.questions import read_points
from gpusupervisor.telemetry.reader import Reader
from gpusupervisor.telemetry.records import Load, Series
from gpusupervisor.telemetry.service import FILE, MOST_EVENTS, MOST_POINTS, Telemetry
from tests.arbitration.builders import GIB, NOW
from tests.bus.builders import make_plan, make_result
from tests.telemetry.builders import DAY, MINUTE, PLENTY, SECOND, event, points
from tests.telemetry.states import CARD, state

PATIENCE = 10.0
START = 1_790_000_000 * SECOND
HOLDING = Series("holding", CARD, "app")


class StillClock:
    """It is always the same moment."""

    def now(self) -> int:
        return NOW

    def realtime(self, instant: int) -> int:
        return START + instant


class MovingClock(StillClock):
    """It is later each time that somebody looks."""

    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> int:
        self.time += 1
        return self.time


async def begun(folder: Path | None, clock: Clock | None = None) -> Telemetry:
    telemetry = Telemetry(folder, PLENTY, clock or StillClock())
    telemetry.start()
    async with asyncio.timeout(PATIENCE):
        await telemetry.recalled.wait()
    return telemetry


@pytest.fixture
async def telemetry(tmp_path: Path) -> AsyncIterator[Telemetry]:
    one = await begun(tmp_path)
    yield one
    await one.close()


async def stored(telemetry: Telemetry, kind: str = "", count: int = 1) -> list[dict[str, object]]:
    """The details of the events of a kind, as soon as there are so many."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                found = await telemetry.events(0, 0, kind, 0)
            except SupervisorError:
                found = []
            if len(found) >= count:
                return [{"kind": each.kind, "plan": each.plan, **json.loads(each.details)} for each in found]
            await asyncio.sleep(0.01)


async def test_the_story_of_a_plan_is_told_from_the_end(telemetry: Telemetry) -> None:
    plan, result = make_plan(), make_result()
    for each in (PlanMade(plan), PlanStarted(plan), StepFinished(plan, result.steps[0]), PlanFinished(result)):
        telemetry.note(each)
    told = await stored(telemetry, count=4)
    assert [each["kind"] for each in told] == ["outcome", "step", "plan-started", "plan"]
    assert {each["plan"] for each in told} == {plan.id}
    assert told[3]["summary"] == plan.summary
    assert told[1]["freed"] == result.steps[0].freed
    assert await telemetry.events(0, 0, "step", 1) != []
    assert await telemetry.events(0, 1, "", 0) == []


async def test_a_load_is_an_event_and_the_median_speed_of_the_latest_is_kept(
    telemetry: Telemetry, tmp_path: Path
) -> None:
    for speed in (4, 2, 1):
        telemetry.note_load(Load("ollama", CARD, "llama3.1:13b", 8 * GIB, 8 * SECOND // speed, "cold"))
        telemetry.learn_speed("ollama", "load-cold", speed * GIB)
    telemetry.learn_speed("ollama", "load-warm", 8 * GIB)
    speeds = {fact.kind: fact.value for fact in telemetry.learned()}
    assert speeds == {"load-cold": 2 * GIB, "load-warm": 8 * GIB}
    assert [each["duration"] for each in await stored(telemetry, "load", 3)] == [8 * SECOND, 4 * SECOND, 2 * SECOND]
    await telemetry.close()
    again = await begun(tmp_path)
    assert {fact.kind: fact.value for fact in again.learned()} == speeds
    assert all(again.is_stored(fact) for fact in again.learned())
    await again.close()


async def test_jobs_are_told_when_they_begin_and_end(telemetry: Telemetry) -> None:
    job = Job(3, "autotune", 1)
    for each in (job, replace(job, progress=40), replace(job, progress=100, state="succeeded")):
        telemetry.note_job(each)
    assert [each["state"] for each in await stored(telemetry, "job", 2)] == ["succeeded", "running"]


async def test_drift_is_told_as_the_helper_tells_it(telemetry: Telemetry) -> None:
    found = {"cause": "reset", "detail": "it was \x1b reset", "found": "450 W"}
    telemetry.note_drift(CARD, "power-limit", "drifted", found)
    telemetry.note_drift(CARD, "power-limit", "repaired", {"ok": True, "detail": ""})
    repaired, drifted = await stored(telemetry, "drift", 2)
    assert (repaired["id"], repaired["state"], repaired["detail"]) == ("power-limit", "repaired", "")
    assert (drifted["state"], drifted["cause"], drifted["detail"]) == ("drifted", "reset", "it was reset")


async def test_what_changes_in_health_and_fan_control_is_told_once(telemetry: Telemetry) -> None:
    gpu = GpuControls(GpuIdentity(CARD, "RTX", ""), "ok", fan_control="fail-safe")
    bad = replace(
        state(), checks=(Check("driver", "failed", "gone"), Check("fine", "ok", "")), controls=Controls({CARD: gpu}, "")
    )
    for each in (state(), bad, bad, state()):
        telemetry.learn(each)
        telemetry.observe(each)
    health = await stored(telemetry, "health", 2)
    assert [(each["id"], each["state"]) for each in health] == [("driver", "gone"), ("driver", "failed")]
    assert [each["state"] for each in await stored(telemetry, "fans", 2)] == ["gone", "fail-safe"]


async def test_how_often_each_decision_was_taken_can_be_summed_up_across_restarts(tmp_path: Path) -> None:
    for counts in ({"asked": 1, "pressed": 2}, {"asked": 4}):
        telemetry = await begun(tmp_path)
        telemetry.observe(replace(state(), counters=counts))
        await telemetry.close()
    again = await begun(tmp_path)
    found = [json.loads(each.details)["counts"] for each in await again.events(0, 0, "decisions", 0)]
    await again.close()
    assert found == [{"asked": 4}, {"asked": 1, "pressed": 2}]


async def test_figures_can_be_asked_after_a_restart(telemetry: Telemetry, tmp_path: Path) -> None:
    telemetry.learn(state("busy", 8))
    telemetry.observe(state("busy", 8))
    telemetry.learn(state("idle", 2))
    telemetry.observe(state("idle", 2))
    await telemetry.close()
    again = await begun(tmp_path)
    found = await again.query(HOLDING, 0, 0, 10)
    assert {point.high for point in found} == {2 * GIB}, "both are of the same microsecond: the later one counts"
    assert HOLDING in [span.series for span in await again.series()]
    assert await again.query(replace_series(HOLDING, tenant="nobody"), 0, UNKNOWN, 10) == []
    assert await again.least_held("app", CARD, 0) == 2 * GIB
    assert await again.least_held("app", CARD, UNKNOWN) is None
    assert await again.least_held("nobody", CARD, 0) is None
    await again.close()


def replace_series(series: Series, **changes: str) -> Series:
    return series._replace(**changes)


async def test_what_was_learned_is_kept_and_can_be_forgotten(telemetry: Telemetry, tmp_path: Path) -> None:
    telemetry.learn(state("busy", 14))
    telemetry.observe(state("busy", 14))
    telemetry.observe(state("idle", 14))
    telemetry.facts.learn_floor("app", CARD, GIB, "a test", 1)
    assert {fact.kind for fact in telemetry.learned()} == {"floor", "need"}
    assert await telemetry.forget("app", "need") == 1
    assert await telemetry.forget("app", "need") == 0
    assert await telemetry.forget("nobody", "") == 0
    await telemetry.close()
    again = await begun(tmp_path)
    assert [fact.kind for fact in again.learned()] == ["floor"]
    assert await again.forget("app", "") == 1
    await again.close()
    third = await begun(tmp_path)
    assert third.learned() == ()
    await third.close()


async def test_of_many_models_those_seen_last_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MODELS", 2)
    telemetry = await begun(tmp_path, MovingClock())
    for name in ("a", "b", "a", "c"):
        telemetry.learn_model_need("ollama", name, GIB, 4096)
        telemetry.learn_model_use("ollama", name, begins=True)
    telemetry.learn_model_need("other", "b", GIB, None)
    told = [(fact.tenant, fact.kind, fact.model, fact.value) for fact in telemetry.learned()]
    kept = [
        ("ollama", "model-need", "a", GIB), ("ollama", "model-need", "c", GIB),
        ("ollama", "model-use", "a", 2), ("ollama", "model-use", "c", 1), ("other", "model-need", "b", GIB),
    ]  # fmt: skip
    assert told == kept
    assert telemetry.learned()[0].source == "what its last load took, with 4096 tokens of context"
    await telemetry.close()
    again = Telemetry(tmp_path, PLENTY, StillClock())
    again.start()
    again.learn_model_use("ollama", "a", begins=True)
    await again.recalled.wait()
    assert {(fact.kind, fact.model): fact.value for fact in again.learned() if fact.tenant == "ollama"} == {
        ("model-need", "a"): GIB, ("model-need", "c"): GIB, ("model-use", "a"): 3, ("model-use", "c"): 1,
    }  # fmt: skip
    await again.close()


async def test_what_cannot_be_forgotten_for_good_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusupervisor.telemetry.service.FORGET_PATIENCE", 0.05)
    telemetry = await begun(tmp_path)
    telemetry.facts.learn_floor("app", CARD, GIB, "a test", 1)
    async with asyncio.timeout(PATIENCE):
        while not telemetry.is_stored(telemetry.learned()[0]):
            await asyncio.sleep(0.01)
    blocker = sqlite3.connect(tmp_path / FILE, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(Busy, match="forgotten for now"):
        await telemetry.forget("app", "")
    blocker.execute("ROLLBACK")
    blocker.close()
    await telemetry.close()


async def test_nothing_is_forgotten_before_it_is_known(tmp_path: Path) -> None:
    telemetry = Telemetry(tmp_path, PLENTY, StillClock())
    with pytest.raises(Busy, match="has not been read yet"):
        await telemetry.forget("app", "")
    await telemetry.close()


@pytest.mark.parametrize(
    ("series", "count", "part"),
    [
        (Series("noise", CARD), 5, "allowed: used, free"),
        (Series("used"), 5, "needs a gpu and no tenant"),
        (Series("used", CARD, "app"), 5, "needs a gpu and no tenant"),
        (Series("holding", "", "app"), 5, "needs a gpu and a tenant"),
        (Series("need", CARD, "app"), 5, "needs a tenant and no gpu"),
        (HOLDING, 0, "allowed: 1 to 2000"),
        (HOLDING, MOST_POINTS + 1, "allowed: 1 to 2000"),
    ],
)
async def test_a_question_without_meaning_is_an_error(
    telemetry: Telemetry, series: Series, count: int, part: str
) -> None:
    with pytest.raises(InvalidArgument, match=part):
        await telemetry.query(series, 0, 0, count)


async def test_other_questions_without_meaning(telemetry: Telemetry) -> None:
    with pytest.raises(InvalidArgument, match="allowed: plan, plan-started"):
        await telemetry.events(0, 0, "party", 0)
    with pytest.raises(InvalidArgument, match="1 to 1000"):
        await telemetry.events(0, 0, "", MOST_EVENTS + 1)
    with pytest.raises(InvalidArgument, match="allowed: floor, need, need-usual"):
        await telemetry.forget("app", "smell")
    await stored_nothing(telemetry)


async def stored_nothing(telemetry: Telemetry) -> None:
    assert await telemetry.query(HOLDING, 50, 40, 10) == []
    assert await telemetry.query(HOLDING, UNKNOWN, 1, 10) == []
    assert await telemetry.series() == []


async def test_without_a_directory_it_learns_and_says_that_nothing_is_stored() -> None:
    telemetry = await begun(None)
    telemetry.learn(state("busy", 14))
    telemetry.observe(state("busy", 14))
    telemetry.observe(state("idle", 14))
    telemetry.note(PlanMade(make_plan()))
    assert telemetry.facts.need("app") == 14 * GIB
    assert not telemetry.is_stored(telemetry.learned()[0])
    assert telemetry.status.state == "off"
    with pytest.raises(NotSupported, match="no state directory"):
        await telemetry.series()
    assert await telemetry.forget("app", "") == 1
    telemetry.use(Limits(1, 1))
    await telemetry.close()


# The reader


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / FILE
    database = Database(path)
    start = time.time_ns() // 1000 - 30 * DAY
    database.write(points(43_200, HOLDING, start, MINUTE), [event(n) for n in range(200)], 0)
    database.close()
    return path


async def test_a_question_that_takes_too_long_is_refused(large: Path) -> None:
    one = Reader(large, lambda: None, deadline=0.0)
    with pytest.raises(Busy, match="shorter time"):
        await one.ask(lambda connection: connection.execute("SELECT sum(value * at % 7) FROM samples").fetchone())
    now = time.time_ns() // 1000
    with pytest.raises(Busy, match="shorter time"):
        await one.ask(lambda connection: read_points(connection, HOLDING, now - 30 * DAY, now, 100))
    await one.close()


async def test_too_many_questions_are_refused_and_the_loop_runs_on(large: Path) -> None:
    one = Reader(large, lambda: None)

    def slow(connection: sqlite3.Connection) -> int:
        time.sleep(0.05)
        return 1

    asked = [asyncio.create_task(one.ask(slow)) for _ in range(reader.WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(Busy, match="Too many"):
        await one.ask(slow)
    turns = 0
    while not all(each.done() for each in asked):
        await asyncio.sleep(0.005)
        turns += 1
    assert turns > 20
    assert [each.result() for each in asked] == [1] * reader.WAITING
    await one.close()


async def test_damage_that_a_reader_meets_is_passed_on(large: Path) -> None:
    large.write_bytes(b"nonsense " * 5000)
    suspected: list[bool] = []
    one = Reader(large, lambda: suspected.append(True))
    with pytest.raises(SupervisorError, match="No telemetry can be read"):
        await one.ask(lambda connection: connection.execute("SELECT * FROM series").fetchall())
    assert suspected == [True]
    await one.close()


async def test_before_there_is_a_file_it_says_so(tmp_path: Path) -> None:
    one = Reader(tmp_path / "none", lambda: None)
    with pytest.raises(SupervisorError, match="No telemetry can be read"):
        await one.ask(lambda connection: connection.execute("SELECT 1").fetchone())
    await one.close()
