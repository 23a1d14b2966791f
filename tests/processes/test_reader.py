"""Reading identities from a made-up /proc, and from the real one."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.processes.privileged import PrivilegedFacts, Sight
from gpusupervisor.processes.procfs import Procfs, parse_stat
from gpusupervisor.processes.reader import ProcessReader

from .fake_proc import FakeProc

TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    root = tmp_path / "proc"
    root.mkdir()
    return FakeProc(root)


@pytest.fixture
def reader(proc: FakeProc) -> ProcessReader:
    return ProcessReader(proc.root)


def test_an_identity_has_everything_that_proc_tells(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(7, parent=1)
    identity = reader.identify([7])[7]
    assert identity.key == ProcessKey(7, 1000)
    assert (identity.parent_pid, identity.uid, identity.comm) == (1, 1000, "app")
    assert (identity.executable, identity.command_line) == ("/usr/bin/app", ("/usr/bin/app",))
    assert (identity.unit, identity.cgroup) == ("app.service", "/system.slice/app.service")
    assert identity.working_directory == "/srv"
    assert identity.hidden == {"listening_ports", "environment"}


@pytest.mark.parametrize("state", ["Z", "X"])
def test_zombies_and_the_dead_are_left_out(proc: FakeProc, reader: ProcessReader, state: str) -> None:
    proc.add(7, state=state)
    assert reader.identify([7, 8]) == {}


def test_a_recycled_pid_is_a_new_process(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(7, start=1000)
    before = reader.identify([7])[7]
    proc.add(7, start=2000, arguments=("/usr/bin/other",))
    after = reader.identify([7])[7]
    assert before.key != after.key
    assert after.command_line == ("/usr/bin/other",)


def test_a_process_that_runs_another_program_is_read_again(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(7, comm=b"sh", arguments=("sh",))
    reader.identify([7])
    proc.add(7, comm=b"python3", arguments=("python3", "main.py"))
    assert reader.identify([7])[7].command_line == ("python3", "main.py")


def test_what_is_known_is_not_read_again(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(7)
    first = reader.identify([7])[7]
    for name in ("cmdline", "cgroup", "status", "exe", "cwd"):
        (proc.root / "7" / name).unlink()
    assert reader.identify([7])[7] is first


def test_a_process_seen_in_the_middle_of_its_exec_is_read_again(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(7, arguments=())
    assert reader.identify([7])[7].command_line == ()
    proc.add(7, arguments=("app", "-x"))
    assert reader.identify([7])[7].command_line == ("app", "-x")


def test_ancestors_are_parent_first_without_pid_1_and_identified_too(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(5, parent=1)
    proc.add(6, parent=5)
    proc.add(7, parent=6)
    found = reader.identify([7])
    assert [key.pid for key in found[7].ancestors] == [6, 5]
    assert set(found) == {5, 6, 7}


def test_an_adopted_process_has_its_new_parent(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(5, parent=1)
    proc.add(6, parent=5)
    proc.add(7, parent=6)
    reader.identify([7])
    shutil.rmtree(proc.root / "5")
    proc.add(6, parent=1)
    found = reader.identify([7])[7]
    assert [key.pid for key in found.ancestors] == [6]


def test_ancestry_is_bounded_and_survives_a_circle(proc: FakeProc, reader: ProcessReader) -> None:
    for pid in range(10, 50):
        proc.add(pid, parent=pid + 1)
    assert len(reader.identify([10])[10].ancestors) == 16
    proc.add(60, parent=61)
    proc.add(61, parent=60)
    assert [key.pid for key in reader.identify([60])[60].ancestors] == [61]


def test_the_dead_are_forgotten_and_memory_is_bounded(proc: FakeProc, tmp_path: Path) -> None:
    reader = ProcessReader(proc.root, cache_size=4)
    for pid in range(10, 20):
        proc.add(pid)
    assert len(reader.identify(range(10, 20))) == 10
    assert len(reader._cache) == 4
    shutil.rmtree(proc.root / "19")
    reader.identify([19])
    assert 19 not in reader._cache


def test_a_process_that_vanishes_while_it_is_read_is_left_out(
    proc: FakeProc, reader: ProcessReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.add(7)

    def gone(_: Procfs, pid: int) -> tuple[str, ...]:
        shutil.rmtree(proc.root / str(pid))
        return ()

    monkeypatch.setattr(Procfs, "command_line", gone)
    assert reader.identify([7]) == {}


def test_command_lines_are_bounded_and_harmless(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(7, arguments=("app", "\x1b[31m\nred\u202e", *["x"] * 200))
    proc.add(8, arguments=("app", "y" * 10_000))
    found = reader.identify([7, 8])
    assert len(found[7].command_line) == 64
    assert found[7].command_line[1].isprintable()
    assert sum(map(len, found[8].command_line)) <= 4096


def test_a_deleted_executable_keeps_its_path(proc: FakeProc, reader: ProcessReader) -> None:
    proc.add(7, executable="/usr/bin/app (deleted)")
    assert reader.identify([7])[7].executable == "/usr/bin/app"


@pytest.mark.parametrize("comm", [b"a) S 1 (b", b"two\nlines", b"", b"((", b"\xff\xfe"])
def test_any_task_name_is_parsed(proc: FakeProc, reader: ProcessReader, comm: bytes) -> None:
    proc.add(7, comm=comm, parent=1, start=77)
    identity = reader.identify([7])[7]
    assert (identity.key.start_time, identity.parent_pid) == (77, 1)
    assert "\n" not in identity.comm


@pytest.mark.parametrize("text", [b"", b"7", b"7 (a", b"7 (a) S 1", b"x (a) " + b"1 " * 30])
def test_what_is_no_stat_line_is_nobody(text: bytes) -> None:
    assert parse_stat(text) is None


def test_hidden_fields_are_named_and_the_privileged_reader_fills_them(
    proc: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.add(7)

    def denied(_: Procfs, pid: int, name: str) -> None:
        assert (pid, name) in ((7, "exe"), (7, "cwd"))

    monkeypatch.setattr(Procfs, "link", denied)
    hidden = {"executable", "working_directory", "listening_ports", "environment"}
    assert ProcessReader(proc.root).identify([7])[7].hidden == hidden

    class Helper:
        """Knows at the second look, and of the port at the fourth."""

        asked = 0

        def facts(self, key: ProcessKey) -> PrivilegedFacts | None:
            assert key == ProcessKey(7, 1000)
            self.asked += 1
            ports = (8188,) if self.asked > 3 else ()
            return PrivilegedFacts("/opt/app", "/home", ports, (("HOST", "h"),)) if self.asked > 1 else None

        def sight(self) -> Sight:
            return Sight("ok")

    helper = Helper()
    reader = ProcessReader(proc.root, helper)
    assert reader.identify([7])[7].executable == ""
    identity = reader.identify([7])[7]
    assert (identity.executable, identity.working_directory) == ("/opt/app", "/home")
    assert (identity.environment, identity.hidden) == ((("HOST", "h"),), frozenset({"listening_ports"}))
    reader.identify([7])
    identity = reader.identify([7])[7]
    assert (identity.listening_ports, identity.hidden) == ((8188,), frozenset())
    reader.identify([7])
    assert helper.asked == 4, "not asked again once it has named a port"


def test_of_ancestors_nobody_is_asked_what_is_hidden(proc: FakeProc) -> None:
    proc.add(6, comm=b"bash")
    proc.add(7, parent=6)

    class Helper:
        def __init__(self) -> None:
            self.asked: list[int] = []

        def facts(self, key: ProcessKey) -> None:
            self.asked.append(key.pid)

        def sight(self) -> Sight:
            return Sight("ok")

    helper = Helper()
    assert ProcessReader(proc.root, helper).identify([7]).keys() == {6, 7}
    assert helper.asked == [7]


def test_cpu_time_is_users_and_systems_together(proc: FakeProc) -> None:
    proc.add(7, ticks=(30, 12))
    stat = Procfs(proc.root).stat(7)
    assert stat is not None
    assert stat.cpu_time == 42 * TICK


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "print(flush=True); import sys; sys.stdin.read()", "--port", "8189"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(10)


def test_a_real_process_is_identified_and_missed_when_it_is_gone(child: subprocess.Popen[bytes]) -> None:
    reader = ProcessReader()
    identity = reader.identify([child.pid])[child.pid]
    assert identity.parent_pid == os.getpid()
    assert identity.ancestors[0].pid == os.getpid()
    assert identity.uid == os.getuid()
    assert identity.command_line[-2:] == ("--port", "8189")
    assert identity.executable == os.path.realpath(sys.executable)
    assert identity.working_directory == str(Path.cwd())
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert child.pid not in reader.identify([child.pid]), "a zombie is nobody"
