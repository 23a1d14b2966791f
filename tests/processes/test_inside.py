"""What only a process's own user and root may read, read of real processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.processes.inside import MAX_PORTS, MAX_VALUE, read_inside
from gpusupervisor.processes.privileged import PrivilegedFacts
from tests.listeners import NOBODY, listener

PROC = Path("/proc")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to have processes of another user")


def inside(key: ProcessKey, *variables: str) -> PrivilegedFacts:
    found = read_inside(PROC, key, frozenset(variables))
    assert found is not None
    return found


@as_root
def test_root_sees_all_of_another_users_process(tmp_path: Path) -> None:
    folder = Path("/tmp")
    with listener("127.0.0.1", folder=folder, uid=NOBODY, environment={"HOST": "a:1", "SECRET": "x"}) as (key, ports):
        assert inside(key, "HOST") == PrivilegedFacts(
            os.path.realpath(sys.executable), str(folder), ports, (("HOST", "a:1"),)
        )


@as_root
def test_others_see_nothing_of_it() -> None:
    program = "import os, sys; from gpusupervisor.processes import inside as i; from pathlib import Path\n"
    # nobody may be kept from starting the interpreter, so root starts it
    program += f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
    program += f"i.read_inside(Path('/proc'), i.ProcessKey({os.getpid()}, int(sys.argv[1])))"
    start = Path(f"/proc/{os.getpid()}/stat").read_text().rpartition(")")[2].split()[19]
    done = subprocess.run([sys.executable, "-c", program, start], capture_output=True, text=True)
    assert f"PermissionError: /proc/{os.getpid()}/" in done.stderr


def test_ports_are_those_that_loopback_reaches() -> None:
    with listener("127.0.0.1", "0.0.0.0", "::", "::1") as (key, (local, wildcard, both, _only_v6)):
        assert inside(key).listening_ports == tuple(sorted({local, wildcard, both}))


def test_a_socket_that_does_not_listen_or_is_anothers_is_no_port() -> None:
    with listener() as (key, _), socket.create_server(("127.0.0.1", 0)):
        assert inside(key).listening_ports == ()


@as_root
def test_a_process_in_another_network_has_no_port_here() -> None:
    with listener("0.0.0.0", wrapper=("unshare", "--net")) as (key, (_,)):
        assert (inside(key).listening_ports, inside(key).listens_elsewhere) == ((), True)


def test_where_loopback_does_not_lead_it_listens_elsewhere() -> None:
    with listener("::1") as (key, _):
        assert (inside(key).listening_ports, inside(key).listens_elsewhere) == ((), True)
    with listener("127.0.0.1", "0.0.0.0", "::") as (key, ports):
        assert (inside(key).listening_ports, inside(key).listens_elsewhere) == (tuple(sorted(ports)), False)
    with listener() as (key, _):
        assert not inside(key).listens_elsewhere


def test_very_many_ports_are_bounded() -> None:
    with listener(*["127.0.0.1"] * (MAX_PORTS + 3)) as (key, ports):
        assert inside(key).listening_ports == tuple(sorted(ports)[:MAX_PORTS])


def test_only_named_variables_are_told_and_their_values_are_harmless_and_short() -> None:
    environment = {"NAMED": "a\x1b[31m" + "b" * MAX_VALUE, "NAMED_TOO": "", "SECRET": "s"}
    with listener(environment=environment) as (key, _):
        assert inside(key).environment == ()
        (one, other) = inside(key, "NAMED", "NAMED_TOO", "ABSENT").environment
    assert (one[0], other) == ("NAMED", ("NAMED_TOO", ""))
    assert len(one[1]) == MAX_VALUE
    assert "\x1b" not in one[1]


def test_a_recycled_pid_is_a_new_process() -> None:
    with listener("127.0.0.1") as (key, _):
        assert read_inside(PROC, ProcessKey(key.pid, key.start_time - 1)) is None
    assert read_inside(PROC, key) is None


def test_of_secrets_is_told_only_that_they_are_set() -> None:
    environment = {
        "API_KEY": "hunter2",
        "APP_TOKEN": "",
        "db_password": "hunter2",
        "ARGS": "--port 1 --api-auth me:hunter2 --gradio-auth='a hunter2' --api-key=hunter2 --listen",
        "KEYBOARD": "us",
    }
    with listener(environment=environment) as (key, _):
        told = dict(inside(key, *environment).environment)
    assert told == {
        "API_KEY": "(set)",
        "APP_TOKEN": "",
        "db_password": "(set)",
        "ARGS": "--port 1 --api-auth (set) --gradio-auth=(set) --api-key=(set) --listen",
        "KEYBOARD": "us",
    }
