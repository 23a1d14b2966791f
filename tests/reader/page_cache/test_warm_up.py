"""Reading models into RAM: real files, taken out of the page cache before; memory as a folder says."""

import os
from pathlib import Path

import pytest

from gpusupervisor.errors import InvalidArgument, WontFit
from gpusupervisor.memory import Memory
from gpusupervisor.reader.page_cache import warm_up
from gpusupervisor.reader.page_cache.residency import ModelSeen
from gpusupervisor.reader.page_cache.warm_up import WarmUps
from tests.model_files import ME, MIB, look, make_cold, write

GIB = 1 << 30
PLENTY = Memory(64 * GIB, 32 * GIB, 0.0)
ALL = 2**63


class Machine:
    """Memory that changes."""

    def __init__(self) -> None:
        self.memory: Memory | None = PLENTY
        self.warm_ups = WarmUps(lambda: self.memory, ME)

    def warm(self, model: ModelSeen, most: int = ALL) -> int:
        """Warm all of it; returns the number of parts."""
        total = self.warm_ups.begin("app", model)
        position, parts = 0, 0
        while position < total:
            progress = self.warm_ups.go_on("app", model.name, position, most)
            assert not progress.stopped
            assert position < progress.position <= min(total, position + most)
            position, parts = progress.position, parts + 1
        return parts


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def cold(disk: Path) -> ModelSeen:
    """A model of three files, one of them empty, that is not in RAM."""
    for number, size in ((1, 3 * MIB + 17), (2, 0), (3, 2 * MIB)):
        make_cold(write(disk / f"m-0000{number}-of-00003.gguf", size))
    found = look(disk)["m.gguf"]
    assert (found.cached, found.size) == (0, 5 * MIB + 17)
    return found


def test_after_a_warm_up_all_is_in_ram(disk: Path, machine: Machine, cold: ModelSeen) -> None:
    machine.warm(cold)
    assert look(disk)["m.gguf"].cached == cold.size


def test_a_part_reads_no_more_than_it_may(disk: Path, machine: Machine, cold: ModelSeen) -> None:
    assert machine.warm(cold, most=MIB) == 6
    assert look(disk)["m.gguf"].cached == cold.size


