"""How much memory is available is read as the kernel writes it, and nothing is made up."""

from pathlib import Path

import pytest

from gpusupervisor.memory import Memory, read_memory

MEMINFO = "MemTotal:       24684092 kB\nMemFree:        23337096 kB\nMemAvailable:   24141776 kB\nBuffers: 5 kB\n"
PRESSURE = "some avg10=12.34 avg60=0.00 avg300=0.00 total=0\nfull avg10=99.00 avg60=0.00 avg300=0.00 total=0\n"
GIB = 1 << 30


def proc(folder: Path, meminfo: str, pressure: str | None = None) -> Path:
    (folder / "meminfo").write_text(meminfo)
    if pressure is not None:
        (folder / "pressure").mkdir()
        (folder / "pressure/memory").write_text(pressure)
    return folder


def test_it_is_read_as_the_kernel_writes_it(tmp_path: Path) -> None:
    assert read_memory(proc(tmp_path, MEMINFO, PRESSURE)) == Memory(24684092 * 1024, 24141776 * 1024, 12.34)


def test_this_machine_can_be_read() -> None:
    memory = read_memory()
    assert memory is not None
    assert 0 < memory.available <= memory.total


@pytest.mark.parametrize("pressure", [None, "", "nonsense"])
def test_a_kernel_that_tells_no_pressure_is_none_under_pressure(tmp_path: Path, pressure: str | None) -> None:
    memory = read_memory(proc(tmp_path, MEMINFO, pressure))
    assert memory is not None
    assert (memory.pressure, memory.shortage) == (None, "")


@pytest.mark.parametrize("meminfo", ["", "MemTotal: 5 kB\n", "MemTotal: x kB\nMemAvailable: -3 kB\n"])
def test_what_does_not_tell_is_not_known(tmp_path: Path, meminfo: str) -> None:
    assert read_memory(proc(tmp_path, meminfo)) is None


def test_no_proc_is_not_known(tmp_path: Path) -> None:
    assert read_memory(tmp_path / "absent") is None


@pytest.mark.parametrize(
    ("memory", "spare", "short"),
    [
        (Memory(100 * GIB, 30 * GIB, 10.0), 20 * GIB, False),
        (Memory(100 * GIB, 30 * GIB, 10.1), 20 * GIB, True),
        (Memory(100 * GIB, 10 * GIB), 0, True),
        (Memory(2 * GIB, GIB), GIB // 2, False),
        (Memory(2 * GIB, GIB // 4), 0, True),
    ],
)
def test_a_tenth_and_half_a_gibibyte_at_least_are_left_to_others(memory: Memory, spare: int, short: bool) -> None:
    assert (memory.spare, bool(memory.shortage)) == (spare, short)
