"""One booted machine for all system tests, with the service installed by the Makefile and running."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.machine import REPOSITORY, Machine, booted, make, why_not

UNIT = "gpusupervisor.service"
HELPER_UNIT = "gpusupervisor-helper.service"
READER_UNIT = "gpusupervisor-reader.service"
BUS_NAME = "org.gpusupervisor1"
ROOT = "/org/gpusupervisor1"
USER = "alice"
"""An ordinary user of the machine."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them where no machine can be booted."""
    reason = why_not()
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.system)
            item.add_marker(pytest.mark.timeout(300))  # the first one builds the wheels
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def wheels() -> None:
    """Everything that `make install` needs without a network."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    made = subprocess.run(["make", "-C", REPOSITORY, "wheels"], env=environment, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


@pytest.fixture
def bare_machine(wheels: None, tmp_path: Path) -> Iterator[Machine]:
    """A machine of the test's own, without the service."""
    with booted(tmp_path) as machine:
        _forget_the_hosts_own(machine)
        yield machine


@pytest.fixture(scope="session")
def machine(wheels: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """The machine of all tests, with a user and what logins need."""
    with booted(tmp_path_factory.mktemp("machine")) as machine:
        _forget_the_hosts_own(machine)
        machine.run("useradd", "--create-home", USER)
        machine.run("systemctl", "start", "systemd-user-sessions", "systemd-logind", "polkit")
        make(machine, "install")
        yield machine


@pytest.fixture
def service(machine: Machine) -> Machine:
    """The machine with the installed service as shipped, started anew unless it already runs well."""
    machine.run("systemctl", "reset-failed", UNIT, check=False)
    machine.run("systemctl", "enable", "--quiet", "--now", UNIT)
    listed = ("busctl", "call", BUS_NAME, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants", "List")
    machine.wait_until("the first look is published", lambda: '"ollama"' in machine.output(*listed), UNIT)
    return machine


def stop_helper(machine: Machine) -> None:
    """Stop the helper, never while the bus is just starting it: the bus is not told, and waits for 25 seconds."""
    machine.run("busctl", "call", f"{BUS_NAME}.Helper", f"{ROOT}/Helper", "org.freedesktop.DBus.Peer", "Ping")
    machine.run("systemctl", "stop", HELPER_UNIT)


def stop_reader(machine: Machine) -> None:
    """Stop the reader, likewise."""
    machine.run("busctl", "call", f"{BUS_NAME}.Reader", f"{ROOT}/Reader", "org.freedesktop.DBus.Peer", "Ping")
    machine.run("systemctl", "stop", READER_UNIT)


def _forget_the_hosts_own(machine: Machine) -> None:
    """Remove, in the overlay, what a service installed on this very machine left there."""
    make(machine, "uninstall")
    make(machine, "uninstall", "PREFIX=/usr")
    machine.run("rm", "-rf", "/etc/gpusupervisor", "/run/gpusupervisor")
    machine.run("rm", "-rf", "/var/lib/gpusupervisor", "/var/lib/gpusupervisor-helper")
