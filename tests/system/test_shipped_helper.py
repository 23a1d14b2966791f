"""The privileged services as shipped, on a machine without a driver."""

import pytest

from tests.system.conftest import BUS_NAME, HELPER_UNIT, READER_UNIT, ROOT, UNIT, stop_helper, stop_reader
from tests.system.machine import Machine

STATE = ("busctl", "call", f"{BUS_NAME}.Helper", f"{ROOT}/Helper", f"{BUS_NAME}.Helper", "State")
FACTS = (
    "busctl",
    "call",
    f"{BUS_NAME}.Reader",
    f"{ROOT}/Reader",
    f"{BUS_NAME}.Reader",
    "Facts",
    "a(ut)",
    "1",
    "1",
    "1",
)


def test_the_helper_comes_when_it_is_called_and_says_that_there_is_no_driver(machine: Machine) -> None:
    machine.run("systemctl", "stop", UNIT)
    stop_helper(machine)
    answer = machine.run(*STATE, check=False)
    assert "cannot be listed" in answer.stderr
    assert machine.property(HELPER_UNIT, "ActiveState") == "active"
    assert machine.property(HELPER_UNIT, "StatusText") == "nothing is controlled"
    stop_helper(machine)
    assert machine.property(HELPER_UNIT, "Result") == "success"
    assert "Traceback" not in machine.journal(HELPER_UNIT)


def test_the_reader_needs_no_driver(machine: Machine) -> None:
    machine.run("systemctl", "stop", UNIT)
    stop_reader(machine)
    assert "is gone" in machine.output(*FACTS)
    assert machine.property(READER_UNIT, "ActiveState") == "active"
    stop_reader(machine)
    assert machine.property(READER_UNIT, "Result") == "success"
    assert "Traceback" not in machine.journal(READER_UNIT)


@pytest.mark.parametrize("unit", [UNIT, HELPER_UNIT, READER_UNIT])
def test_every_unit_is_as_closed_as_promised(machine: Machine, unit: str) -> None:
    threshold = "15" if unit == UNIT else "19"
    machine.run("systemd-analyze", "security", "--no-pager", f"--threshold={threshold}", unit)
