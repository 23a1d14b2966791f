"""Processes are looked at when they are new or may have become another program, and few of them are followed."""

import itertools
from pathlib import Path

import pytest

from gpusupervisor.keepers.engine_scan import EVERY, OF_ONE_USER, SUSPECTED_FOR, TURNS, EngineScan
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.tenants.catalog import SHIPPED, load_catalog
from gpusupervisor.tenants.signs import EngineSigns, signs_of
from tests.gpu.machine import HandClock
from tests.processes.fake_proc import FakeProc
from tests.tenants.people import HEX, SESSION, USER

CATALOG = load_catalog([SHIPPED])
SIGNS = signs_of(CATALOG.definitions.values())
OLLAMA = ("/usr/bin/ollama", "serve")


class CountingProc(Procfs):
    """Notes of whom the command line was read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.read: list[int] = []

    def command_line(self, pid: int) -> tuple[str, ...]:
        self.read.append(pid)
        return super().command_line(pid)


class Machine:
    """A /proc and a scan of it."""

    def __init__(self, root: Path) -> None:
        self.clock = HandClock()
        self.fake = FakeProc(root)
        self.proc = CountingProc(root)
        self.scan = EngineScan(self.proc, self.clock)
        self.scan.use(SIGNS)

    def runs(self, pid: int, *arguments: str, cgroup: str = SESSION, uid: int = 1000) -> None:
        self.fake.add(pid, arguments=arguments, cgroup=cgroup, uid=uid)

    def ends(self, pid: int) -> None:
        folder = self.fake.root / str(pid)
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def look(self) -> frozenset[int]:
        """The next scan."""
        self.clock.instant += EVERY
        assert self.scan.is_due()
        self.proc.read.clear()
        return self.scan.look()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_engines_are_found_in_whatever_unit_or_container_they_are(machine: Machine) -> None:
    machine.runs(100, *OLLAMA)
    machine.runs(101, "/usr/bin/llama-server", "-m", "m", cgroup=f"{USER}/mine.service")
    machine.runs(102, "python3", "/app/ComfyUI/main.py", cgroup=f"/system.slice/docker-{HEX}.scope")
    machine.runs(103, "/bin/node", "x.js", cgroup=f"{USER}/comfyui.service")
    machine.runs(104, "/bin/node", "x.js", cgroup=f"{USER}/shop.service")
    machine.runs(105, "python", "main.py")
    machine.runs(106)
    assert machine.look() == {100, 101, 102, 103, 105}


def test_what_was_looked_at_is_not_read_again_but_once_when_new_and_then_in_turn(machine: Machine) -> None:
    pids = range(1000, 1000 + 2 * TURNS)
    for pid in pids:
        machine.runs(pid, "/bin/sleep", "1")
    machine.look()
    assert sorted(machine.proc.read) == list(pids)
    machine.look()
    assert sorted(machine.proc.read) == list(pids), "a fork is seen before its exec"
    again = []
    for _ in range(TURNS):
        machine.look()
        assert len(machine.proc.read) == 2
        again += machine.proc.read
    assert sorted(again) == list(pids)


def test_a_fork_that_becomes_an_engine_is_found_at_the_next_scan(machine: Machine) -> None:
    machine.runs(100, "-bash")
    assert machine.look() == frozenset()
    machine.runs(100, *OLLAMA)
    assert machine.look() == {100}


def test_a_script_that_becomes_an_engine_much_later_is_found_within_minutes(machine: Machine) -> None:
    machine.runs(100, "/bin/sh", "start.sh")
    for _ in range(TURNS):
        machine.look()
    machine.runs(100, *OLLAMA)
    assert any(machine.look() for _ in range(TURNS))


def test_what_is_gone_is_followed_no_more_and_its_pid_is_looked_at_anew(machine: Machine) -> None:
    machine.runs(100, *OLLAMA)
    machine.look()
    machine.ends(100)
    assert machine.look() == frozenset()
    machine.runs(100, "/bin/sleep", "1")
    assert machine.look() == frozenset()
    machine.runs(100, *OLLAMA)
    assert machine.look() == {100}


def test_it_is_time_every_few_seconds_and_never_without_engines(machine: Machine) -> None:
    assert machine.scan.is_due()
    assert not machine.scan.is_due()
    machine.clock.instant += EVERY - 1
    assert not machine.scan.is_due()
    machine.clock.instant += 1
    assert machine.scan.is_due()
    machine.scan.use(EngineSigns())
    assert not machine.scan.is_due()


def test_with_other_definitions_everybody_is_looked_at_again_at_once(machine: Machine) -> None:
    machine.runs(100, "/opt/mine", "serve")
    assert machine.look() == frozenset()
    machine.scan.use(EngineSigns(executables=("/opt/mine",)))
    assert machine.scan.is_due()
    assert machine.scan.look() == {100}
    machine.scan.use(EngineSigns(executables=("/opt/mine",)))
    assert not machine.scan.is_due()


def test_who_starts_very_many_look_alikes_does_not_slow_it_down(machine: Machine) -> None:
    for pid in range(100, 100 + 2 * OF_ONE_USER):
        machine.runs(pid, *OLLAMA)
    assert len(machine.look()) == OF_ONE_USER
    for pid in itertools.islice(machine.scan.followed, OF_ONE_USER // 2):
        machine.ends(pid)
    assert len(machine.look()) == OF_ONE_USER, "others have their turn"


@pytest.mark.parametrize("owner", [0, 998, 1001])
def test_look_alikes_of_one_user_do_not_keep_an_engine_of_another_from_being_found(
    machine: Machine, owner: int
) -> None:
    for pid in range(100, 170):
        machine.runs(pid, *OLLAMA, uid=1000)
    machine.look()
    machine.runs(500, *OLLAMA, uid=owner)
    found = machine.look()
    assert 500 in found
    assert len(found) == OF_ONE_USER + 1


def test_a_suspect_that_turns_out_to_be_none_is_dropped_for_good(machine: Machine) -> None:
    machine.runs(100, "python", "main.py")
    assert machine.look() == {100}
    machine.clock.instant += SUSPECTED_FOR
    assert machine.scan.servers({}, lambda _: None, CATALOG.resolve) == []
    assert set(machine.scan.followed) == {100}
    machine.clock.instant += 1
    machine.scan.servers({}, lambda _: None, CATALOG.resolve)
    assert not machine.scan.followed
    for _ in range(TURNS + 1):
        assert machine.look() == frozenset()


def test_a_proc_that_cannot_be_read_has_nobody() -> None:
    scan = EngineScan(Procfs(Path("/nonexistent")), HandClock())
    scan.use(SIGNS)
    assert scan.look() == frozenset()
