"""The script for real hardware, over the simulated card: it finds what is there, and leaves everything as it was."""

import ctypes
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpusupervisor.simulation.nvml import CardWorld, FanState, SimulatedCard, SimulatedGpu
from gpusupervisor.simulation.recorded import card_of
from tests.hardware import over_simulation, prove

GPU = SimulatedGpu()
GROUPS = {"power-limit", "offsets", "locked-clocks", "persistence", "fans"}
PATIENCE = 20
HERE = {"what initialising needs", "reading as nobody"}
"""Not proved where strace is not installed, or where only root may read the card directory of a test."""


@dataclass
class Proof:
    """What a run said."""

    code: int
    text: str
    findings: list[dict[str, str]]

    def items(self, verdict: str) -> set[str]:
        """Names of the findings with it, without their sections."""
        return {each["item"].rpartition(": ")[2] for each in self.findings if each["verdict"] == verdict}

    def seen(self, item: str) -> str:
        """What the last finding of that name says."""
        return [each["seen"] for each in self.findings if each["item"].rpartition(": ")[2] == item][-1]


@pytest.fixture
def card(tmp_path: Path) -> SimulatedCard:
    card = SimulatedCard(tmp_path / "card")
    card.write_card([GPU])
    return card


def command(card: SimulatedCard, *arguments: str) -> list[str]:
    return [sys.executable, over_simulation.__file__, str(card.directory), *arguments]


def report_of(card: SimulatedCard) -> Path:
    return card.directory.parent / "report.json"


def run(card: SimulatedCard, *arguments: str, answers: str = "") -> Proof:
    """The script from its beginning to its end."""
    report = report_of(card)
    done = subprocess.run(
        command(card, "--report", str(report), *arguments),
        input=answers,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=90,
    )
    return Proof(done.returncode, done.stdout, json.loads(report.read_text())["findings"])


def write(card: SimulatedCard) -> Proof:
    """With every group allowed."""
    return run(card, "--write", answers="y\n" * 5)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_looking_proves_what_can_be_seen_and_changes_nothing(card: SimulatedCard) -> None:
    before = card.settings(GPU.uuid)
    proof = run(card)
    assert (proof.code, proof.items("contradicted")) == (0, set())
    assert {"memory", "a process that took 256 MiB", "a process that ended", "looking"} <= proof.items("proved")
    assert proof.items("not proved") - HERE == {"sysfs", "everything that is set"}
    assert proof.seen("cost of GetMemoryInfo").split()[1] == "µs,"
    assert card.settings(GPU.uuid) == before


def test_two_holders_are_told_apart_and_what_they_do_shows(card: SimulatedCard) -> None:
    proof = run(card)
    proved = proof.items("proved")
    assert {"two holders at once", "memory in use", "utilization by process", "energy"} <= proved
    assert {"memory given back", "memory of a killed process", "a killed process"} <= proved
    assert proof.seen("a context keeps") == "300 MiB"
    report = json.loads(report_of(card).read_text())
    assert report["recording"]["gpus"][0]["calls"]["nvmlDeviceGetName"]["value"] == GPU.name
    assert card_of(report["recording"]).gpus[0].total == GPU.total


def test_a_report_that_cannot_be_written_is_told_before_anything_is_done(card: SimulatedCard) -> None:
    done = subprocess.run(
        command(card, "--report", "/nonexistent/report.json"), capture_output=True, text=True, timeout=90
    )
    assert done.returncode == prove.WRONG_USE
    assert "/nonexistent/report.json: No such file or directory" in done.stderr
    assert done.stdout == ""


def test_nvml_is_tried_where_no_memory_becomes_executable(card: SimulatedCard) -> None:
    assert run(card).seen("NVML under it") in ("1 GPUs", "this kernel cannot do it: Invalid argument (Linux 6.3 can)")


def test_writing_proves_every_group_and_sets_everything_back(card: SimulatedCard) -> None:
    before = card.settings(GPU.uuid)
    proof = write(card)
    assert (proof.code, proof.items("contradicted")) == (0, set())
    assert proof.text.count("May I ") == len(GROUPS)
    wanted = {"power limit read back", "a limit of 1 mW", "offset graphics read back", "locked graphics clock",
              "persistence read back", "fan 1 target read back", "restore_fans", "settings"}  # fmt: skip
    assert wanted <= proof.items("proved")
    assert proof.seen("fans after SIGKILL").startswith("manual, manual")
    after = card.settings(GPU.uuid)
    assert (after.power_limit or GPU.board.power_default) == GPU.board.power_default
    assert not any(after.offsets.values())
    assert after.locked_clocks == before.locked_clocks == {}
    assert [fan.manual for fan in after.fans] == [False, False]


def test_what_the_user_had_set_is_set_again(card: SimulatedCard) -> None:
    with CardWorld(card.directory).setting(GPU) as settings:
        settings.power_limit = 300_000
        settings.offsets = {"graphics/0": 75}
        settings.persistence = True
        settings.fans[1] = FanState(manual=True, target=70, began_from=70.0)
    proof = write(card)
    assert proof.code == 0
    assert "settings" in proof.items("proved")
    after = card.settings(GPU.uuid)
    assert (after.power_limit, after.offsets["graphics/0"], after.persistence) == (300_000, 75, True)
    assert [(fan.manual, fan.target) for fan in after.fans] == [(False, 35), (True, 70)]


