"""Engines and what they are set to, on the command line."""

import json
from dataclasses import replace

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.engines.setting import Setting
from tests.bus.builders import make_state
from tests.cli.conftest import Run

KEEP = Setting("OLLAMA_KEEP_ALIVE", "5m", "/etc/o.conf", "an idle model stays loaded for 5min", pending="-1")
HIGH = Setting("--highvram", "", "command line", "models stay\x1b[2J in VRAM")


@pytest.fixture
async def published(service: BusService) -> BusService:
    state = make_state()
    ollama = replace(state.engines["ollama"], settings=(KEEP, HIGH), unit="ollama.service")
    ollama = replace(ollama, settings_checked_against="0.33.1")
    comfyui = replace(state.engines["comfyui"], settings_problem="which process it is is not known")
    service.publish(replace(state, engines={"ollama": ollama, "comfyui": comfyui}))
    return service


async def test_an_engine_is_shown_with_what_its_settings_mean(ctl: Run, published: BusService) -> None:
    shown = await ctl("engine", "ollama")
    assert shown.status == 0, shown.errors
    for part in (
        "ollama  0.12.0",
        "unit      ollama.service",
        "OLLAMA_KEEP_ALIVE = 5m  /etc/o.conf",
        "after a restart: -1",
        "an idle model stays loaded for 5min",
        "--highvram  command line",
        "settings checked against ollama 0.33.1",
    ):
        assert part in shown.output
    assert "\x1b" not in shown.output
    unknown = (await ctl("engine", "comfyui")).output
    assert "No settings are known." in unknown
    assert "which process it is is not known" in unknown
    assert "Which version of comfyui its settings were checked against is not recorded." in unknown


async def test_all_engines_are_a_line_each(ctl: Run, published: BusService) -> None:
    listed = (await ctl("engines")).output.splitlines()
    assert listed[0].split() == ["ENGINE", "STATE", "VERSION", "ENDPOINT"]
    assert [line.split()[0] for line in listed[1:]] == ["ollama", "comfyui"]


async def test_both_are_there_as_json(ctl: Run, published: BusService) -> None:
    one = json.loads((await ctl("engine", "ollama", "--json")).output)
    assert one["settings"][0]["pending"] == "-1"
    assert one["settings_checked_against"] == "0.33.1"
    every = json.loads((await ctl("engines", "--json")).output)
    assert [each["id"] for each in every] == ["comfyui", "ollama"]


async def test_an_engine_that_is_not_there_is_an_error(ctl: Run, published: BusService) -> None:
    shown = await ctl("engine", "nobody")
    assert (shown.status, shown.output) == (1, "")
    assert "No engine is called" in shown.errors