def test_a_part_ends_in_time_however_much_there_is(
    disk: Path, machine: Machine, cold: ModelSeen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes longer than a part may."""
    ticks = iter(range(1000))
    monkeypatch.setattr("time.monotonic", lambda: float(next(ticks)) * warm_up.PART / 2)
    machine.warm_ups.begin("app", cold)
    assert machine.warm_ups.go_on("app", cold.name, 0, ALL).position == warm_up.BLOCK


def test_a_model_without_bytes_is_warm_at_once(disk: Path, machine: Machine) -> None:
    write(disk / "empty.gguf", 0)
    assert machine.warm(look(disk)["empty.gguf"]) == 0


def test_what_would_not_stay_is_refused_with_the_arithmetic(machine: Machine, cold: ModelSeen) -> None:
    machine.memory = Memory(8 * GIB, 800 * MIB + MIB, 0.0)
    with pytest.raises(WontFit, match=r"5\.0 MiB of files, which .* 801\.0 MiB are available, and 819\.2 MiB must"):
        machine.warm_ups.begin("app", cold)


def test_what_is_in_ram_already_is_never_refused(disk: Path, machine: Machine) -> None:
    write(disk / "model.gguf")
    machine.memory = Memory(8 * GIB, 0, 90.0)
    assert machine.warm_ups.begin("app", look(disk)["model.gguf"]) == MIB


def test_without_a_word_on_memory_nothing_is_read(machine: Machine, cold: ModelSeen) -> None:
    machine.memory = None
    with pytest.raises(WontFit, match="meminfo"):
        machine.warm_ups.begin("app", cold)


@pytest.mark.parametrize(
    ("memory", "reason"),
    [
        (Memory(64 * GIB, 6 * GIB, 0.0), "too little memory is available"),
        (Memory(64 * GIB, 32 * GIB, 10.01), "programs have to wait for memory"),
    ],
)
def test_it_stops_when_memory_becomes_short(
    disk: Path, machine: Machine, cold: ModelSeen, memory: Memory, reason: str
) -> None:
    machine.warm_ups.begin("app", cold)
    assert machine.warm_ups.go_on("app", cold.name, 0, MIB).position == MIB
    machine.memory = memory
    stopped = machine.warm_ups.go_on("app", cold.name, MIB, ALL)
    assert (stopped.position, stopped.stopped) == (MIB, reason)


def test_a_file_that_was_replaced_meanwhile_is_not_read(disk: Path, machine: Machine, cold: ModelSeen) -> None:
    machine.warm_ups.begin("app", cold)
    new = write(disk / "new", 3 * MIB + 17)
    make_cold(new)
    new.rename(disk / cold.files[0].path)
    with pytest.raises(InvalidArgument, match="was replaced"):
        machine.warm_ups.go_on("app", cold.name, 0, ALL)
    assert look(disk)["m.gguf"].cached == 0


def test_a_file_that_became_a_link_elsewhere_or_a_fifo_is_not_opened(
    disk: Path, machine: Machine, cold: ModelSeen
) -> None:
    machine.warm_ups.begin("app", cold)
    file = disk / cold.files[0].path
    file.unlink()
    file.symlink_to("/etc/hostname")
    with pytest.raises(InvalidArgument, match="a link leads out"):
        machine.warm_ups.go_on("app", cold.name, 0, ALL)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(InvalidArgument, match="no regular file"):
        machine.warm_ups.go_on("app", cold.name, 0, ALL)


def test_a_file_that_is_cut_short_while_it_is_read_ends_it(
    disk: Path, machine: Machine, cold: ModelSeen, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.warm_ups.begin("app", cold)
    file = disk / cold.files[0].path
    advise = os.posix_fadvise

    def cut(descriptor: int, *rest: int) -> None:
        os.truncate(file, MIB)
        advise(descriptor, *rest)

    monkeypatch.setattr(os, "posix_fadvise", cut)
    with pytest.raises(InvalidArgument, match="became shorter"):
        machine.warm_ups.go_on("app", cold.name, 0, ALL)


def test_what_nobody_began_is_not_gone_on_with(machine: Machine, cold: ModelSeen) -> None:
    with pytest.raises(InvalidArgument, match="was restarted since"):
        machine.warm_ups.go_on("app", cold.name, 0, ALL)


def test_only_so_many_warm_ups_are_remembered(machine: Machine, cold: ModelSeen) -> None:
    for number in range(warm_up.REMEMBERED + 1):
        machine.warm_ups.begin(f"app{number}", cold)
    with pytest.raises(InvalidArgument, match="was restarted since"):
        machine.warm_ups.go_on("app0", cold.name, 0, ALL)
    assert machine.warm_ups.go_on("app1", cold.name, 0, MIB).position == MIB


def test_a_model_of_which_nothing_can_be_read_is_refused(machine: Machine) -> None:
    with pytest.raises(InvalidArgument, match="its manifest is not JSON"):
        machine.warm_ups.begin("app", ModelSeen("bad:1b", "/nowhere", (), "its manifest is not JSON"))


def test_a_part_ends_when_its_time_is_up_however_large_the_model(
    machine: Machine, cold: ModelSeen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a warm-up that is cancelled has ended within 200 ms."""
    machine.warm_ups.begin("app", cold)
    monkeypatch.setattr(warm_up, "PART", -1.0)
    assert machine.warm_ups.go_on("app", cold.name, 0, ALL).position == 0
    monkeypatch.setattr(warm_up, "PART", 3600.0)
    assert machine.warm_ups.go_on("app", cold.name, 0, ALL).position == cold.size


def test_holes_are_not_read(disk: Path, machine: Machine) -> None:
    """A sparse file of a terabyte is in RAM as soon as its data are."""
    path = write(disk / "m.gguf", MIB)
    os.truncate(path, 1 << 40)
    with path.open("r+b") as file:
        file.seek(1 << 39)
        file.write(b"x" * MIB)
        file.flush()
        os.fsync(file.fileno())
    make_cold(path)
    machine.memory = Memory(4 << 40, 2 << 40, 0.0)
    model = look(disk)["m.gguf"]
    assert (model.size, model.cached) == (1 << 40, (1 << 40) - 2 * MIB)
    machine.warm(model)
    assert look(disk)["m.gguf"].cached == 1 << 40
