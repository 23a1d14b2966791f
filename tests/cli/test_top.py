"""The live screen: what it shows, what its keys do, and how it bears a service that goes and comes."""

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gpusupervisor.arbitration.events import PlanFinished, PlanMade
from gpusupervisor.arbitration.situation import Assessment, Reservation
from gpusupervisor.bus.service import BusService
from gpusupervisor.cli.top import app, feed
from gpusupervisor.errors import NotReclaimable
from gpusupervisor.jobs import Job, Jobs
from gpusupervisor.state import Check
from tests.bus.builders import CARD, GIB, FakeClock, make_controls, make_plan, make_result, make_state
from tests.bus.conftest import PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority
from tests.cli.conftest import COMMAND, Run
from tests.cli.eavesdropper import Eavesdropper
from tests.cli.labour import Labour
from tests.cli.past import Past
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.cli.screens import NASTY, is_harmless
from tests.cli.shapes_of import EVERY_SCRIPT
from tests.cli.stage import Stage, stage


class Scene:
    """A service with a past and with jobs; it can go and come."""

    def __init__(self, bus: PrivateBus) -> None:
        self.bus = bus
        self.controller = FakeController()
        self.past = Past(time.time_ns() // 1000)
        self.jobs = Jobs(FakeClock(), self._show)
        self.service: BusService

    async def start(self) -> None:
        self.service = await BusService.start(
            self.bus.address, self.controller, FakeHardware(), self.jobs, "1.2.3", FakeClock(),
            lambda _: FixedAuthority(), self.past,
        )  # fmt: skip
        self.service.publish(replace(make_state(), controls=make_controls()))

    def _show(self, job: Job) -> None:
        self.service.show_job(job)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither calls nor refreshes wait for their second."""
    monkeypatch.setattr(feed, "APART", 0.01)
    monkeypatch.setattr(feed, "RETRY", (0.02,))
    monkeypatch.setattr(app, "REFRESH", 0.05)


@pytest.fixture
async def scene(bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    one = Scene(bus)
    await one.start()
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
    yield one
    await one.jobs.close()
    await one.service.stop()


@pytest.fixture
async def shown(scene: Scene, quick: None) -> AsyncIterator[Stage]:
    async with stage(120) as one:
        await one.until("1.2.3")
        await one.until_true(lambda: len(queries(scene)) == 3, "three figures asked for")
        yield one


@pytest.fixture
async def listener(scene: Scene) -> AsyncIterator[Eavesdropper]:
    """Of all calls to the service."""
    one = await Eavesdropper.on(scene.bus.address)
    yield one
    await one.close()


def queries(scene: Scene) -> list[tuple[str, str]]:
    """Of which series and tenant the past was asked for."""
    return [(series.name, series.tenant) for kind, series, *_ in scene.past.asked if kind == "query"]  # type: ignore[attr-defined]


async def test_the_overview_has_cards_and_who_holds_them(shown: Stage) -> None:
    lines = shown.text.splitlines()
    assert lines[0] == "gpusupervisor 1.2.3, automatic, driver 580.95.05, healthy"
    assert lines[2].startswith("NVIDIA GeForce RTX 4090  18.1 GiB of 24.0 GiB held, 5.4 GiB free")
    rows = [line.split() for line in lines if line.startswith("█ ")]
    assert [row[1:5] for row in rows] == [
        ["ollama", "busy", "12.0", "GiB"], ["comfyui", "idle", "5.0", "GiB"], ["train.py", "unmanaged", "1.0", "GiB"],
    ]  # fmt: skip


async def test_sparklines_begin_with_what_the_service_remembers(shown: Stage, scene: Scene) -> None:
    assert queries(scene) == [("used", ""), ("holding", "ollama"), ("holding", "comfyui")]
    await shown.until("▇", "▄")


async def test_each_view_has_its_key(shown: Stage) -> None:
    for key, *parts in (
        ("2", "released by", "as its API says", "last 10 minutes"), ("3", "plan-1 planned: ask ollama"),
        ("4", "http://127.0.0.1:1", "qwen3:8b"), ("5", "30 % at 40 °C", "power-limit", "drifted"),
        ("6", "driver 580.95.05 answers"), ("7", "no job runs"), ("1", "TENANT"),
    ):  # fmt: skip
        await shown.press(key)
        await shown.until(*parts)
    await shown.press("left")
    await shown.until("no job runs")
    await shown.press("escape", "down", "enter")
    await shown.until("Comfyui  comfyui")
    await shown.press("up")
    await shown.until("Ollama  ollama")


async def test_a_plan_is_shown_and_nothing_is_done(shown: Stage, scene: Scene) -> None:
    await shown.press("p")
    text = await shown.until("Plan for ollama: nothing is done yet", "NOT ASKED")
    assert "comfyui" in text
    assert "train.py (pid 4242)" in text
    assert "y/n" not in text
    await shown.press("y", "escape")
    assert scene.controller.calls == [("plan_release", "", "ollama", 0)]
    assert "NOT ASKED" not in shown.text


async def test_a_release_is_asked_about_first(shown: Stage, scene: Scene) -> None:
    await shown.press("down", "r")
    await shown.until("Ask comfyui for its memory?  y/n", "4.5 GiB would come back")
    await shown.press("enter")
    assert "y/n" in shown.text
    await shown.press("n")
    assert scene.controller.calls == []
    scene.controller.gate.clear()
    await shown.press("r")
    await shown.until("y/n")
    await shown.press("y")
    await shown.until("comfyui is asked for its memory")
    assert scene.controller.calls == [("release", "comfyui")]
    scene.controller.gate.set()
    await shown.until("satisfied: 4.0 GiB came back", "memory back within 0.8 s")
    await shown.press("escape")
    assert "comfyui is asked for its memory" not in shown.text


async def test_errors_are_in_the_words_of_the_service(shown: Stage, scene: Scene) -> None:
    scene.controller.failure = NotReclaimable("ollama is busy: a prompt runs")
    await shown.press("r", "y")
    await shown.until("That did not work", "ollama is busy: a prompt runs")


async def test_room_is_made_after_the_plan_was_seen(shown: Stage, scene: Scene) -> None:
    await shown.press("m")
    await shown.until("Make room", "ollama")
    await shown.press(*"lots", "enter")
    await shown.until("a number of bytes")
    await shown.press(*["backspace"] * 4, *"8G", "enter")
    await shown.until("Carry it out?  y/n")
    assert scene.controller.calls == [("plan_release", "", "ollama", 8 * GIB)]
    await shown.press("y")
    await shown.until("satisfied: 4.0 GiB came back")
    assert scene.controller.calls[1:] == [("make_room", "", "ollama", 8 * GIB)]
    await shown.press("escape", "m", "escape")
    assert len(scene.controller.calls) == 2


async def test_a_process_of_nobody_is_never_asked(shown: Stage, scene: Scene) -> None:
    await shown.press("end", "r")
    await shown.until("This process belongs to no tenant, so it is never touched.")
    await shown.press("escape", "2")
    await shown.until("this process is no tenant's")
    assert scene.controller.calls == []


async def test_a_job_is_cancelled_after_a_yes(shown: Stage, scene: Scene) -> None:
    labour = Labour()
    scene.jobs.start("autotune", labour, "GPU-1", owner=0)
    await labour.begun.wait()
    labour.report(42, "point 4 of 9")
    await shown.press("c")
    assert "y/n" not in shown.text
    await shown.press("7")
    await shown.until("point 4 of 9")
    await shown.press("c")
    await shown.until("Cancel it?  y/n")
    await shown.press("y")
    await labour.cancelled.wait()
    await shown.until("cancelled")
    await shown.press("c")
    await shown.until("Choose one that is running.")


async def test_tenants_are_sorted_as_one_likes(shown: Stage, scene: Scene) -> None:
    def order() -> list[str]:
        return [line.split()[1] for line in shown.text.splitlines() if line.startswith("█ ")][:2]

    assert order() == ["ollama", "comfyui"]
    await shown.press("s")
    assert order() == ["comfyui", "ollama"]
    await shown.press("S")
    assert order() == ["ollama", "comfyui"]


async def test_the_absent_are_hidden_until_they_are_asked_for(shown: Stage, scene: Scene) -> None:
    scene.service.publish(make_state({"ollama": GIB, "vllm": 0}, states={"ollama": "idle", "vllm": "absent"}))
    await shown.until("1 tenant is absent (a shows all)")
    assert "vllm" not in shown.text
    await shown.press("a")
    await shown.until("vllm")


async def test_engines_that_are_absent_are_only_counted(shown: Stage, scene: Scene) -> None:
    state = make_state({"ollama": GIB, "vllm": 0}, states={"ollama": "idle", "vllm": "absent"})
    gone = replace(state.engines["vllm"], reachable=False, detail="none of its processes holds VRAM")
    scene.service.publish(replace(state, engines={**state.engines, "vllm": gone}))
    await shown.press("4")
    assert "vllm" not in await shown.until("1 engine is absent", "http://127.0.0.1:1")


async def test_what_happens_is_told_as_it_comes(shown: Stage, scene: Scene) -> None:
    starving = make_state(reservations=(Reservation(CARD, "comfyui", GIB, 5_100_000_000),))
    starved = Assessment("ollama", True, CARD, GIB, "it needs 14.0 GiB")
    scene.service.publish(replace(starving, assessments={**starving.assessments, "ollama": starved}))
    await shown.until("starved: it needs 14.0 GiB", "1.0 GiB kept for comfyui")
    scene.service.emit(PlanMade(make_plan()))
    scene.service.emit(PlanFinished(make_result()))
    await shown.until("p1 finished, satisfied: 4.0 GiB came back")
    await shown.press("3")
    lines = (await shown.until("p1 planned: comfyui is asked for 4.0 GiB")).splitlines()
    assert "p1 finished" in lines[2]
    assert any("ollama is starved: it needs 14.0 GiB" in line for line in lines)


async def test_lists_that_no_signal_carries_are_got_when_they_are_looked_at(
    shown: Stage, scene: Scene, listener: Eavesdropper
) -> None:
    scene.service.publish(
        make_state(checks=(Check("fans", "failed", "a fan stands still", "it gets hot", "clean it"),))
    )
    await shown.until("driver 580.95.05, failed: a fan stands still")
    assert listener.calls == []
    await shown.press("6")
    await shown.until("fans", "remedy:")
    assert [member for _, member in listener.calls] == ["GetAll"]


async def test_when_the_service_stops_it_is_said_and_nothing_starts_it(
    shown: Stage, scene: Scene, listener: Eavesdropper
) -> None:
    await scene.service.stop()
    await shown.until("gpusupervisor has stopped; waiting until it is back", "ollama")
    await shown.press("r", "y")
    await shown.until("That did not work")
    assert listener.calls == []
    await shown.press("escape")
    await scene.start()
    await shown.until("gpusupervisor 1.2.3, automatic", "gpusupervisor has started")
    scene.service.publish(make_state({"newcomer": GIB}))
    await shown.until("newcomer")


async def test_when_the_bus_is_lost_it_is_connected_again(
    mortal_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", mortal_bus.address)
    scene = Scene(mortal_bus)
    await scene.start()
    async with stage() as shown:
        await shown.until("1.2.3")
        before = scene.service
        await asyncio.to_thread(restart, mortal_bus)
        await before.stop()
        await shown.until(
            "gpusupervisor is not running; waiting until it is back", "connection to the system bus is lost"
        )
        await scene.start()
        scene.service.publish(make_state({"newcomer": GIB}))
        await shown.until("gpusupervisor 1.2.3, automatic", "newcomer")
    await scene.service.stop()


def restart(bus: PrivateBus) -> None:
    """Another bus at the same address."""
    bus.process.kill()
    bus.process.wait()
    assert bus.process.stdout is not None
    bus.process.stdout.close()
    command = bus.process.args
    assert isinstance(command, list)
    bus.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert bus.process.stdout is not None
    assert bus.process.stdout.readline()


async def test_never_more_than_one_call_a_second(scene: Scene, listener: Eavesdropper) -> None:
    async with stage(120) as shown:
        deadline = asyncio.get_running_loop().time() + 6
        for turn in range(1_000_000):
            scene.service.publish(
                make_state({"ollama": (turn % 5) * 2 * GIB, "comfyui": GIB}, checks=(Check("x", "ok", str(turn)),))
            )
            await shown.press("right", "p", "escape")
            if asyncio.get_running_loop().time() > deadline:
                break
    assert len(listener.calls) >= 4
    assert listener.closest >= 1.0, listener.calls


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
@pytest.mark.parametrize("who", ["one", "forty", "nasty", "every script", "nobody"])
async def test_every_size_with_few_and_many_and_strange_names(
    size: tuple[int, int], who: str, scene: Scene, quick: None
) -> None:
    names = {
        "one": ["ollama"], "forty": [f"tenant-{n}" for n in range(40)], "nasty": ["evil", "x" * 200],
        "every script": list(EVERY_SCRIPT), "nobody": [],
    }[who]  # fmt: skip
    state = make_state(dict.fromkeys(names, GIB // 4))
    if who == "nasty":
        activities = {name: replace(a, reason=NASTY) for name, a in state.activities.items()}
        state = replace(state, activities=activities, status=NASTY)
    scene.service.publish(state)
    async with stage(*size) as shown:
        for key in "1234567":
            await shown.press(key)
            text = shown.text
            assert len(text.splitlines()) == size[1]
            assert is_harmless(text), text
        await shown.press("1", "end")
        if names:
            await shown.until("train.py")
        await shown.resize(size[0] + 20, size[1] - 4)
        assert len(shown.text.splitlines()) == size[1] - 4


async def test_eight_cards_have_a_line_each_and_none_says_why(scene: Scene, quick: None) -> None:
    state = make_state()
    one = state.sample.gpus[0]
    eight = [replace(one, identity=replace(one.identity, uuid=f"GPU-0000000{n}-0000")) for n in range(8)]
    eight[5] = replace(eight[5], state="lost", memory=None)
    scene.service.publish(replace(state, sample=replace(state.sample, gpus=tuple(eight))))
    async with stage() as shown:
        text = await shown.until("RTX 4090 00000007", "lost", "TENANT")
        assert len([line for line in text.splitlines() if "/24.0 GiB" in line]) == 7
        await shown.press("m")
        await shown.until("the tenant's")
        await shown.press("escape")
        scene.service.publish(replace(state, sample=replace(state.sample, gpus=())))
        await shown.until("no GPU is known")


async def test_where_there_are_several_cards_the_table_tells_who_is_on_which(scene: Scene, quick: None) -> None:
    state = make_state()
    (one,) = state.sample.gpus
    other = replace(one, identity=replace(one.identity, uuid="GPU-2"))
    spread = make_state({"vllm": GIB, "ollama": GIB, "idler": 0})
    on_both = replace(spread.census.tenants["vllm"], holdings={CARD: GIB, "GPU-2": GIB})
    census = replace(spread.census, tenants={**spread.census.tenants, "vllm": on_both})
    scene.service.publish(replace(spread, sample=replace(spread.sample, gpus=(one, other)), census=census))
    for size in ((80, 24), (200, 60)):
        async with stage(*size) as shown:
            text = await shown.until("train.py", "TENANT")
            rows = {words[1]: words[3] for line in text.splitlines() if len(words := line.split()) > 4}
            assert (rows["vllm"], rows["ollama"], rows["train.py"]) == ("2", "3f9c1a52", "3f9c1a52"), text
            assert "2 GPUs" in text


async def test_only_keys_that_mean_something_are_shown_and_heard(shown: Stage, scene: Scene) -> None:
    assert "r Release" in shown.text
    await shown.press("3")
    keys = (await shown.until("Esc Back")).splitlines()[-1]
    assert keys.split() == ["Esc", "Back", "m", "Make", "room", "?", "Help", "q", "Quit"]
    await shown.press("r")
    assert "y/n" not in shown.text
    await shown.press("escape")
    await shown.until("r Release")


async def test_who_is_chosen_stays_in_sight_whatever_place_it_gets(scene: Scene, quick: None) -> None:
    names = [f"tenant-{number:02}" for number in range(40)]
    scene.service.publish(make_state({name: (60 - n) * GIB // 4 for n, name in enumerate(names)}))
    async with stage() as shown:
        await shown.until("tenant-02")
        await shown.press("down", "down")
        scene.service.publish(make_state({name: (60 + n * (n != 2)) * GIB // 4 for n, name in enumerate(names)}))
        text = await shown.until("tenant-02  idle         15.0 GiB")
        assert "tenant-39" not in text
        await shown.press("r")
        await shown.until("Ask tenant-02 for its memory?")


async def test_a_reason_that_the_table_has_no_room_for_is_told_below_it(shown: Stage, scene: Scene) -> None:
    long = "no request is running, and no model was used for 12 min, and whatever else there is to be told of it"
    state = make_state(states={"ollama": "idle"})
    activities = {**state.activities, "ollama": replace(state.activities["ollama"], reason=long)}
    scene.service.publish(replace(state, activities=activities))
    await shown.until(f"ollama: {long}")
    await shown.press("down")
    assert f"ollama: {long}" not in shown.text


async def test_help_names_the_keys(shown: Stage) -> None:
    await shown.press("question_mark")
    await shown.until("make room", "quit")
    await shown.press("q")
    await shown.until("TENANT")


async def test_ctrl_c_quits_even_in_a_field_whose_text_is_selected(shown: Stage) -> None:
    await shown.press("m", "tab")
    await shown.until("Make room")
    await shown.press("ctrl+c")
    assert shown.top.return_code == 0


async def test_top_wants_a_terminal(ctl: Run, service: BusService, bus: PrivateBus) -> None:
    for arguments in (("top",), ("top", "--json")):
        refused = await ctl(*arguments)
        assert (refused.status, refused.output) == (2, "")
        assert "status --json" in refused.errors
    dumb = await PseudoTerminal.run(
        *COMMAND, "top", environment={"DBUS_SYSTEM_BUS_ADDRESS": bus.address, "TERM": "dumb"}
    )
    assert await dumb.end() == 2
    assert "\x1b" not in dumb.written
