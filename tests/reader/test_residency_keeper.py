"""The supervisor's side, with the real reader as a process: what is known, when it is asked for, and warming."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from dbus_fast.aio import MessageBus

from gpusupervisor.arbitration.learned import Fact, Measured
from gpusupervisor.clock import SystemClock
from gpusupervisor.errors import Busy, GpuUnavailable, InvalidArgument, NotSupported, SupervisorError, WontFit
from gpusupervisor.jobs import Job, Jobs
from gpusupervisor.journal.messages.engines import ModelWarmed
from gpusupervisor.keepers import auto_warmer, residency_keeper
from gpusupervisor.keepers.auto_warmer import AutoWarmer
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.keepers.residency_keeper import STALE_AFTER, ResidencyKeeper
from gpusupervisor.memory import Memory
from gpusupervisor.models.model import Model
from gpusupervisor.models.warm_plan import WarmedUp
from gpusupervisor.state import EngineStatus
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.service import Telemetry
from gpusupervisor.tenants.activity.verdict import Activity, ActivityState
from gpusupervisor.tenants.definition import Match, ModelFolders, TenantDefinition
from tests.helper.conftest import ReaderBench as Bench
from tests.helper.conftest import eventually
from tests.model_files import MIB, disk_folder, make_cold, write
from tests.reader.test_page_cache_calls import PLENTY, TENANT

GIB = 1 << 30


class Clock(SystemClock):
    """Can be put forward."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead


class Side:
    """The keeper on the bench's bus, and the jobs that it works for."""

    def __init__(self, bench: Bench, models: Path) -> None:
        self.models = models
        self.clock = Clock()
        self.memory: Memory | None = Memory(64 * GIB, 32 * GIB)
        self.telemetry = Telemetry(None, Limits(0, 0), self.clock)
        self.keeper = self.new_keeper()
        self.changes: list[Job] = []
        self.jobs = Jobs(self.clock, self.changes.append)
        self._definition = TenantDefinition("app", "App", Match(), "llama.cpp", models=ModelFolders((str(models),)))

    def new_keeper(self) -> ResidencyKeeper:
        return ResidencyKeeper(self.clock, ModelFacts(self.telemetry), lambda: self.memory)

    def tick(self, *models: Model, activity: ActivityState = "idle") -> EngineStatus:
        """What a tick shows of the engine."""
        status = EngineStatus("app", "llama.cpp", "App", "http://127.0.0.1:1", True, "", "", models=models)
        activities = {"app": Activity(activity, "so", (), 0, 0)}
        return self.keeper.engines({"app": status}, {"app": self._definition}, activities)["app"]

    def cached(self, name: str) -> int | None:
        known = self.keeper.residencies.get("app")
        return known.models[name].cached if known and name in known.models else None

    async def warm(self, model: str, rate: int = 0) -> Job:
        """Warm to the end."""
        job = self.jobs.start("warm-up", await self.keeper.warm("app", model, rate))
        await eventually(lambda: self.jobs.get(job.id).state != "running", "the job has ended")
        return self.jobs.get(job.id)


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """The tests write files; what the keeper does is looked at by the supervisor's own tests."""


@pytest.fixture
def models(bench: Bench) -> Iterator[Path]:
    folder = disk_folder()
    (bench.tenants / "app.toml").write_text(TENANT.format(folder=folder))
    (bench.memory / "pressure").mkdir(parents=True)
    (bench.memory / "meminfo").write_text(PLENTY)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
async def side(bench: Bench, models: Path) -> AsyncIterator[Side]:
    side = Side(bench, models)
    bus = await MessageBus(bench.bus.address).connect()
    following = asyncio.ensure_future(side.keeper.keep_up_for_ever(bus))
    yield side
    await side.jobs.close()
    following.cancel()
    await asyncio.wait({following})
    assert following.cancelled()
    bus.disconnect()
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


async def test_what_is_in_ram_is_known_without_a_tick_waiting_for_it(bench: Bench, side: Side) -> None:
    write(side.models / "chat/m.gguf", 2 * MIB)
    bench.start()
    before = side.tick(Model("m"))
    assert before.models[0].cached is None
    await eventually(lambda: side.cached("chat/m.gguf") == 2 * MIB, "it is known")
    after = side.tick(Model("m"), Model("other")).models
    assert (after[0].cached, after[0].size, after[0].cached_problem) == (2 * MIB, 2 * MIB, "")
    assert (after[1].cached, after[1].cached_problem) == (
        None,
        "its files are not below the directories set under [models]",
    )