def test_nothing_is_tried_without_a_yes(card: SimulatedCard) -> None:
    before = card.settings(GPU.uuid)
    proof = run(card, "--write", answers="n\nno\n")
    assert proof.code == 0
    assert proof.items("not proved") - HERE == {"sysfs", *GROUPS}
    assert card.settings(GPU.uuid).fans == before.fans
    assert "did not want" in proof.seen("fans")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_however_it_ends_everything_is_set_back(card: SimulatedCard, number: signal.Signals) -> None:
    with subprocess.Popen(
        command(card, "--report", str(report_of(card)), "--write"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as script:
        try:
            rest = interrupt(script, card, number)
        finally:
            card.change(hanging=[])
            script.kill()
    assert script.returncode == (-number if number is signal.SIGKILL else 128 + number)
    assert card.settings(GPU.uuid).power_limit == GPU.board.power_default
    assert (b"everything that was touched is as it was before" in rest) == (number is signal.SIGKILL)


def interrupt(script: "subprocess.Popen[bytes]", card: SimulatedCard, number: signal.Signals) -> bytes:
    """Send a signal while the power limit is changed; what is said from then on, by the watchdog too."""
    assert script.stdin is not None
    assert script.stdout is not None
    said = b""
    while not said.endswith(b"[y/N] "):
        said += script.stdout.read(1)
    card.change(hanging=["nvmlDeviceGetEnforcedPowerLimit"])
    script.stdin.write(b"y\n")
    script.stdin.flush()
    eventually(lambda: card.settings(GPU.uuid).power_limit == GPU.board.power_default - 10_000)
    script.send_signal(number)
    if number is signal.SIGKILL:
        script.wait()
    card.change(hanging=[])
    return script.communicate(timeout=PATIENCE)[0]


def test_what_is_not_as_expected_is_a_contradiction(card: SimulatedCard) -> None:
    card.change_board(GPU.uuid, sensor_reads=255)
    proof = run(card)
    assert (proof.code, proof.items("contradicted")) == (1, {"temperature now"})
    assert "contradicted  Settings of" in proof.text


def test_what_cannot_be_set_back_is_one_too(card: SimulatedCard) -> None:
    card.change(errors={"nvmlDeviceResetGpuLockedClocks": 999})
    proof = write(card)
    assert proof.code == 1
    assert "locked-clocks of" in proof.seen("settings")


def test_who_may_not_set_anything_proves_nothing_of_it(card: SimulatedCard) -> None:
    setters = ("SetPowerManagementLimit", "SetClockOffsets", "SetGpuLockedClocks", "SetPersistenceMode",
               "SetFanSpeed_v2", "SetDefaultFanSpeed_v2")  # fmt: skip
    card.change(errors={f"nvmlDevice{setter}": 4 for setter in setters})
    proof = write(card)
    assert (proof.code, proof.items("contradicted")) == (0, set())
    assert proof.items("not proved") - HERE == {"sysfs", *GROUPS}
    assert "run this as root" in proof.seen("offsets")


def test_a_laptop_is_not_asked_for_what_it_cannot(card: SimulatedCard) -> None:
    card.change_board(GPU.uuid, fan_count=0, power_settable=False, offset_ranges={}, lockable=[])
    proof = write(card)
    assert (proof.code, proof.items("contradicted")) == (0, set())
    assert {"fans", "power-limit", "offsets", "locked-clocks"} <= proof.items("not proved")
    assert proof.seen("persistence read back") == "False"


def test_a_card_whose_processes_cannot_be_told_apart_is_not_blamed(card: SimulatedCard) -> None:
    card.change_gpu(GPU.uuid, mig=True)
    proof = run(card)
    assert (proof.code, proof.items("contradicted")) == (0, set())
    assert "MIG" in proof.seen("process list")
    assert "a process that took 256 MiB" not in proof.text


def test_a_card_that_is_lost_is_told_as_such(card: SimulatedCard) -> None:
    card.change(errors={"nvmlDeviceGetMemoryInfo_v2": 15})
    proof = run(card)
    assert (proof.code, proof.items("proved")) == (prove.NOTHING_PROVED, set())
    assert "GPU is lost" in proof.text


@pytest.mark.parametrize("state", [{"library_present": False}, {"driver_loaded": False}, {"kernel_driver": "1.2"}])
def test_without_a_driver_nothing_is_proved(card: SimulatedCard, state: dict[str, object]) -> None:
    card.change(**state)
    proof = run(card, "--write")
    assert (proof.code, proof.items("proved"), proof.items("contradicted")) == (prove.NOTHING_PROVED, set(), set())
    assert "0 proved" in proof.text


def test_the_script_itself_runs_where_there_is_no_card(tmp_path: Path) -> None:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        pass
    else:
        pytest.skip("there is a driver: run tests/hardware/prove.py by hand")
    done = subprocess.run(
        [sys.executable, prove.__file__, "--report", str(tmp_path / "report.json")],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == prove.NOTHING_PROVED
    assert "no driver" in done.stdout
    assert json.loads((tmp_path / "report.json").read_text())["driver"] == ""
