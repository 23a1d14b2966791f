"""The reader in its own hardened unit: what it tells, whom it lets in, and how it comes and goes."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.system.conftest import BUS_NAME, READER_UNIT, ROOT, UNIT, USER
from tests.system.machine import Machine
from tests.system.test_simulated_card import CARD, PYTHON, card, properties  # noqa: F401  (card is a fixture)

READER = (f"{BUS_NAME}.Reader", f"{ROOT}/Reader", f"{BUS_NAME}.Reader")
FOLDER = f"/home/{USER}/ComfyUI"
PORT = 8217
TENANT = f"{ROOT}/tenants/comfyui_40{PORT}"
PID_FILE = "/tmp/by-hand.pid"
MAIN = f"""\
import os, pathlib, sys
pathlib.Path("{PID_FILE}").write_text(str(os.getpid()))
sys.argv += ["--card", "{CARD}", "--port", "{PORT}"]
from gpusupervisor.simulation.engines.comfyui import main
main()
"""
"""Where it listens is in a file, so to say: nothing on its command line tells it."""


def start_time(machine: Machine, pid: str) -> str:
    return machine.output("cat", f"/proc/{pid}/stat").rpartition(")")[2].split()[19]


def facts(machine: Machine, pid: str, user: str = "root") -> subprocess.CompletedProcess[str]:
    call = ("busctl", "--json=short", "call", *READER, "Facts", "a(ut)", "1", pid, start_time(machine, pid))
    return machine.run(*call, user=user, check=False)


def told(machine: Machine, pid: str) -> dict[str, object]:
    answer = facts(machine, pid)
    assert answer.returncode == 0, answer.stderr
    [entry] = json.loads(answer.stdout)["data"][0]
    return {name: value["data"] for name, value in entry.items()}


@pytest.fixture(scope="module")
def by_hand(card: Machine) -> Iterator[str]:  # noqa: F811
    """The PID of a `python main.py` that the ordinary user has started in a folder ComfyUI, in no unit of its own."""
    card.write(f"{FOLDER}/main.py", MAIN)
    scope = ("systemd-run", "--scope", "--quiet", "--unit=by-hand", f"--uid={USER}", f"--working-directory={FOLDER}")
    environment = ("env", "-i", "OLLAMA_HOST=elsewhere:1", "PASSWORD=secret")
    card.run("sh", "-c", f"cd {FOLDER}; exec setsid --fork {' '.join((*scope, *environment, PYTHON))} main.py"
             " >/dev/null 2>&1 </dev/null")  # fmt: skip
    yield card.wait_until("it runs", lambda: card.run("cat", PID_FILE, check=False).stdout, UNIT)
    card.run("systemctl", "stop", "by-hand.scope")


def test_python_main_py_started_by_hand_in_its_folder_is_recognised(card: Machine, by_hand: str) -> None:  # noqa: F811
    card.wait_until("it is a tenant", lambda: properties(card, TENANT, f"{BUS_NAME}.Tenant").get("Holding"), UNIT)


def test_it_is_reached_on_the_port_where_it_really_listens(card: Machine, by_hand: str) -> None:  # noqa: F811
    engine = card.wait_until(
        "its API is reached",
        lambda: (
            shown
            if (shown := properties(card, f"{ROOT}/engines/comfyui_40{PORT}", f"{BUS_NAME}.Engine")).get("Reachable")
            else {}
        ),
        UNIT,
    )
    assert engine["Endpoint"] == f"http://127.0.0.1:{PORT}"


def test_the_supervisor_says_that_the_reader_tells_it(card: Machine, by_hand: str) -> None:  # noqa: F811
    health = (f"{ROOT}/health", f"{BUS_NAME}.Health")
    checks = card.wait_until("there are checks", lambda: properties(card, *health).get("Checks"), UNIT)
    assert {"reader": "ok"}.items() <= {each["id"]["data"]: each["state"]["data"] for each in checks}.items()  # type: ignore[attr-defined]


def test_the_environment_is_told_by_name_and_never_whole(card: Machine, by_hand: str) -> None:  # noqa: F811
    answer = told(card, by_hand)
    assert answer["environment"] == {"OLLAMA_HOST": "elsewhere:1"}, "a shipped tenant file names this one"
    assert answer["working_directory"] == FOLDER
    assert answer["listening_ports"] == [PORT]
    assert "secret" not in facts(card, by_hand).stdout


def test_of_a_process_that_has_not_opened_the_card_it_tells_nothing(card: Machine) -> None:  # noqa: F811
    assert told(card, "1") == {
        "pid": 1,
        "start_time": int(start_time(card, "1")),
        "refused": "has not opened a GPU and is no engine",
    }


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_other_users_get_access_denied(card: Machine, by_hand: str, user: str) -> None:  # noqa: F811
    refused = facts(card, by_hand, user)
    assert refused.returncode != 0
    assert "Access denied" in refused.stderr or "AccessDenied" in refused.stderr
    name = ("gdbus", "call", "--system", f"--dest={READER[0]}", f"--object-path={READER[1]}")
    for method in ("org.freedesktop.DBus.Peer.Ping", "org.freedesktop.DBus.Introspectable.Introspect"):
        asked = card.run(*name, f"--method={method}", user=user, check=False)
        assert "org.freedesktop.DBus.Error.AccessDenied" in asked.stderr


def test_models_of_an_ordinary_user_are_measured_and_read_within_the_units_walls(card: Machine) -> None:  # noqa: F811
    """Its filter of system calls, its capabilities and its view of /home leave what is needed, in a closed folder too.

    Without CAP_FOWNER the kernel would tell nothing of this file, and the model would have that as its problem.
    """
    folder, size = f"/home/{USER}/models", 3_000_000
    match = 'title = "Warmed"\n[match]\nunits = ["warmed.service"]\n'
    card.write("/run/gpusupervisor/tenants.d/warmed.toml", f'{match}[models]\ndirectories = ["{folder}"]\n')
    make = f"mkdir -m 700 {folder}; head -c {size} /dev/urandom >{folder}/m.gguf"
    card.run("sh", "-c", make, user=USER)

    def ask(*call: str) -> list[Any]:
        return list(json.loads(card.output("busctl", "--json=short", "call", *READER, *call))["data"])

    [model], about = ask("Residency", "s", "warmed")
    told = {name: value["data"] for name, value in model.items()}
    assert told == {"model": "m.gguf", "size": size, "files": 1, "cached": size, "problem": ""}
    assert about["method"]["data"] in ("cachestat", "mincore")
    assert about["problems"]["data"] == []
    assert ask("BeginWarmUp", "ss", "warmed", "m.gguf") == [size]
    assert ask("WarmPart", "sstt", "warmed", "m.gguf", "0", str(size)) == [size, ""]


def test_it_ends_when_nobody_asks_and_comes_when_somebody_does(card: Machine, by_hand: str) -> None:  # noqa: F811
    card.wait_until("it has ended", lambda: card.property(READER_UNIT, "ActiveState") == "inactive", READER_UNIT)
    assert card.property(READER_UNIT, "Result") == "success"
    assert told(card, by_hand)["executable"]
    assert card.property(READER_UNIT, "ActiveState") == "active"


def test_a_killed_reader_is_there_at_the_next_call(card: Machine, by_hand: str) -> None:  # noqa: F811
    told(card, by_hand)
    old = card.property(READER_UNIT, "MainPID")
    card.run("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", READER_UNIT)
    card.wait_until("it is gone", lambda: card.property(READER_UNIT, "MainPID") != old, READER_UNIT)
    assert told(card, by_hand)["executable"]
    assert card.property(READER_UNIT, "MainPID") not in ("0", old)


def test_calls_at_the_very_end_are_not_lost(card: Machine, by_hand: str) -> None:  # noqa: F811
    """Each call comes about when the helper has been idle for as long as it waits."""
    for pause in ("2.9", "3.0", "3.05", "3.1"):
        card.run("sleep", pause)
        answer = facts(card, by_hand)
        assert answer.returncode == 0 or "call again" in answer.stderr, answer.stderr


def test_as_it_runs_it_is_as_closed_as_promised(card: Machine, by_hand: str) -> None:  # noqa: F811
    card.run("systemd-analyze", "security", "--no-pager", "--threshold=19", READER_UNIT)
    told(card, by_hand)
    pid = card.property(READER_UNIT, "MainPID")
    status = card.output("cat", f"/proc/{pid}/status").splitlines()
    capabilities = next(line for line in status if line.startswith("CapEff:")).split()[1]
    assert int(capabilities, 16) == 1 << 19 | 1 << 3 | 1 << 2, "SYS_PTRACE, FOWNER, DAC_READ_SEARCH"
    uid = next(line for line in status if line.startswith("Uid:")).split()[1]
    assert uid == card.output("id", "-u", "gpusupervisor-reader")
    interfaces = card.output("cat", f"/proc/{pid}/net/dev").splitlines()[2:]  # as the process sees them
    assert [line.split()[0] for line in interfaces] == ["lo:"]


def test_nothing_of_it_was_logged_as_a_defect(card: Machine) -> None:  # noqa: F811
    assert "Traceback" not in card.journal(READER_UNIT)