async def test_where_the_gpu_shares_the_memory_a_model_is_not_warmed_into_the_room_of_its_own_copy(
    bench: Bench, side: Side
) -> None:
    make_cold(write(side.models / "m.gguf", 6 * MIB))
    bench.start()
    side.tick()
    await eventually(lambda: side.cached("m.gguf") == 0, "it is cold")
    for spare, verdict in ((10 * MIB, "would-not-stay"), (13 * MIB, "worth-it")):
        side.memory = Memory(0, Memory(0, 0).margin + spare)
        side.keeper.shared = True
        (step,) = await side.keeper.plan_warming()
        assert step.verdict == verdict
        if verdict != "worth-it":
            with pytest.raises(WontFit, match="as much again once it is loaded"):
                await side.keeper.warm("app", "m.gguf", 0)
        side.keeper.shared = False
        (step,) = await side.keeper.plan_warming()
        assert step.verdict == "worth-it"


async def test_a_tick_in_which_nothing_changed_makes_nothing_anew(bench: Bench, side: Side) -> None:
    write(side.models / "m.gguf")
    bench.start()
    side.tick(Model("m"))
    await eventually(lambda: side.cached("m.gguf"), "it is known")
    assert side.tick(Model("m")).models is side.tick(Model("m")).models


async def test_a_warm_up_puts_it_into_ram_and_what_is_known_follows(bench: Bench, side: Side) -> None:
    make_cold(write(side.models / "m.gguf", 3 * MIB))
    bench.start()
    side.tick()
    await eventually(lambda: side.cached("m.gguf") == 0, "it is cold")
    job = await side.warm("m")
    assert job.state == "succeeded", job.detail
    assert isinstance(job.result, WarmedUp)
    assert (job.result.engine, job.result.model, job.result.size) == ("app", "m.gguf", 3 * MIB)
    assert side.cached("m.gguf") == 3 * MIB


async def test_a_model_whose_engine_names_its_file_is_known_and_warmed_by_its_own_name(
    bench: Bench, side: Side
) -> None:
    make_cold(write(side.models / "chat/m.gguf", 2 * MIB))
    bench.start()
    alias = Model("my-assistant", file=str(side.models / "chat/m.gguf"))
    elsewhere = Model("stray", file="/etc/chat/m.gguf")
    side.tick(alias, elsewhere)
    await eventually(lambda: side.cached("chat/m.gguf") == 0, "it is cold")
    known, unknown = side.tick(alias, elsewhere).models
    assert (known.size, known.cached_problem, unknown.cached) == (2 * MIB, "", None)
    job = await side.warm("my-assistant")
    assert job.state == "succeeded", job.detail
    assert side.cached("chat/m.gguf") == 2 * MIB
    with pytest.raises(InvalidArgument):
        await side.keeper.warm("app", "stray", 0)


async def test_a_warm_up_goes_no_faster_than_asked_and_tells_how_far_it_is(bench: Bench, side: Side) -> None:
    make_cold(write(side.models / "m.gguf", 4 * MIB))
    bench.start()
    side.tick()
    started = side.clock.now()
    job = await side.warm("m.gguf", rate=8 * MIB)
    assert job.state == "succeeded", job.detail
    assert side.clock.now() - started >= 400_000
    progress = [change.progress for change in side.changes]
    assert progress == sorted(progress)
    assert len(set(progress)) >= 4


async def test_one_that_is_cancelled_has_ended_within_200_ms_and_reads_no_more(bench: Bench, side: Side) -> None:
    make_cold(write(side.models / "m.gguf", 4 * MIB))
    bench.start()
    side.tick()
    job = side.jobs.start("warm-up", await side.keeper.warm("app", "m", MIB))
    await eventually(lambda: side.jobs.get(job.id).progress > 0, "it reads")
    asked = side.clock.now()
    side.jobs.cancel(job.id)
    await eventually(lambda: side.jobs.get(job.id).state == "cancelled", "it has ended")
    assert side.clock.now() - asked < 200_000
    assert (side.cached("m.gguf") or 0) < 4 * MIB
    assert (await side.warm("m")).state == "succeeded", "it can be begun again"


