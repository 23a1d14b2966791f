"""`history` and `events`: from what the service has stored to a plot, lines, and JSON that stays as it is."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest

from gpusupervisor.arbitration.learned import KINDS as FACT_KINDS
from gpusupervisor.bus.service import BusService
from gpusupervisor.cli import shapes
from gpusupervisor.cli.commands import learned
from gpusupervisor.cli.commands.history import KINDS, SERIES
from gpusupervisor.cli.screens.events import event_line, told
from gpusupervisor.cli.screens.history import plots
from gpusupervisor.cli.terminal import Canvas
from gpusupervisor.telemetry.records import ACTIVITIES, EVENT_KINDS, GPU_SERIES, TENANT_SERIES, StoredEvent
from tests.bus.builders import CARD, GIB, FakeClock, make_state, no_jobs
from tests.bus.conftest import PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority
from tests.cli.conftest import COMMAND, Run
from tests.cli.past import STEP, Past
from tests.cli.screens import NASTY, drawn, is_harmless
from tests.cli.test_shapes import outline

POINT = {"begin": "int", "least": "int", "mean": "int", "most": "int"}
T1 = 1_790_000_000_000_000
COLOURED, PLAIN, ASCII = Canvas(80, True, True), Canvas(80, False, True), Canvas(60, False, False)


@pytest.fixture
def past() -> Past:
    return Past(time.time_ns() // 1000)


@pytest.fixture
async def remembering(bus: PrivateBus, past: Past) -> AsyncIterator[BusService]:
    one = await BusService.start(
        bus.address, FakeController(), FakeHardware(), no_jobs(), "1", FakeClock(), lambda _: FixedAuthority(), past
    )
    one.publish(make_state())
    yield one
    await one.stop()


def test_the_words_of_the_service_are_known() -> None:
    assert set(SERIES) == {*GPU_SERIES, *TENANT_SERIES}
    assert KINDS == EVENT_KINDS


async def test_history_in_json_stays_as_it_is(ctl: Run, remembering: BusService) -> None:
    shown = await ctl("history", "--json")
    assert (shown.status, shown.errors) == (0, "")
    found = json.loads(shown.output)
    curve = {"series": "str", "gpu": "str", "tenant": "NoneType", "points": [POINT]}
    assert outline(found) == {"from": "int", "to": "int", "series": [curve]}
    assert found["series"][0]["series"] == "used"
    assert [point["most"] // GIB for point in found["series"][0]["points"]] == [18, 18, 20, 18, 6]


async def test_the_wanted_time_and_number_of_points_are_asked_for(
    ctl: Run, remembering: BusService, past: Past
) -> None:
    assert (await ctl("history", "--json", "--since", "30min", "--points", "7", "--tenant", "ollama")).status == 0
    [(_, series, begin, until, count)] = [each for each in past.asked if each[0] == "query"]
    assert (series, count) == (("holding", CARD, "ollama"), 7)
    assert isinstance(begin, int)
    assert isinstance(until, int)
    assert until - begin == 30 * 60 * 1_000_000


async def test_history_is_a_plot_with_the_figures_of_each_curve(ctl: Run, remembering: BusService) -> None:
    shown = await ctl("history", "--series", "holding")
    lines = shown.output.splitlines()
    assert lines[0] == "memory held, GiB"
    assert lines[1].startswith("  ┌")
    assert lines[-2] == "A  comfyui, NVIDIA GeForce RTX 4090: 5.0 GiB at the end, 5.0 GiB to 7.0 GiB"
    assert lines[-1] == "B  ollama, NVIDIA GeForce RTX 4090: 0 B at the end, 0 B to 12.0 GiB"


async def test_what_is_no_memory_has_a_unit_of_its_own(ctl: Run, remembering: BusService) -> None:
    lines = (await ctl("history", "--series", "power")).output.splitlines()
    assert lines[0] == "power drawn, W"
    assert lines[-1].endswith("NVIDIA GeForce RTX 4090: 61 W at the end, 60 W to 320 W")


async def test_what_is_not_known_is_said(ctl: Run, remembering: BusService) -> None:
    for arguments in (("--tenant", "nobody"), ("--series", "need")):
        shown = await ctl("history", *arguments)
        assert (shown.status, shown.output) == (1, "")
        assert "Nothing of that is known of the last 2h" in shown.errors
    assert (await ctl("history", "--points", "0")).status == 2
    assert (await ctl("history", "--gpu", "GPU-nobodys")).status == 2


async def test_a_service_that_cannot_answer_says_why(ctl: Run, service: BusService) -> None:
    service.publish(make_state())
    shown = await ctl("history")
    assert (shown.status, shown.output) == (1, "")
    assert shown.errors


async def test_events_in_json_stay_as_they_are(ctl: Run, remembering: BusService, past: Past) -> None:
    shown = await ctl("events", "--json")
    found = json.loads(shown.output)
    assert [each["kind"] for each in found] == ["plan", "step", "load"]
    assert found[1] == {
        "kind": "step", "at": past.now - 2 * STEP, "tenant": "ollama", "gpu": CARD, "plan": "plan-1",
        "details": {"outcome": "freed", "freed": 8 * GIB, "detail": "memory back within 0.8 s"},
    }  # fmt: skip
    assert found[2]["plan"] is None


async def test_events_are_lines_of_one_kind_where_that_is_asked_for(ctl: Run, remembering: BusService) -> None:
    shown = await ctl("events")
    assert [line.split(maxsplit=3)[2] for line in shown.output.splitlines()] == ["plan", "step", "load"]
    assert shown.output.splitlines()[1].endswith("plan-1 ollama freed: memory back within 0.8 s")
    only = await ctl("events", "--kind", "load", "--since", "1w")
    [line] = only.output.splitlines()
    assert line.endswith("ollama loaded qwen3:8b (8.0 GiB) in 2s 500ms from disk")
    none = await ctl("events", "--kind", "drift")
    assert (none.status, none.output) == (0, "")
    assert "Nothing has happened in the last 1d" in none.errors


async def test_follow_tells_what_happens_once_and_only_asks_when_something_has(
    bus: PrivateBus, remembering: BusService, past: Past
) -> None:
    process = await bus.spawn(*COMMAND, "events", "--follow", "--json")
    assert process.stdout is not None
    async with asyncio.timeout(15):
        first = [json.loads(await process.stdout.readline()) for _ in range(3)]
        asked = len(past.asked)
        past.happened.append(StoredEvent("health", past.now, "", "", "", json.dumps({"id": "driver", "state": "ok"})))
        remembering.publish(make_state(states={"ollama": "idle"}))
        latest = json.loads(await process.stdout.readline())
    assert [each["kind"] for each in first] == ["plan", "step", "load"]
    assert (latest["kind"], latest["details"]) == ("health", {"id": "driver", "state": "ok"})
    assert len(past.asked) == asked + 1
    process.terminate()
    await process.communicate()


async def test_follow_goes_on_over_a_restart_of_the_service(
    bus: PrivateBus, remembering: BusService, past: Past
) -> None:
    process = await bus.spawn(*COMMAND, "events", "--follow", "--json")
    assert process.stdout is not None
    assert process.stderr is not None
    async with asyncio.timeout(20):
        for _ in range(3):
            await process.stdout.readline()
        await remembering.stop()
        assert b"has stopped" in await process.stderr.readline()
        past.happened.append(StoredEvent("job", past.now, "", "", "", json.dumps({"id": 1, "state": "succeeded"})))
        again = await BusService.start(
            bus.address, FakeController(), FakeHardware(), no_jobs(), "1", FakeClock(), lambda _: FixedAuthority(), past
        )
        assert json.loads(await process.stdout.readline())["kind"] == "job"
    process.terminate()
    await process.communicate()
    await again.stop()


async def test_follow_without_a_service_says_so(ctl: Run) -> None:
    shown = await ctl("events", "--follow")
    assert shown.status == 3
    assert "not running" in shown.errors


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"kind": "plan", "plan": "p1", "details": {"summary": "ask x"}}, "p1 planned: ask x"),
        ({"kind": "plan-started", "plan": "p1", "details": {}}, "p1 started"),
        (
            {"kind": "outcome", "plan": "p1", "details": {"outcome": "failed", "freed": 0}},
            "p1 finished, failed: 0 B came back",
        ),
        ({"kind": "job", "details": {"id": 3, "state": "failed", "detail": "no"}}, "job 3 failed: no"),
        (
            {"kind": "decisions", "details": {"since": 1, "counts": {"asked": 1, "pressed": 20}}},
            "decisions: pressed 20, asked 1",
        ),
        ({"kind": "decisions", "details": {"counts": {"asked": "much"}}}, "decisions"),
        ({"kind": "drift", "details": {"id": "fans", "state": "drifted", "detail": "x"}}, "fans is drifted: x"),
        ({"kind": "drift", "details": {"id": "fan", "state": "ended", "detail": "x"}}, "the drift of fan is over: x"),
        ({"kind": "health", "details": {"id": "driver", "state": "gone"}}, "driver is gone"),
        ({"kind": "comet", "tenant": "x", "details": {"a": 1}}, "x: {'a': 1}"),
        ({"kind": "outcome", "plan": "p1", "details": {"freed": "much"}}, "p1 finished, ?: ? came back"),
    ],
)  # fmt: skip
def test_every_kind_is_a_sentence(event: shapes.Shape, text: str) -> None:
    assert told({"at": T1, "tenant": None, "gpu": None, "plan": None, **event}) == text


def test_nothing_that_was_stored_can_steer_the_terminal() -> None:
    for kind in (*KINDS, NASTY):
        details = json.dumps(
            dict.fromkeys(("summary", "detail", "outcome", "state", "model", "source", "id"), NASTY)
            | {"counts": {NASTY: 1}}
        )
        event = shapes.event({"kind": kind, "at": T1, "tenant": NASTY, "gpu": "", "plan": NASTY, "details": details})
        assert is_harmless(drawn([event_line(event)], 10_000))
    assert shapes.event({"kind": "x", "at": 1, "tenant": "", "gpu": "", "plan": "", "details": "["})["details"] == {
        "text": "["
    }


def curve(name: str = "holding", tenant: str = "ollama", values: tuple[int, ...] = (1, 5, 2)) -> shapes.Shape:
    points = [(T1 + n * STEP, v * GIB, v * GIB, v * GIB) for n, v in enumerate(values)]
    if name == "activity":
        points = [(at, v, v, v) for (at, *_), v in zip(points, values, strict=True)]
    return shapes.history(name, "" if name == "activity" else "GPU-1", tenant, points)


def plot(canvas: Canvas, *curves: shapes.Shape) -> list[str]:
    gpus = {"GPU-1": {"name": "RTX", "memory_total": 24 * GIB}}
    made = plots(curves, gpus, T1, T1 + 3 * STEP, canvas)
    return drawn(made, canvas.width, colours=canvas.colours).splitlines()


def test_the_upper_end_is_the_whole_card() -> None:
    assert any(line.lstrip().startswith("24┤") for line in plot(PLAIN, curve()))


def test_curves_are_told_apart_by_letters_where_there_are_no_colours() -> None:
    two = "\n".join(plot(PLAIN, curve(), curve(tenant="comfyui", values=(3, 3, 3))))
    assert "AA" in two
    assert "BBB" in two
    assert "\x1b" not in two
    assert "\x1b[36m" in "\n".join(plot(COLOURED, curve(), curve(tenant="comfyui")))


def test_ascii_is_enough() -> None:
    lines = plot(ASCII, curve())
    assert all(line.isascii() for line in lines)
    assert max(map(len, lines)) <= ASCII.width


def test_activity_has_words_on_its_axis() -> None:
    lines = "\n".join(plot(PLAIN, curve("activity", values=(0, 1, 2))))
    assert all(word in lines for word in ACTIVITIES)


def test_no_line_is_drawn_over_a_time_of_which_nothing_is_known() -> None:
    """Two stretches of three points, with a wide gap."""
    whole = curve(values=(5,) * 30)
    gap = {**whole, "points": whole["points"][:3] + whole["points"][-3:]}
    wide = Canvas(80, False, True)
    made = drawn(plots([gap], {}, T1, T1 + 30 * STEP, wide), 80)
    row = next(line for line in made.splitlines() if "⠒" in line or "⠉" in line or "⣀" in line or "⠤" in line)
    assert "   " * 10 in row


async def test_what_was_learned_is_listed_with_when_and_from_what(ctl: Run, remembering: BusService) -> None:
    header, comfyui, load, need = (await ctl("learned")).output.splitlines()
    assert header.split() == ["TENANT", "WHAT", "VALUE", "LEARNED", "FROM"]
    assert comfyui.startswith("comfyui  floor")
    assert comfyui.endswith("what it kept after a release on NVIDIA GeForce RTX 4090")
    assert " 4.0 GiB/s  20" in load
    assert need.split()[:4] == ["ollama", "need", "13.0", "GiB"]
    assert need.endswith("the most that it held while it worked; not stored yet")
    told = json.loads((await ctl("learned", "comfyui", "--json")).output)
    assert [(fact["kind"], fact["gpu"], fact["application"], fact["stored"]) for fact in told] == [
        ("floor", CARD, None, True)
    ]
    assert (await ctl("learned", "olama")).errors == "No tenant is called 'olama'; do you mean ollama?\n"


async def test_what_was_learned_can_be_forgotten(ctl: Run, remembering: BusService, past: Past) -> None:
    shown = await ctl("forget", "ollama", "--kind", "need")
    assert (shown.status, shown.output) == (0, "Forgot 1 fact of ollama; it will be learned again.\n")
    assert json.loads((await ctl("forget", "ollama", "--json")).output) == {"tenant": "ollama", "forgotten": 2}
    assert past.asked[-2:] == [("forget", "ollama", "need"), ("forget", "ollama", "")]
    shown = await ctl("forget", "olama")
    assert (shown.status, shown.errors) == (1, "No tenant is called 'olama'; do you mean ollama?\n")
    assert (await ctl("forget", "ollama", "--kind", "party")).status == 2


def test_the_kinds_of_facts_are_known() -> None:
    assert learned.KINDS == FACT_KINDS
