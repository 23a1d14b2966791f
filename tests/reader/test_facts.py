"""What the reader tells, of which processes, and to whom: the real process on a real bus, over a simulated card."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.reader.facts import AT_MOST, FactTeller
from gpusupervisor.reader.interface import READER
from tests.helper.conftest import ReaderBench as Bench
from tests.listeners import LISTENER, NOBODY, key_of, listener

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have processes and callers of other users")
OTHER = NOBODY if os.geteuid() == 0 else None
NOT_TOLD = "has not opened a GPU and is no engine"
VARIABLES = {"APP_HOST": "0.0.0.0:9000", "PASSWORD": "secret"}


ENGINE = 'title = "Mine"\nengine = "comfyui"\n[match]\ncommand-lines = ["*/MyEngine/main.py*"]\n'
SECRETS = {"OLLAMA_KEEP_ALIVE": "1h", "LLAMA_API_KEY": "hunter2", "HOME": "/hunter2"}


CALLS: dict[str, tuple[str, ...]] = {
    "Facts": ("a(ut)", "0"),
    "Residency": ("s", "app"),
    "BeginWarmUp": ("ss", "app", "m.gguf"),
    "WarmPart": ("sstt", "app", "m.gguf", "0", "1"),
}


@contextmanager
def an_engine(bench: Bench) -> Iterator[tuple[ProcessKey, tuple[int, ...]]]:
    """An engine by its folder, started as "python main.py" by another user."""
    (bench.tenants / "mine.toml").write_text(ENGINE)
    folder = bench.folder / "MyEngine"
    folder.mkdir()
    (folder / "main.py").write_text(LISTENER)
    with listener("127.0.0.1", folder=folder, uid=OTHER, environment=SECRETS, program=("main.py",)) as found:
        yield found


async def test_of_a_holder_it_tells_what_proc_hides_and_only_the_variables_that_are_named(bench: Bench) -> None:
    bench.start()
    with listener("127.0.0.1", folder=Path("/tmp"), uid=OTHER, environment=VARIABLES) as (key, ports):
        await bench.hold(key.pid)
        answer = await bench.facts(key)
        (told,) = await bench.told(key)
    assert told == {
        "pid": key.pid,
        "start_time": key.start_time,
        "executable": os.path.realpath(sys.executable),
        "working_directory": "/tmp",
        "listening_ports": list(ports),
        "listens_elsewhere": False,
        "has_opened_gpu": False,
        "environment": {"APP_HOST": "0.0.0.0:9000"} if os.geteuid() == 0 else {},
        "configuration": [],
    }
    assert "secret" not in answer.output


async def test_of_others_it_tells_nothing(bench: Bench) -> None:
    bench.start()
    with listener("127.0.0.1") as (holder, _), listener("127.0.0.1") as (bystander, _):
        await bench.hold(holder.pid)
        recycled = ProcessKey(holder.pid, holder.start_time + 1)
        told = await bench.told(holder, bystander, recycled, ProcessKey(2**31, 5))
    assert [entry.get("refused") for entry in told] == [None, NOT_TOLD, "is gone", "is gone"]
    assert [len(entry) for entry in told[1:]] == [3, 3, 3]


async def test_of_what_roots_files_recognise_as_an_engine_it_tells_though_it_holds_no_vram(bench: Bench) -> None:
    """By what it reads itself: here the folder, which makes an engine of "python main.py"."""
    bench.start()
    with an_engine(bench) as (key, ports):
        answer = await bench.facts(key)
        (told,) = await bench.told(key)
    if os.geteuid() == 0:
        assert told["environment"] == {"OLLAMA_KEEP_ALIVE": "1h", "LLAMA_API_KEY": "(set)"}
    assert (told["working_directory"], told["listening_ports"]) == (str(bench.folder / "MyEngine"), list(ports))
    assert "hunter2" not in answer.output


async def test_of_what_only_names_an_engine_it_tells_nothing(bench: Bench) -> None:
    command = [sys.executable, "-c", "input()", "/srv/MyEngine/main.py"]
    with (
        an_engine(bench) as (engine, _),
        subprocess.Popen(command, stdin=subprocess.PIPE, env=SECRETS) as naming,
    ):
        bench.start()
        told = await bench.told(engine, key_of(naming.pid))
        naming.communicate(b"\n")
    assert [entry.get("refused") for entry in told] == [None, NOT_TOLD]


async def test_of_tenants_that_are_no_engines_it_tells_nothing(bench: Bench) -> None:
    with an_engine(bench) as (key, _):
        (bench.tenants / "mine.toml").write_text(ENGINE.replace('engine = "comfyui"', ""))
        bench.start()
        assert (await bench.told(key))[0]["refused"] == NOT_TOLD


async def test_a_users_tenant_files_make_an_engine_of_nothing(bench: Bench) -> None:
    with an_engine(bench) as (key, _):
        (bench.tenants / "mine.toml").chmod(0o666)
        bench.start()
        assert (await bench.told(key))[0]["refused"] == NOT_TOLD


async def test_a_port_that_is_opened_later_is_told_later(bench: Bench) -> None:
    """As ComfyUI does, which takes VRAM seconds before it listens."""
    bench.start()
    program = "import socket\ninput()\ns = socket.create_server(('127.0.0.1', 0))\nprint(s.getsockname()[1], flush=1)\n"
    command = [sys.executable, "-c", f"{program}input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as late:
        assert late.stdin is not None
        assert late.stdout is not None
        key = key_of(late.pid)
        await bench.hold(late.pid)
        before = (await bench.told(key))[0]["listening_ports"]
        late.stdin.write("\n")
        late.stdin.flush()
        port = int(late.stdout.readline())
        after = (await bench.told(key))[0]["listening_ports"]
        late.communicate("\n")
    assert (before, after) == ([], [port])


async def test_too_many_processes_at_once_are_an_error(bench: Bench) -> None:
    bench.start()
    answer = await bench.facts(*[ProcessKey(1, 1)] * (AT_MOST + 1))
    assert f"at most {AT_MOST}" in answer.errors


@as_root
@pytest.mark.parametrize("user", ["nobody", "daemon"])
async def test_other_users_get_nowhere_even_where_the_bus_lets_them(bench: Bench, user: str) -> None:
    bench.start()
    uid = pwd.getpwnam(user).pw_uid
    with listener(uid=uid) as (own, _):
        await bench.hold(own.pid)
        refused = await bench.facts(own, uid=uid)
    assert "Access denied" in refused.errors
    reader = ("call", "org.gpusupervisor1.Reader", "/org/gpusupervisor1/Reader")
    for standard in (
        ("org.freedesktop.DBus.Introspectable", "Introspect"),
        ("org.freedesktop.DBus.Peer", "Ping"),
        ("org.freedesktop.DBus.Properties", "GetAll", "s", "org.gpusupervisor1.Reader"),
    ):
        assert "Access denied" in (await bench.bus.busctl(*reader, *standard, uid=uid)).errors
    assert bench.log.count(f"refused a call from user {uid}") == 4, "by the helper itself, and said once a connection"


@as_root
async def test_nobody_but_the_supervisor_gets_anywhere(bench: Bench) -> None:
    bench.start()
    assert CALLS.keys() == {method.name for method in READER.methods}
    for member, arguments in CALLS.items():
        assert "Access denied" in (await bench.ask(member, *arguments, uid=NOBODY)).errors, member


async def test_of_a_holders_parents_it_tells_too(bench: Bench) -> None:
    """An engine's server holds no VRAM itself; what it is set to is what matters."""
    bench.start()
    worker_program = "import os; print(os.getpid(), flush=1); input()"
    program = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {worker_program!r}])"
    environment = {**os.environ, "OLLAMA_KEEP_ALIVE": "1h"}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        worker = int(server.stdout.readline())
        await bench.hold(worker)
        (told,) = await bench.told(key_of(server.pid))
        server.communicate("\n")
    assert told["executable"] == os.path.realpath(sys.executable)
    assert told["environment"] == {"OLLAMA_KEEP_ALIVE": "1h"}