@pytest.mark.parametrize("again", [False, True])
async def test_a_reader_that_is_killed_in_the_middle_fails_the_job_clearly(
    bench: Bench, side: Side, again: bool
) -> None:
    make_cold(write(side.models / "m.gguf", 4 * MIB))
    bench.start()
    side.tick()
    job = side.jobs.start("warm-up", await side.keeper.warm("app", "m", MIB))
    await eventually(lambda: side.jobs.get(job.id).progress > 0, "it reads")
    bench.kill()
    if again:
        bench.start()
    await eventually(lambda: side.jobs.get(job.id).state == "failed", "it has failed")
    detail = side.jobs.get(job.id).detail
    assert "reader" in detail, detail
    assert "mistake" not in detail


async def test_it_is_given_up_when_memory_becomes_short(bench: Bench, side: Side) -> None:
    make_cold(write(side.models / "m.gguf", 4 * MIB))
    bench.start()
    side.tick()
    job = side.jobs.start("warm-up", await side.keeper.warm("app", "m", MIB))
    await eventually(lambda: side.jobs.get(job.id).progress > 0, "it reads")
    (bench.memory / "pressure/memory").write_text("some avg10=40.00 avg60=0.00 avg300=0.00 total=0\n")
    await eventually(lambda: side.jobs.get(job.id).state == "failed", "it was given up")
    assert "programs have to wait for memory" in side.jobs.get(job.id).detail


async def test_what_would_not_stay_fails_the_job_with_the_arithmetic(bench: Bench, side: Side) -> None:
    make_cold(write(side.models / "m.gguf", 4 * MIB))
    (bench.memory / "meminfo").write_text("MemTotal: 8000000 kB\nMemAvailable: 800000 kB\n")
    bench.start()
    side.tick()
    job = await side.warm("m")
    assert job.state == "failed"
    assert "would not stay in RAM" in job.detail


