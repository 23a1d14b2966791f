"""Fans are given back by a process of its own, whatever became of the one that took them."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpusupervisor.helper.fans.marker import Marker, find_marks
from gpusupervisor.simulation.nvml import Board, SimulatedCard, SimulatedGpu

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
TAKER = """
import asyncio, sys
from pathlib import Path
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.helper.fans.controller import FanController
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import FanSetting
from gpusupervisor.simulation.nvml import CardWorld, installed

async def main():
    controller = FanController(sys.argv[2], HardwareSession(), NvmlThread(), Path(sys.argv[3]))
    await controller.control({0: FanSetting("fixed", percent=40), 1: FanSetting("fixed", percent=55)})
    report = await controller.tick(1)
    print(report.state, flush=True)
    await asyncio.sleep(60)

with installed(CardWorld(sys.argv[1])):
    asyncio.run(main())
"""
RESTORER = """
import sys
from gpusupervisor.helper.restore_fans import main
from gpusupervisor.simulation.nvml import CardWorld, installed
with installed(CardWorld(sys.argv[1])):
    sys.exit(main([sys.argv[2]]))
"""


@pytest.fixture
def card(tmp_path: Path) -> SimulatedCard:
    card = SimulatedCard(tmp_path / "card")
    card.write_card([SimulatedGpu(A), SimulatedGpu(B, pci="00000000:02:00.0")])
    return card


@pytest.fixture
def runtime(tmp_path: Path) -> Path:
    directory = tmp_path / "run"
    directory.mkdir()
    return directory


def take(card: SimulatedCard, runtime: Path, uuid: str = A) -> None:
    """A process takes the fans over and is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", TAKER, str(card.directory), uuid, str(runtime)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "controlling\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def restore(card: SimulatedCard, runtime: Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", RESTORER, str(card.directory), str(runtime)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr


def manual(card: SimulatedCard, uuid: str = A) -> list[bool]:
    return [fan.manual for fan in card.settings(uuid).fans]


def test_fans_of_a_killed_process_are_given_back(card: SimulatedCard, runtime: Path) -> None:
    take(card, runtime)
    assert manual(card) == [True, True]
    assert [fan.target for fan in card.settings(A).fans] == [40, 55]
    code, said = restore(card, runtime)
    assert code == 0
    assert said == f"Fan 0 of GPU {A}: automatic again\nFan 1 of GPU {A}: automatic again\n"
    assert manual(card) == [False, False]
    assert find_marks(runtime) == ()
    assert restore(card, runtime) == (0, "")


def test_only_marked_fans_are_touched(card: SimulatedCard, runtime: Path) -> None:
    take(card, runtime)
    take(card, runtime, B)
    (runtime / f"fans-{B}.json").unlink()
    restore(card, runtime)
    assert (manual(card, A), manual(card, B)) == ([False, False], [True, True])


def test_a_mark_that_cannot_be_read_returns_every_fan(card: SimulatedCard, runtime: Path) -> None:
    take(card, runtime)
    take(card, runtime, B)
    for mark in find_marks(runtime):
        mark.path.unlink()
    (runtime / "fans-torn.json").write_text("{")
    assert restore(card, runtime)[0] == 0
    assert (manual(card, A), manual(card, B)) == ([False, False], [False, False])
    assert find_marks(runtime) == ()


def test_a_gpu_without_fans_keeps_no_other_from_getting_its_own_back(card: SimulatedCard, runtime: Path) -> None:
    card.write_card([SimulatedGpu(A, board=Board(fan_count=0)), SimulatedGpu(B, pci="00000000:02:00.0")])
    take(card, runtime, B)
    for mark in runtime.iterdir():
        mark.write_text("{")
    code, told = restore(card, runtime)
    assert (code, manual(card, B)) == (0, [False, False]), told
    assert "no fans that can be set" in told
    assert find_marks(runtime) == ()


def test_a_fan_that_cannot_be_automatic_is_left_at_full_and_stays_marked(card: SimulatedCard, runtime: Path) -> None:
    take(card, runtime)
    card.change(errors={"nvmlDeviceSetDefaultFanSpeed_v2": 999})
    code, said = restore(card, runtime)
    assert code == 1
    assert "at full" in said
    assert [fan.target for fan in card.settings(A).fans] == [100, 100]
    card.change(errors={})
    assert restore(card, runtime)[0] == 0
    assert manual(card) == [False, False]


def test_without_a_driver_there_is_nothing_in_our_hands(card: SimulatedCard, runtime: Path) -> None:
    take(card, runtime)
    card.change(driver_loaded=False)
    code, said = restore(card, runtime)
    assert code == 0
    assert said.startswith("No fans to give back")
    assert find_marks(runtime) == ()


def test_a_gpu_that_was_given_away_is_not_waited_for(card: SimulatedCard, runtime: Path) -> None:
    Marker(runtime, "GPU-gone").take(frozenset({0}))
    code, said = restore(card, runtime)
    assert code == 0
    assert "not there any more" in said


@pytest.mark.parametrize("trouble", [{"kernel_driver": "590.44.01"}, {"errors": {"nvmlDeviceGetHandleByUUID": 999}}])
def test_what_cannot_be_done_now_stays_marked(card: SimulatedCard, runtime: Path, trouble: dict[str, object]) -> None:
    take(card, runtime)
    card.change(**trouble)
    code, said = restore(card, runtime)
    assert code == 1
    assert "could not be given back" in said
    assert len(find_marks(runtime)) == 1


def test_a_mark_of_an_earlier_boot_is_removed_and_means_nothing(card: SimulatedCard, runtime: Path) -> None:
    (runtime / "fans-x.json").write_text(json.dumps({"gpu": A, "boot_id": "of-yesterday", "fans": [0]}))
    assert restore(card, runtime) == (0, "")
    assert find_marks(runtime) == ()


def test_a_card_of_a_new_driver_generation_is_automatic_anyway(card: SimulatedCard, runtime: Path) -> None:
    take(card, runtime)
    card.reload_driver()
    assert manual(card) == [False, False]
    assert restore(card, runtime)[0] == 0
    assert find_marks(runtime) == ()


def test_as_a_program_of_its_own_it_has_nothing_to_do_without_marks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpusupervisor.helper.restore_fans"],
        env={"RUNTIME_DIRECTORY": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_it_does_without_a_library(tmp_path: Path) -> None:
    Marker(tmp_path, A).take(frozenset({0}))
    script = """
import pynvml, sys
from gpusupervisor.helper.restore_fans import main
def absent(name): raise OSError(name)
pynvml.CDLL = absent
sys.exit(main([sys.argv[1]]))
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], stderr=subprocess.PIPE, text=True, timeout=30)
    assert done.returncode == 0
    assert find_marks(tmp_path) == ()


def test_it_imports_little() -> None:
    script = "import sys, gpusupervisor.helper.restore_fans\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"asyncio", "pynvml", "dbus_fast", "psutil", "gpusupervisor.helper.fans.controller"}


def test_a_board_is_as_it_was_told(card: SimulatedCard) -> None:
    card.change_gpu(A, board=Board(fan_count=3))
    assert len(card.settings(A).fans) == 3