def fake_process(root: Path, pid: int, unit: str) -> ProcessKey:
    """A process in a system unit, in a /proc of our own."""
    folder = root / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (engine) S 1 " + " ".join(["0"] * 17) + f" {pid * 10} 0\n")
    (folder / "cgroup").write_text(f"0::/system.slice/{unit}\n")
    (folder / "environ").write_bytes(b"OLLAMA_KEEP_ALIVE=1h\0HOME=/root\0")
    (folder / "exe").symlink_to("/usr/bin/engine")
    (folder / "cwd").symlink_to("/")
    return ProcessKey(pid, pid * 10)


async def test_of_units_that_tenant_files_name_it_tells_though_they_hold_no_vram(tmp_path: Path) -> None:
    known, other = fake_process(tmp_path, 7, "ollama.service"), fake_process(tmp_path, 8, "sshd.service")
    variables, units = frozenset({"OLLAMA_KEEP_ALIVE"}), frozenset({"ollama*.service"})
    teller = FactTeller(lambda _: False, lambda: variables, tmp_path, units=lambda: units)
    first, second = await teller.tell([known, other])
    assert first.facts is not None
    assert (first.facts.executable, first.facts.environment) == ("/usr/bin/engine", (("OLLAMA_KEEP_ALIVE", "1h"),))
    assert (second.facts, second.refusal) == (None, NOT_TOLD)