async def test_what_was_evicted_again_at_once_has_not_succeeded(
    bench: Bench, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(side.models / "m.gguf", 4 * MIB)
    bench.start()
    side.tick()
    work = await side.keeper.warm("app", "m", 0)
    refresh = side.keeper.refresh

    async def evicted(tenant: str) -> object:
        make_cold(file)
        return await refresh(tenant)

    monkeypatch.setattr(side.keeper, "refresh", evicted)
    with pytest.raises(WontFit, match="did not stay in RAM"):
        await work(lambda *_: None)


async def test_only_what_can_be_warmed_begins(bench: Bench, side: Side) -> None:
    write(side.models / "a/m.gguf")
    write(side.models / "b/m.gguf")
    bench.start()
    side.tick()
    with pytest.raises(NotSupported, match="models of other"):
        await side.keeper.warm("other", "m", 0)
    with pytest.raises(InvalidArgument, match="or several"):
        await side.keeper.warm("app", "m", 0)
    with pytest.raises(InvalidArgument):
        await side.keeper.warm("app", "/etc/passwd", 0)
    job = await side.warm("a/m")
    assert job.state == "succeeded"


async def test_a_model_is_warmed_once_at_a_time(bench: Bench, side: Side) -> None:
    make_cold(write(side.models / "m.gguf", 4 * MIB))
    bench.start()
    side.tick()
    job = side.jobs.start("warm-up", await side.keeper.warm("app", "m", MIB))
    await eventually(lambda: side.jobs.get(job.id).progress > 0, "it reads")
    with pytest.raises(Busy, match="already"):
        await side.keeper.warm("app", "m", 0)


async def test_without_a_reader_that_is_what_is_known(side: Side) -> None:
    side.tick()
    await eventually(lambda: "app" in side.keeper.residencies, "the question has come to an end")
    assert "the reader is not there" in side.keeper.residencies["app"].problems[0]
    assert "the reader is not there" in side.tick(Model("m")).models[0].cached_problem
    with pytest.raises(GpuUnavailable, match="the reader is not there"):
        await side.keeper.warm("app", "m", 0)
    assert await side.keeper.plan_warming() == ()


async def test_what_is_old_is_asked_anew_only_of_engines_that_run(bench: Bench, side: Side) -> None:
    file = write(side.models / "m.gguf")
    bench.start()
    side.tick()
    await eventually(lambda: side.cached("m.gguf") == MIB, "it is known")
    make_cold(file)
    side.clock.ahead += STALE_AFTER + 1
    for activity in ("absent", "idle"):
        side.tick(activity=activity)
        assert not side.keeper._due()
    side.tick(activity="busy")
    side.keeper._wanted.set()
    await eventually(lambda: side.cached("m.gguf") == 0, "it was asked anew")


async def test_what_was_learned_of_loads_is_shown_and_a_load_makes_what_is_known_old(bench: Bench, side: Side) -> None:
    write(side.models / "m.gguf", 2 * MIB)
    bench.start()
    side.tick(Model("m"))
    await eventually(lambda: side.cached("m.gguf") == 2 * MIB, "it is known")
    known = side.keeper.residencies["app"]
    side.telemetry.learn_speed("app", "load-warm", 2 * GIB)
    side.keeper.invalidate("app")
    await eventually(lambda: side.keeper.residencies["app"] is not known, "it was asked anew")
    [model] = side.tick(Model("m")).models
    assert str(model.load_estimate) == "from RAM, about 1s"


async def test_the_plan_knows_what_is_in_use_and_what_has_room(bench: Bench, side: Side) -> None:
    for name in ("old", "new"):
        make_cold(write(side.models / f"{name}.gguf", 4 * MIB))
    write(side.models / "warm.gguf", MIB)
    bench.start()
    side.tick(Model("new", "loaded"), Model("old"))
    plan = await side.keeper.plan_warming()
    assert [(step.model.name, step.verdict) for step in plan] == [
        ("new.gguf", "worth-it"),
        ("warm.gguf", "warm"),
        ("old.gguf", "worth-it"),
    ]
    side.memory = Memory(GIB, 512 * MIB + 6 * MIB)
    plan = await side.keeper.plan_warming()
    assert [step.verdict for step in plan] == ["worth-it", "warm", "would-not-stay"]
    side.memory = None
    assert {step.verdict for step in await side.keeper.plan_warming()} == {"would-not-stay", "warm"}


async def test_what_was_in_use_is_known_after_a_restart_for_a_month(
    bench: Bench, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_cold(write(side.models / "new.gguf", 4 * MIB))
    make_cold(write(side.models / "often.gguf", 4 * MIB))
    bench.start()
    for _ in range(2):
        side.tick(Model("new", "not-loaded"), Model("often", "loaded"))
        side.tick(Model("new", "loaded"), Model("often", "not-loaded"))
        side.tick(Model("new", "unknown"), Model("often", "unknown"))  # it fell silent for a moment
    uses = {fact.model: fact.value for fact in side.telemetry.facts.all()}
    assert uses == {"new": 2, "often": 2}
    again = side.new_keeper()
    again.residencies = {"app": await side.keeper.refresh("app")}
    side.keeper = again
    side.tick(Model("new", "not-loaded"), Model("often", "not-loaded"))
    bus = await MessageBus(bench.bus.address).connect()
    following = asyncio.ensure_future(again.keep_up_for_ever(bus))
    try:
        assert {step.reason for step in await again.plan_warming()} == {"it was used recently"}
        monkeypatch.setattr(residency_keeper, "LATELY", 0)
        assert {step.reason for step in await again.plan_warming()} == {
            "there is room, although it has not been seen in use"
        }
    finally:
        following.cancel()
        await asyncio.wait({following})
        bus.disconnect()
        await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


async def test_what_is_still_loaded_after_a_restart_is_not_used_once_more(side: Side) -> None:
    side.tick(Model("old", "loaded"), Model("new", "not-loaded"))
    side.keeper = side.new_keeper()
    side.tick()  # its list is not there yet
    side.tick(Model("old", "loaded"), Model("new", "loaded"))
    assert {fact.model: fact.value for fact in side.telemetry.facts.all()} == {"old": 1, "new": 1}
    side.tick(Model("old", "not-loaded"), Model("new", "loaded"))
    side.tick(Model("old", "loaded"), Model("new", "loaded"))
    assert {fact.model: fact.value for fact in side.telemetry.facts.all()} == {"old": 2, "new": 1}


async def test_before_there_is_a_bus_nothing_is_known() -> None:
    keeper = ResidencyKeeper(Clock(), ModelFacts(Telemetry(None, Limits(0, 0), Clock())))
    assert "still starting" in (await keeper.refresh("app")).problems[0]
    with pytest.raises(SupervisorError):
        await keeper.warm("app", "m", 0)


DAY = 86_400 * 1_000_000
CALM = Memory(64 * GIB, 32 * GIB, 0.0)


@pytest.fixture
def warmed(monkeypatch: pytest.MonkeyPatch) -> list[ModelWarmed]:
    """What the journal has."""
    lines: list[ModelWarmed] = []
    monkeypatch.setattr(auto_warmer, "write", lines.append)
    return lines


def used_daily(side: Side, name: str) -> None:
    """The engine has loaded the model on each of six days, the last of which is today."""
    now = side.clock.realtime(side.clock.now())
    days = tuple(Measured(now - days * DAY, 1) for days in range(5, -1, -1))
    side.telemetry.facts.learn(Fact("model-use", "app", "", 6, now, "it was seen", evidence=days, model=name))


def auto(side: Side, *, by_itself: bool = True, budget: int | None = None, may: bool = True) -> AutoWarmer:
    folders = ModelFolders((str(side.models),), warm_by_itself=by_itself)
    definitions = {"app": TenantDefinition("app", "App", Match(), "llama.cpp", models=folders)}
    return AutoWarmer(side.clock, side.keeper, lambda: definitions, lambda: budget, lambda: may, lambda: side.memory)


async def test_a_model_that_is_used_daily_is_read_into_ram_once_and_the_journal_says_so(
    bench: Bench, side: Side, warmed: list[ModelWarmed]
) -> None:
    daily, other = (write(side.models / name, 4 * MIB) for name in ("daily.gguf", "other.gguf"))
    make_cold(daily)
    make_cold(other)
    bench.start()
    side.tick()
    await eventually(lambda: side.cached("daily.gguf") == 0, "it is cold")
    used_daily(side, "daily.gguf")
    side.memory = CALM
    warmer = auto(side)
    await warmer.look()
    assert (side.cached("daily.gguf"), side.cached("other.gguf")) == (4 * MIB, 0)
    assert [(each.tenant, each.model, each.size) for each in warmed] == [("app", "daily.gguf", 4 * MIB)]
    await warmer.look()
    make_cold(daily)
    await warmer.look()
    assert len(warmed) == 1, "what did not stay is not read again at once"


@pytest.mark.parametrize(
    ("memory", "options"),
    [
        (Memory(64 * GIB, 32 * GIB, 3.0), {}),
        (Memory(64 * GIB, 32 * GIB, None), {}),
        (Memory(64 * GIB, 6 * GIB, 0.0), {}),
        (None, {}),
        (CALM, {"by_itself": False}),
        (CALM, {"budget": MIB}),
        (CALM, {"may": False}),
    ],
)
async def test_nothing_is_read_by_itself_against_pressure_the_budget_or_the_wish(
    bench: Bench, side: Side, warmed: list[ModelWarmed], memory: Memory | None, options: dict[str, Any]
) -> None:
    make_cold(write(side.models / "daily.gguf", 4 * MIB))
    bench.start()
    side.tick()
    await eventually(lambda: side.cached("daily.gguf") == 0, "it is cold")
    used_daily(side, "daily.gguf")
    side.memory = memory
    await auto(side, **options).look()
    assert warmed == []
    await side.keeper.refresh("app")
    assert side.cached("daily.gguf") == 0


async def test_a_warming_that_the_reader_stops_is_no_line_in_the_journal(
    bench: Bench, side: Side, warmed: list[ModelWarmed]
) -> None:
    make_cold(write(side.models / "daily.gguf", 4 * MIB))
    (bench.memory / "pressure/memory").write_text("some avg10=90.00 avg60=0.00 avg300=0.00 total=0\n")
    bench.start()
    side.tick()
    await eventually(lambda: side.cached("daily.gguf") == 0, "it is cold")
    used_daily(side, "daily.gguf")
    side.memory = CALM
    await auto(side).look()
    assert warmed == []
