"""How the checks are run: each for itself, dated, remembered, with what is dear in the background."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Any

import pytest

from gpusupervisor.gpu import driver_status
from gpusupervisor.gpu.power import DevicePower
from gpusupervisor.gpu.sample import DriverStatus, GpuProcess, Sample
from gpusupervisor.health.checks import CHECKS, SelfCheckItem
from gpusupervisor.health.facts import Facts
from gpusupervisor.health.remembered import lasting
from gpusupervisor.health.self_check import FRESH, LOOK_EVERY, LOOK_LASTS, SelfCheck
from gpusupervisor.health.surroundings import PolkitSeen, Surroundings
from gpusupervisor.state import Check
from gpusupervisor.tenants.activity.verdict import Trouble
from gpusupervisor.tenants.census import Census
from tests.arbitration.builders import CARD, GIB, NOW
from tests.arbitration.seen import card, doing, process
from tests.health.builders import SECOND, engine, facts


class Clock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.instant = NOW

    def now(self) -> int:
        return self.instant

    def realtime(self, instant: int) -> int:
        return instant


class Around:
    """Looks around as it is told."""

    def __init__(self) -> None:
        self.looks = 0
        self.answer: Surroundings | Exception = Surroundings(polkit=PolkitSeen("answers"))
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> Surroundings:
        self.looks += 1
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
async def around() -> AsyncIterator[Around]:
    one = Around()
    yield one
    one.gate.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def self_check(clock: Clock, around: Around, items: Iterable[SelfCheckItem] = CHECKS) -> SelfCheck:
    return SelfCheck(clock, asyncio.create_task, around, items)


def one_of(checks: Iterable[Check], name: str) -> Check:
    (check,) = [check for check in checks if check.id == name]
    return check


def at(clock: Clock, found: Facts, seconds: float) -> Facts:
    """The same, later."""
    clock.instant = NOW + round(seconds * SECOND)
    return replace(found, now=clock.instant)


def rich_facts() -> Facts:
    """Something of everything."""
    return facts(
        process(7, 2),
        process(8, 5, "ollama"),
        process(9, 1, "desktop"),
        tenants={"ollama": doing("idle"), "desktop": doing("unknown")},
        engines={"ollama": engine()},
    )


async def test_every_check_in_the_list_is_produced(clock: Clock, around: Around) -> None:
    for found in (rich_facts(), facts(), replace(facts(), sample=Sample(NOW, driver_status.STARTING))):
        checks = self_check(clock, around).run(found)
        for item in CHECKS:
            beginnings = {item.name, item.name.removesuffix("s"), _SINGULAR.get(item.name, item.name)}
            assert [c for c in checks if any(c.id == b or c.id.startswith(f"{b}-") for b in beginnings)], item.name
        assert len({check.id for check in checks}) == len(checks), "an id is there twice"


_SINGULAR = {"apis": "api", "gpus": "gpu"}


async def test_a_check_that_raises_has_failed_and_takes_nothing_down(
    clock: Clock, around: Around, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_facts: Facts) -> Iterable[Check]:
        yield Check("half", "ok", "said before it broke")
        raise KeyError("x")

    well = SelfCheckItem("well", lambda _facts: (Check("well", "ok", "fine"),))
    runner = self_check(clock, around, (SelfCheckItem("broken", broken), well))
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            checks = runner.run(facts())
    check = one_of(checks, "broken")
    assert check.state == "failed"
    assert check.impact
    assert check.remedy
    assert "KeyError" in check.summary
    assert one_of(checks, "well").state == "ok"
    assert [record.getMessage() for record in caplog.records] == ["the self-check broken raised"]
    assert caplog.records[0].exc_info


async def test_a_check_that_was_mended_is_well_and_breaking_again_is_told_again(
    clock: Clock, around: Around, caplog: pytest.LogCaptureFixture
) -> None:
    broken = [True, False, True]

    def look(_facts: Facts) -> Iterable[Check]:
        if broken.pop(0):
            raise ValueError
        return (Check("it", "ok", "fine"),)

    runner = self_check(clock, around, (SelfCheckItem("it", look),))
    states = [one_of(runner.run(facts()), "it").state for _ in range(3)]
    assert states == ["failed", "ok", "failed"]
    assert len([r for r in caplog.records if "raised" in r.getMessage()]) == 2


async def test_what_ends_a_task_is_not_taken_for_a_defect(clock: Clock, around: Around) -> None:
    def look(_facts: Facts) -> Iterable[Check]:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        self_check(clock, around, (SelfCheckItem("it", look),)).run(facts())


async def test_a_check_has_the_time_when_it_came_into_its_state(clock: Clock, around: Around) -> None:
    runner = self_check(clock, around)
    found = facts()
    lost = replace(found, sample=Sample(NOW, driver_status.NO_GPU))
    assert one_of(runner.run(found), "driver").since == NOW
    assert one_of(runner.run(at(clock, found, 5)), "driver").since == NOW
    assert one_of(runner.run(at(clock, lost, 7)), "driver").since == NOW + 7 * SECOND
    assert one_of(runner.run(at(clock, lost, 9)), "driver").since == NOW + 7 * SECOND


async def test_it_is_looked_around_at_once_and_then_once_a_minute(clock: Clock, around: Around) -> None:
    runner = self_check(clock, around)
    assert one_of(runner.run(facts()), "polkit").state == "skipped"
    await asyncio.sleep(0)
    for second in range(1, 60):
        assert one_of(runner.run(at(clock, facts(), second)), "polkit").state == "ok"
        await asyncio.sleep(0)
    assert around.looks == 1
    runner.run(at(clock, facts(), LOOK_EVERY / SECOND))
    await asyncio.sleep(0)
    assert around.looks == 2


async def test_a_look_around_that_hangs_holds_up_nothing_and_is_told(clock: Clock, around: Around) -> None:
    around.gate.clear()
    runner = self_check(clock, around)
    runner.run(facts())
    await asyncio.sleep(0)
    assert one_of(runner.run(at(clock, facts(), 29)), "surroundings").state == "skipped"
    check = one_of(runner.run(at(clock, facts(), LOOK_LASTS / SECOND)), "surroundings")
    assert (check.state, bool(check.impact), bool(check.remedy)) == ("degraded", True, True)
    runner.run(at(clock, facts(), 200))
    assert around.looks == 1, "one at a time"
    around.gate.set()
    await runner.look()
    assert one_of(runner.run(at(clock, facts(), 201)), "surroundings").state == "ok"


async def test_a_look_around_that_raises_is_a_failed_check_until_it_works_again(
    clock: Clock, around: Around, caplog: pytest.LogCaptureFixture
) -> None:
    works, around.answer = around.answer, RuntimeError("boom")
    runner = self_check(clock, around)
    for minute in range(3):
        runner.run(at(clock, facts(), 60 * minute))
        await asyncio.sleep(0)
    check = one_of(runner.run(facts()), "surroundings")
    assert check.state == "failed"
    assert "RuntimeError" in check.summary
    assert len(caplog.records) == 1
    around.answer = works
    clock.instant += 300 * SECOND
    await runner.look()
    assert one_of(runner.run(facts()), "surroundings").state == "ok"


async def test_who_asks_waits_for_one_look_and_all_who_ask_at_once_share_it(clock: Clock, around: Around) -> None:
    runner = self_check(clock, around)
    await asyncio.gather(*(runner.look() for _ in range(20)))
    await runner.look()
    assert around.looks == 1
    clock.instant += FRESH
    await runner.look()
    assert around.looks == 2


async def test_closing_ends_a_look_that_is_under_way(clock: Clock, around: Around) -> None:
    around.gate.clear()
    runner = self_check(clock, around)
    runner.run(facts())
    await asyncio.sleep(0)
    runner.close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == 1


async def test_what_lasts_is_remembered_over_the_looks_and_forgotten_when_it_ends(clock: Clock, around: Around) -> None:
    runner = self_check(clock, around)
    held, free = facts(process(7, 3)), facts()
    name = f"unmanaged-{CARD}"
    states = [
        one_of(runner.run(at(clock, found, second)), name).state
        for second, found in ((0, held), (59, held), (60, held), (61, free), (62, held), (121, held), (122, held))
    ]
    assert states == ["ok", "ok", "degraded", "ok", "ok", "ok", "degraded"]


async def test_an_api_in_trouble_now_in_one_way_and_then_in_another_is_told(clock: Clock, around: Around) -> None:
    runner, states = self_check(clock, around), []
    for second in range(0, 21, 4):
        trouble: Trouble = "slow" if second % 8 else "unreachable"
        found = facts(
            process(7, 3, "ollama"),
            tenants={"ollama": doing("unknown", trouble=trouble, trouble_detail="no answer")},
            engines={"ollama": engine()},
        )
        states.append(one_of(runner.run(at(clock, found, second)), "api-ollama").state)
    assert states == ["ok", "ok", "ok", "degraded", "degraded", "degraded"]


async def test_a_figure_in_a_text_stands_still_until_it_has_moved(clock: Clock, around: Around) -> None:
    runner = self_check(clock, around)
    texts = []
    for second, size in enumerate((3, 3, 3.1, 3.2, 3.3, 3.2)):
        check = one_of(runner.run(at(clock, facts(process(7, size)), 60 * second)), f"unmanaged-{CARD}")
        texts.append(check.summary.split(" of ")[0])
    assert texts[1:] == ["3.0 GiB", "3.0 GiB", "3.0 GiB", "3.3 GiB", "3.3 GiB"]


async def test_a_gpu_is_kept_awake_only_while_nobody_holds_memory_on_it(clock: Clock, around: Around) -> None:
    around.answer = Surroundings(power=(DevicePower("", "active", "auto"),))
    runner = self_check(clock, around)
    vacant = facts()
    runner.run(vacant)
    await asyncio.sleep(0)
    states = [one_of(runner.run(at(clock, vacant, 60 * minute)), "sleep-").state for minute in range(1, 18)]
    assert states == [*["ok"] * 15, "degraded", "degraded"]


@pytest.mark.parametrize(
    ("gpu", "kept_awake"),
    [
        ({}, True),
        ({"processes": (GpuProcess(7, 4 << 20, frozenset({"graphics"})),)}, True),
        ({"processes": (GpuProcess(7, 900 << 20, frozenset({"graphics"})),)}, False),
        ({"processes": (GpuProcess(7, None, frozenset({"graphics"})),)}, False),
        ({"attribution_problem": "attribution unavailable: MIG is enabled"}, False),
        ({"state": "failing"}, False),
        ({"state": "asleep"}, True),
    ],
)
def test_who_has_a_gpu_open_without_using_it_does_not_hide_that_it_stays_awake(
    gpu: dict[str, Any], kept_awake: bool
) -> None:
    sample = Sample(0, DriverStatus("ok"), (card(5, **gpu),))
    around = Surroundings(power=(DevicePower("", "active", "auto"),))
    assert list(lasting(sample, Census({}, {}), {}, around, ())) == ([("awake", "")] if kept_awake else [])


async def test_while_the_machine_is_suspended_nothing_lasts(clock: Clock, around: Around) -> None:
    around.answer = Surroundings(power=(DevicePower("", "active", "auto"),))
    runner = self_check(clock, around)
    runner.run(facts())
    await asyncio.sleep(0)
    night = 8 * 3600
    seconds = [*range(60, 180, 60), *range(night, night + 16 * 60, 60)]
    states = [one_of(runner.run(at(clock, facts(), second)), "sleep-").state for second in seconds]
    assert states == [*["ok"] * 16, "degraded", "degraded"]


async def test_no_check_that_is_bad_lacks_impact_or_remedy(clock: Clock, around: Around) -> None:
    """Over everything that can be wrong at once."""
    around.answer = Surroundings(power=(DevicePower("x", "active", "auto"),), polkit=PolkitSeen("missing"))
    runner = self_check(clock, around)
    ghost = replace(process(99, 2), identity=None)
    trouble = doing("unknown", trouble="slow", trouble_detail="its API does not answer")
    found = facts(
        process(7, 2),
        process(8, 5, "ollama"),
        process(9, 9, "desktop"),
        tenants={"ollama": trouble, "desktop": doing("unknown")},
        engines={"ollama": engine(version="0.3.0")},
        unattributed=3,
        ghosts=(ghost,),
        problems=("a.toml: title: is missing",),
        declaration_problems=("x.service: GPUSUPERVISOR_PRIORITY: no number",),
    )
    for second in range(0, 1200, 60):
        checks = runner.run(at(clock, found, second))
        await asyncio.sleep(0)
    bad = {check.id for check in checks if check.state in ("degraded", "failed")}
    assert bad == {
        f"unmanaged-{CARD}", f"unattributed-{CARD}", f"desktop-{CARD}", "processes", "configuration", "declaration-1",
        "api-ollama", "version-ollama", "polkit", "sleep-x",
    }  # fmt: skip
    assert [check.id for check in checks if check.id in bad and not (check.impact and check.remedy)] == []
    assert sum(holder.used or 0 for holder in found.census.gpus[CARD].unmanaged) == 2 * GIB
