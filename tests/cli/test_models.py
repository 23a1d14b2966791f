"""The commands about models, as processes."""

import json

from gpusupervisor.bus.service import BusService
from gpusupervisor.cli.screens.models import loaded, models_screen
from tests.bus.builders import make_state
from tests.bus.fakes import FakeController
from tests.bus.test_models import with_models
from tests.cli.conftest import Run
from tests.cli.screens import NASTY, drawn, is_harmless


async def test_models_are_listed_with_what_fits(service: BusService, ctl: Run) -> None:
    service.publish(with_models(make_state()))
    shown = await ctl("models")
    assert shown.status == 0, shown.errors
    rows = [" ".join(line.split()) for line in shown.output.splitlines()]
    assert rows[1] == "ollama llama3:8b loaded, spilled 6.0 GiB now there is room"
    assert rows[2] == "ollama b unknown ? unknown how much VRAM it needs is not known; loads from RAM, about 3s"
    assert "ollama: part is unknown" in rows
    assert any(row.endswith(": 1 model fits but") for row in rows)
    nobody = await ctl("models", "nobody")
    assert nobody.status == 1
    assert "ollama" in nobody.errors


async def test_they_are_there_as_data(service: BusService, ctl: Run) -> None:
    service.publish(with_models(make_state()))
    told = json.loads((await ctl("models", "ollama", "--json")).output)
    [engine] = told["engines"]
    assert [(model["name"], model["needs"]) for model in engine["models"]] == [("llama3:8b", 6 << 30), ("b", None)]
    assert engine["limits"] == ["unload: it has no such call"]
    assert told["gpus"][0]["ceiling"] == 20 << 30


async def test_an_unload_tells_what_came_back(service: BusService, ctl: Run, controller: FakeController) -> None:
    service.publish(with_models(make_state()))
    done = await ctl("unload", "ollama", "b")
    assert (done.status, done.output.strip()) == (0, "4.0 GiB came back (300ms)")
    assert controller.calls == [("unload_model", "ollama", "b")]
    assert json.loads((await ctl("unload", "ollama", "b", "--json")).output)["freed"] == 4 << 30


def test_nothing_that_others_wrote_steers_the_terminal() -> None:
    model = {
        "name": NASTY, "state": NASTY, "spilled": True, "needs": None, "fit": NASTY, "fit_detail": NASTY,
        "load_estimate": NASTY,
    }  # fmt: skip
    engine = {"id": NASTY, "models": [model], "reachable": True, "models_problem": NASTY}
    card = {"name": NASTY, "fit_summary": NASTY}
    assert is_harmless(drawn(models_screen({"engines": [engine], "gpus": [card]})))


def test_a_load_of_what_is_loaded_says_so() -> None:
    result = {"taken": 0, "duration": 3000, "speed": 0, "spilled": False}
    assert str(loaded(result)) == "loaded: it took no VRAM beyond what its engine held already"
    spilled = loaded({**result, "spilled": True})
    assert str(spilled).endswith("held already; part of it is in system memory all the same")


def test_a_load_that_spilled_says_so() -> None:
    result = {"taken": 4 << 30, "duration": 2_000_000, "speed": 2 << 30, "spilled": True}
    assert str(loaded(result)) == (
        "loaded: 4.0 GiB of VRAM in 2s, 2.0 GiB/s; part of it is in system memory all the same"
    )


def test_engines_that_do_not_run_are_counted_and_not_complained_of() -> None:
    def engine(name: str, *, reachable: bool) -> dict[str, object]:
        return {"id": name, "reachable": reachable, "models": [], "models_problem": f"{name} is mute"}

    several = [engine("a", reachable=True), engine("b", reachable=False), engine("c", reachable=False)]
    lines = drawn(models_screen({"engines": several, "gpus": []})).splitlines()
    assert lines == [
        "No models are known.", "", "a: a is mute", "",
        "2 more engines are absent or silent (gpusupervisorctl engines lists all)",
    ]  # fmt: skip
    alone = drawn(models_screen({"engines": several[1:2], "gpus": []}))
    assert "b: b is mute" in alone, "who asks for one is told"
