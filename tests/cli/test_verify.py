"""The verification: what it would do, that it asks, what it makes of the answers, and that it puts things back."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.cli.screens.verify import screen
from gpusupervisor.errors import Busy
from gpusupervisor.jobs import Job, Jobs, Work
from gpusupervisor.models.fit import Fit
from gpusupervisor.models.model import Model
from gpusupervisor.state import State
from tests.bus.builders import CARD, FakeClock, make_controls, make_state
from tests.bus.conftest import PrivateBus
from tests.bus.fakes import VERDICT, FakeController, FakeHardware, FixedAuthority
from tests.bus.test_models import MODELS, with_models
from tests.cli.conftest import COMMAND, Run
from tests.cli.pseudo_terminal import INTERRUPT, PseudoTerminal
from tests.cli.screens import NASTY, drawn, is_harmless

GIB = 1 << 30


def idle_engine(held: int = 5 * GIB) -> State:
    """ComfyUI is idle, holds memory, and could be told to load what it has loaded; a release brings 4 GiB."""
    state = with_models(make_state({"ollama": 12 * GIB, "comfyui": held}))
    engine = replace(state.engines["ollama"], id="comfyui", models=(replace(MODELS[0], spilled=False),))
    return replace(state, engines={"comfyui": replace(engine, fits=engine.fits[:1])})


def steps(told: Any) -> list[tuple[str, str, str]]:
    return [(each["step"], each["target"], each["verdict"]) for each in told["steps"]]


@pytest.fixture
async def shown(bus: PrivateBus, controller: FakeController, authority: FixedAuthority) -> AsyncIterator[BusService]:
    """A service that shows its jobs."""
    started: list[BusService] = []

    def show(job: Job) -> None:
        started[-1].show_job(job)

    jobs = Jobs(FakeClock(), show)
    started.append(
        await BusService.start(
            bus.address, controller, FakeHardware(), jobs, "1.2.3", FakeClock(), lambda _bus: authority
        )
    )
    started[0].publish(idle_engine())
    yield started[0]
    await jobs.close()
    await started[0].stop()


async def test_a_dry_run_shows_what_would_be_tried_and_does_nothing(
    shown: BusService, ctl: Run, controller: FakeController
) -> None:
    told = json.loads((await ctl("verify", "--dry-run", "--json")).output)
    assert told["outcome"] is None
    assert steps(told) == [
        ("release", "comfyui", "planned"), ("load", "comfyui", "planned"), ("release", "ollama", "skipped"),
        ("profile", CARD, "skipped"), ("fans", CARD, "skipped"),
    ]  # fmt: skip
    assert "busy" in told["steps"][2]["detail"]
    assert controller.calls == []


async def test_who_holds_only_what_it_keeps_is_passed_over_and_that_is_why(service: BusService, ctl: Run) -> None:
    service.publish(idle_engine(GIB // 2))
    told = json.loads((await ctl("verify", "--dry-run", "--json", "--tenant", "comfyui")).output)
    [step] = told["steps"]
    assert (step["verdict"], step["target"]) == ("skipped", "comfyui")
    assert step["detail"].endswith("it holds no more than it keeps after a release")


async def test_it_does_nothing_where_nobody_can_be_asked(
    shown: BusService, ctl: Run, controller: FakeController
) -> None:
    refused = await ctl("verify")
    assert (refused.status, controller.calls) == (2, [])
    assert "--yes" in refused.errors


@pytest.mark.parametrize(("held", "outcome", "code"), [(4 * GIB, "passed", 0), (5 * GIB, "partial", 5)])
async def test_each_step_is_told_with_what_was_measured(
    shown: BusService, ctl: Run, controller: FakeController, held: int, outcome: str, code: int
) -> None:
    shown.publish(idle_engine(held))
    done = await ctl("verify", "--yes", "--json")
    told = json.loads(done.output)
    assert [call[0] for call in controller.calls] == ["release", "load_work"]
    release, load = told["steps"][:2]
    assert (release["measured"], load["model"], load["measured"]) == (4 * GIB, "llama3:8b", 4 * GIB)
    assert load["verdict"] == "ok"
    assert (told["outcome"], done.status) == (outcome, code)


async def test_a_release_that_is_refused_has_failed_and_nothing_is_loaded_for_it(
    shown: BusService, ctl: Run, controller: FakeController
) -> None:
    controller.failure = Busy("comfyui has begun to work")
    done = await ctl("verify", "--yes", "--json")
    told = json.loads(done.output)
    assert steps(told)[:2] == [("release", "comfyui", "failed"), ("load", "comfyui", "skipped")]
    assert told["steps"][0]["detail"] == "comfyui has begun to work"
    assert (told["outcome"], done.status) == ("failed", 1)


def two_engines(held: int, *, loaded: bool) -> State:
    """ComfyUI is idle and could load "big" once Ollama has given way, which holds so much and has loaded llama3:8b."""
    state = with_models(make_state({"ollama": held, "comfyui": 0}))
    status = state.engines["ollama"]
    able = ("list", "load", "unload")
    giver = replace(MODELS[0], spilled=False, state="loaded" if loaded else "not-loaded")
    engines = {
        "ollama": replace(status, models=(giver,), fits=status.fits[:1], capabilities=able),
        "comfyui": replace(
            status, id="comfyui", models=(Model("huge", needs=20 * GIB), Model("big", needs=16 * GIB)),
            fits=(Fit("after-release", ""), Fit("after-release", "")), capabilities=able,
        ),
    }  # fmt: skip
    return replace(state, engines=engines)


async def test_what_gave_way_in_a_hand_off_is_loaded_again(
    shown: BusService, ctl: Run, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown.publish(two_engines(12 * GIB, loaded=True))
    load = controller.load_work

    def load_work(engine: str, model: str, needs: int) -> Work:
        shown.publish(two_engines(GIB if engine == "comfyui" else 12 * GIB, loaded=engine == "ollama"))
        return load(engine, model, needs)

    monkeypatch.setattr(controller, "load_work", load_work)
    told = json.loads((await ctl("verify", "--yes", "--hand-off", "--json")).output)
    first = told["steps"][0]
    assert (first["step"], first["target"], first["model"], first["expected"]) == (
        "hand-off", "comfyui", "big", 16 * GIB,
    ), "the smallest that will do"  # fmt: skip
    assert (first["verdict"], first["detail"]) == ("ok", "big: ollama gave up 11.0 GiB")
    assert [call[:3] for call in controller.calls][:3] == [
        ("load_work", "comfyui", "big"), ("unload_model", "comfyui", "big"), ("load_work", "ollama", "llama3:8b"),
    ]  # fmt: skip


async def test_a_hand_off_in_which_nobody_gives_way_has_failed_and_is_undone(
    shown: BusService, ctl: Run, controller: FakeController
) -> None:
    shown.publish(two_engines(12 * GIB, loaded=True))
    done = await ctl("verify", "--yes", "--hand-off", "--json", "--tenant", "comfyui")
    first = json.loads(done.output)["steps"][0]
    assert (first["verdict"], first["detail"]) == ("failed", "big: nobody gave way")
    assert [call[0] for call in controller.calls] == ["load_work", "unload_model"]
    assert done.status == 1


async def test_a_hand_off_is_tried_only_where_it_is_wanted_and_can_be(
    shown: BusService, ctl: Run, controller: FakeController
) -> None:
    for arguments, expected in (((), []), (("--hand-off",), [("hand-off", "", "skipped")])):
        told = json.loads((await ctl("verify", "--dry-run", "--json", *arguments)).output)
        assert [step for step in steps(told) if step[0] == "hand-off"] == expected
    assert controller.calls == []


async def test_only_one_tenant_is_tried_where_one_is_named(
    shown: BusService, ctl: Run, controller: FakeController
) -> None:
    told = json.loads((await ctl("verify", "--yes", "--json", "--tenant", "ollama")).output)
    assert steps(told) == [("release", "ollama", "skipped")]
    assert controller.calls == []
    nobody = await ctl("verify", "--yes", "--tenant", "nobody")
    assert nobody.status == 2
    assert "comfyui" in nobody.errors


async def test_who_may_not_is_told_so_at_once(
    shown: BusService, ctl: Run, authority: FixedAuthority, controller: FakeController
) -> None:
    authority.allow = False
    refused = await ctl("verify", "--yes", "--json")
    assert refused.status == 4
    told = json.loads(refused.output)
    assert told["outcome"] == "broken-off"
    assert [verdict for *_, verdict in steps(told)] == ["skipped"] * 5
    assert controller.calls == []


async def test_profile_and_fans_are_read_back(service: BusService, ctl: Run, hardware: FakeHardware) -> None:
    service.publish(replace(make_state(), controls=make_controls()))
    done = await ctl("verify", "--yes", "--json")
    told = json.loads(done.output)
    assert [call[0] for call in hardware.calls] == ["try_profile", "revert", "check_drift"]
    profile, fans = told["steps"][-2:]
    assert json.loads(str(hardware.calls[0][2])) == {"power-limit": "300W"}
    assert (profile["target"], profile["verdict"]) == (CARD, "failed")
    assert f"power-limit is {VERDICT.verdict}" in profile["detail"]
    assert (fans["verdict"], fans["detail"]) == ("ok", "fan 0 48 %, fan 1 35 %")
    assert done.status == 1


async def test_fans_that_are_not_in_our_hands_have_failed(service: BusService, ctl: Run) -> None:
    controls = make_controls(fan_control="fail-safe", fan_control_reason="it is hot", profile="")
    service.publish(replace(make_state(), controls=controls))
    told = json.loads((await ctl("verify", "--yes", "--json")).output)
    profile, fans = told["steps"][-2:]
    assert (profile["verdict"], profile["detail"]) == ("skipped", "no profile is set")
    assert (fans["verdict"], fans["detail"]) == ("failed", "fail-safe: it is hot")


async def terminal(bus: PrivateBus, *arguments: str) -> PseudoTerminal:
    environment = {"DBUS_SYSTEM_BUS_ADDRESS": bus.address}
    return await PseudoTerminal.run(*COMMAND, *arguments, environment=environment, columns=200)


@pytest.mark.parametrize(("answer", "status"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
async def test_a_person_is_asked_first(
    shown: BusService, bus: PrivateBus, controller: FakeController, answer: bytes, status: int
) -> None:
    shown.publish(idle_engine(4 * GIB))
    person = await terminal(bus, "verify")
    await person.wait_for("Go on? [y/N]")
    assert "release comfyui: ask it for its memory" in person.written
    assert controller.calls == []
    person.press(answer)
    assert await person.end() == status, person.written
    assert bool(controller.calls) == (status == 0)
    assert ("Everything that was tried works." in person.written) == (status == 0)


async def test_ctrl_c_at_the_question_does_nothing(
    shown: BusService, bus: PrivateBus, controller: FakeController
) -> None:
    person = await terminal(bus, "verify")
    await person.wait_for("Go on? [y/N]")
    person.press(INTERRUPT)
    assert await person.end() == 130
    assert controller.calls == []


async def test_ctrl_c_in_a_release_puts_back_what_was_loaded(
    shown: BusService, bus: PrivateBus, controller: FakeController
) -> None:
    controller.gate.clear()
    person = await terminal(bus, "verify", "--yes")
    async with asyncio.timeout(15):
        while not controller.calls:
            await asyncio.sleep(0.01)
    person.press(INTERRUPT)
    await person.wait_for("llama3:8b of comfyui is being loaded again: job 1")
    controller.gate.set()
    assert await person.end() == 130
    assert [call[:3] for call in controller.calls] == [("release", "comfyui"), ("load_work", "comfyui", "llama3:8b")]


def test_nothing_that_others_wrote_steers_the_terminal() -> None:
    step = {
        "step": "release", "target": NASTY, "model": NASTY, "expected": 1, "measured": None, "duration": None,
        "verdict": "failed", "detail": NASTY,
    }  # fmt: skip
    assert is_harmless(drawn(screen({"outcome": "failed", "steps": [step]})))
