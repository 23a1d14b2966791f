"""A card is recorded, and what is simulated from the recording answers as the card did."""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpusupervisor.cli.commands import record as command
from gpusupervisor.cli.commands.record import assemble
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.session import Session
from gpusupervisor.helper.hardware import recording
from gpusupervisor.simulation.nvml import CardWorld, SimulatedCard, SimulatedGpu, SimulatedProcess, installed
from gpusupervisor.simulation.recorded import card_of
from gpusupervisor.simulation.worlds import WORLDS, lay_out

RECORDER = """
import sys
from gpusupervisor.helper.hardware import recording
from gpusupervisor.simulation.nvml import CardWorld, installed
def crash(*_):
    import os, signal
    os.kill(os.getpid(), signal.SIGSEGV)
if {crash!r}:
    import pynvml
    setattr(pynvml, {crash!r}, crash)
with installed(CardWorld({card!r})):
    sys.exit(recording.main(sys.argv[1:]))
"""
COUNTED = "nvmlDeviceGetTotalEnergyConsumption"
"""Goes on by itself."""


def recorded(directory: Path) -> dict[str, Any]:
    with installed(CardWorld(directory)):
        return assemble(json.loads(json.dumps(list(recording.record()))))


def answers(of: dict[str, Any]) -> list[dict[str, Any]]:
    """Values and errors by call, without how long each took."""
    found = []
    for gpu in of["gpus"]:
        calls = {
            name: {key: call[key] for key in ("value", "error") if key in call} for name, call in gpu["calls"].items()
        }
        calls.pop(COUNTED, None)
        found.append(calls)
    return found


@pytest.mark.parametrize("name", ["", *sorted(WORLDS)])
def test_what_is_simulated_from_a_recording_answers_as_what_was_recorded(tmp_path: Path, name: str) -> None:
    source = SimulatedCard(tmp_path / "first")
    if name:
        source = lay_out(source.directory, name)
    else:
        holder = SimulatedProcess(77, 3 << 30, ("compute", "graphics"), 40)
        source.write_card([SimulatedGpu(processes=[holder]), SimulatedGpu("GPU-2", pci="00000000:02:00.0", mig=False)])
    if name == "mig-unprivileged":
        source.change(unprivileged=True)
    first = recorded(source.directory)
    copy = SimulatedCard(tmp_path / "second")
    copy.write(card_of(first))
    second = recorded(copy.directory)
    assert answers(second) == answers(first)
    for key in ("driver", "windows", "missing"):
        assert second[key] == first[key]


def test_nothing_that_tells_one_card_from_another_is_recorded_and_nothing_is_set(tmp_path: Path) -> None:
    card = SimulatedCard(tmp_path)
    card.write_card()
    world = CardWorld(tmp_path)
    with installed(world):
        text = json.dumps(list(recording.record()))
    assert SimulatedGpu().uuid not in text
    assert "nvmlDeviceGetSerial" not in text
    assert not [call for call in world.calls if "Set" in call and not call.startswith("nvmlEventSet")]


def run(monkeypatch: pytest.MonkeyPatch, card: Path, file: Path, crash: str = "", *, force: bool = False) -> int:
    monkeypatch.setattr(command, "RECORDER", ("-c", RECORDER.format(card=str(card), crash=crash)))
    session = Session(argparse.Namespace(file=str(file), force=force, json=False))
    return asyncio.run(command.record_card(session))


def test_the_command_writes_a_file_that_can_be_simulated_and_replaces_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card, file = lay_out(tmp_path / "card", "tesla-no-fans"), tmp_path / "p40.json"
    assert run(monkeypatch, card.directory, file) == 0
    assert "driver 535.261.03" in capsys.readouterr().out
    assert lay_out(tmp_path / "again", str(file)).read().gpus[0].name == "Tesla P40"
    with pytest.raises(CommandFailed, match="exists"):
        run(monkeypatch, card.directory, file)
    assert run(monkeypatch, card.directory, file, force=True) == 0


def test_a_getter_that_crashes_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    card, file = lay_out(tmp_path / "card", "vgpu"), tmp_path / "vgpu.json"
    assert run(monkeypatch, card.directory, file, "nvmlDeviceGetMigMode") == 0
    assert "nvmlDeviceGetMigMode crashed" in capsys.readouterr().out
    written = json.loads(file.read_text())
    assert written["crashed"] == ["nvmlDeviceGetMigMode"]
    assert "nvmlDeviceGetMemoryInfo_v2" in written["gpus"][0]["calls"]


def test_without_a_driver_it_says_why_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    card, file = lay_out(tmp_path / "card", "vgpu"), tmp_path / "none.json"
    card.change(driver_loaded=False)
    with pytest.raises(CommandFailed, match="Driver not loaded"):
        run(monkeypatch, card.directory, file)
    assert not file.exists()
