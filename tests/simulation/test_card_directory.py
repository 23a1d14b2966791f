"""A card directory: one process plays the card, others hold memory on it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from gpusupervisor.simulation.nvml import (
    GIB,
    Allocation,
    CardWorld,
    SimulatedCard,
    SimulatedGpu,
    SimulatedProcess,
    installed,
)

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
HOLDER = """
import sys
from gpusupervisor.simulation.nvml.allocation import Allocation
Allocation(sys.argv[1]).hold(sys.argv[2], int(sys.argv[3]), kinds=("compute", "graphics"), sm=30)
print("holding", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def card(tmp_path: Path) -> SimulatedCard:
    card = SimulatedCard(tmp_path / "card")
    card.write_card([SimulatedGpu(A), SimulatedGpu(B, pci="00000000:02:00.0")])
    return card


@pytest.fixture
def world(card: SimulatedCard) -> Iterator[CardWorld]:
    with installed(CardWorld(card.directory)) as world:
        pynvml.nvmlInit()
        yield world


@pytest.fixture
def holder(card: SimulatedCard) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(card.directory), A, str(6 * GIB)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process
        process.kill()


def listed(uuid: str = A) -> list[tuple[int, int | None]]:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]


def used(uuid: str = A) -> int:
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_what_this_process_holds_is_seen_at_once(world: CardWorld, card: SimulatedCard) -> None:
    mine = Allocation(card.directory)
    for size in (GIB, 3 * GIB, 2 * GIB):
        mine.hold(A, size)
        mine.hold(B, size // 2)
        assert used(A) == size
        assert used(B) == size // 2
        assert listed() == [(os.getpid(), size)]
    mine.release(A)
    assert (used(A), used(B)) == (0, GIB)
    mine.release()
    assert used(B) == 0


def test_a_size_can_be_unknown(world: CardWorld, card: SimulatedCard) -> None:
    Allocation(card.directory).hold(A, None)
    assert listed() == [(os.getpid(), None)]


def test_memory_of_another_process_is_gone_when_it_dies(world: CardWorld, holder: subprocess.Popen[str]) -> None:
    assert listed() == [(holder.pid, 6 * GIB)]
    handle = pynvml.nvmlDeviceGetHandleByUUID(A)
    assert pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)[0].pid == holder.pid
    assert pynvml.nvmlDeviceGetProcessUtilization(handle, 0)[0].smUtil == 30
    holder.kill()
    holder.wait()
    assert used() == 0
    assert listed() == []


def test_a_zombie_holds_nothing_unless_told_so(
    world: CardWorld, card: SimulatedCard, holder: subprocess.Popen[str]
) -> None:
    assert used() == 6 * GIB
    holder.kill()
    until(lambda: used() == 0)
    card.change(list_zombies=True)
    assert listed() == [(holder.pid, 6 * GIB)]
    holder.wait()
    assert listed() == []


def test_a_recycled_pid_does_not_inherit(world: CardWorld, card: SimulatedCard) -> None:
    mine = Allocation(card.directory)
    mine.hold(A, GIB)
    assert used() == GIB
    mine._start_time -= 1
    mine.hold(A, GIB)
    assert used() == 0


def test_faults_are_played_while_the_card_is_in_use(world: CardWorld, card: SimulatedCard) -> None:
    assert used() == 0
    card.change(errors={"nvmlDeviceGetMemoryInfo_v2": pynvml.NVML_ERROR_UNKNOWN})
    with pytest.raises(pynvml.NVMLError_Unknown):
        used()
    card.change(errors={})
    card.change_gpu(A, lost=True)
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        used()
    assert used(B) == 0
    card.change_gpu(A, lost=False, other_used=GIB, processes=[SimulatedProcess(4242, GIB)])
    assert used() == 2 * GIB
    assert listed() == [(4242, GIB)]
    card.change(generation=2)
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        used()
    card.change(kernel_driver="590.44.01")
    with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
        pynvml.nvmlInit()


def test_two_changes_within_one_timestamp_are_both_seen(world: CardWorld, card: SimulatedCard) -> None:
    card_file, allocations = card.directory / "card.json", card.directory / "allocations"
    coarse = time.time_ns()
    before = card_file.read_text()
    for text, size in ((before, 0), (before.replace('"other_used": 0', '"other_used": 9'), 9)):
        card_file.write_text(text)
        os.utime(card_file, ns=(coarse, coarse))
        assert used() == size
    for size in (GIB, 2 * GIB):
        Allocation(card.directory).hold(A, size)
        os.utime(allocations, ns=(coarse, coarse))
        assert used() == 9 + size


def test_a_setting_that_there_is_not_is_refused(card: SimulatedCard) -> None:
    with pytest.raises(AttributeError, match="haning"):
        card.change(haning=["nvmlInit"])
    with pytest.raises(AttributeError, match="lots"):
        card.change_gpu(A, lots=True)


def test_holding_for_a_process_that_does_not_exist_is_refused(card: SimulatedCard) -> None:
    with pytest.raises(ProcessLookupError):
        Allocation(card.directory, pid=2**22 + 1)


def test_a_call_costs_little(world: CardWorld, card: SimulatedCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is read again while nothing changes: each call only looks at two timestamps."""
    Allocation(card.directory).hold(A, GIB)
    settled = time.time() - 10
    os.utime(card.directory / "card.json", (settled, settled))
    os.utime(card.directory / "allocations", (settled, settled))
    assert used() == GIB
    reads: list[object] = []
    monkeypatch.setattr(Path, "read_text", lambda *arguments: reads.append(arguments))
    for _ in range(20):
        assert used() == GIB
    assert reads == []
