"""An administrator without a desktop, as over ssh: the command line asks for the password on its own terminal."""

import os
import pty
import select
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.system.conftest import BUS_NAME, ROOT, UNIT
from tests.system.machine import Machine

ADMINISTRATOR = "carol"
PASSWORD = "correct horse"
AUTOMATIC = ("busctl", "get-property", BUS_NAME, ROOT, f"{BUS_NAME}.Manager", "Automatic")
PATH = "/usr/local/bin:/usr/bin:/bin"
DEADLINE = 60.0
AGAIN = 5.0


@pytest.fixture(scope="module")
def account(machine: Machine) -> None:
    machine.run("useradd", "--create-home", "--groups", "sudo", ADMINISTRATOR)
    machine.run("chpasswd", stdin=f"{ADMINISTRATOR}:{PASSWORD}\n")


@pytest.fixture
def administrator(service: Machine, account: None) -> Iterator[Machine]:
    """The machine, with an administrator who is not root, acting by itself."""
    yield service
    service.run("busctl", "call", BUS_NAME, ROOT, f"{BUS_NAME}.Manager", "SetAutomatic", "b", "true")


def on_a_terminal(machine: Machine, typed: str, *command: str) -> tuple[int, str]:
    """Run a command as the administrator on a terminal, answer its password prompt; exit status and what it wrote."""
    login = ["systemd-run", "--quiet", "--pty", "--wait", "--collect", f"--uid={ADMINISTRATOR}"]
    login += ["--property=PAMName=login", "--property=Environment=XDG_SESSION_CLASS=user XDG_SESSION_TYPE=tty"]
    enter = ["nsenter", f"--target={machine.leader}", "--all", *login]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *enter, *command], stdin=slave, stdout=slave, stderr=slave,
        env={"PATH": PATH, "LANG": "C.UTF-8", "TERM": "dumb"},
    )  # fmt: skip
    os.close(slave)
    written, answer_at, deadline = "", 0.0, time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                written += os.read(master, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                break
        # Typed again for as long as it is not taken: what comes before the agent turns the echo off, it throws away.
        is_asked = "Password:" in written and "= AUTHENTICATION " not in written
        if is_asked and time.monotonic() >= answer_at:
            os.write(master, f"{typed}\n".encode())
            answer_at = time.monotonic() + AGAIN
    os.close(master)
    return process.wait(timeout=10), written


def test_the_password_is_asked_for_on_the_terminal(administrator: Machine) -> None:
    status, written = on_a_terminal(administrator, PASSWORD, "gpusupervisorctl", "automatic", "off")
    assert "Password:" in written
    assert status == 0, written
    administrator.wait_until("it only observes", lambda: administrator.output(*AUTOMATIC) == "b false", UNIT)


def test_a_wrong_password_changes_nothing_and_names_sudo(administrator: Machine) -> None:
    status, written = on_a_terminal(administrator, "wrong", "gpusupervisorctl", "automatic", "off")
    assert status == 4, written
    assert administrator.output(*AUTOMATIC) == "b true"


def test_without_the_agent_the_same_command_with_sudo_is_printed(administrator: Machine) -> None:
    hide = ("env", "PATH=/usr/local/bin", "gpusupervisorctl", "automatic", "off")
    status, written = on_a_terminal(administrator, "", *hide)
    assert status == 4, written
    assert "sudo gpusupervisorctl automatic off" in written
