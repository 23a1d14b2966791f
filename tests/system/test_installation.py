"""Installing and removing on a live system."""

import pytest

from tests.system.conftest import UNIT
from tests.system.machine import Machine, make

PLACES = ("/usr", "/etc", "/var/lib", "/run/systemd")


def files(machine: Machine) -> set[str]:
    """Every file that is ours, wherever software or its configuration lies."""
    found = machine.output("find", *PLACES, "-path", "/usr/src", "-prune", "-o", "-name", "*gpusupervisor*", "-print")
    return set(found.splitlines())


@pytest.mark.parametrize("prefix", ["/usr/local", "/usr"])
def test_uninstall_leaves_nothing_and_install_needs_one_more_command(bare_machine: Machine, prefix: str) -> None:
    before = files(bare_machine)
    made = make(bare_machine, "install", f"PREFIX={prefix}")
    assert made.splitlines()[-1] == "Installed. Next: systemctl enable --now gpusupervisor"
    assert bare_machine.property(UNIT, "ActiveState") == "inactive"  # nothing starts unasked
    bare_machine.run("systemctl", "enable", "--quiet", "--now", "gpusupervisor")
    assert bare_machine.property(UNIT, "ActiveState") == "active"

    made = make(bare_machine, "install", f"PREFIX={prefix}")
    assert made.splitlines()[-1] == "Installed. Next: systemctl restart gpusupervisor"

    make(bare_machine, "uninstall", f"PREFIX={prefix}")
    assert bare_machine.property(UNIT, "LoadState") == "not-found"
    left = files(bare_machine) - before
    assert left - {"/var/lib/gpusupervisor-helper"} == {"/var/lib/gpusupervisor"}, "state stays, of both when both ran"
