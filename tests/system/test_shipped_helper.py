"""The helper as shipped, on a machine without a driver."""

from tests.system.conftest import BUS_NAME, HELPER_UNIT, ROOT, UNIT, stop_helper
from tests.system.machine import Machine

NAME = f"{BUS_NAME}.Helper"
FACTS = ("busctl", "call", NAME, f"{ROOT}/Helper", NAME, "Facts", "a(ut)", "1", "1", "1")


def test_it_comes_when_it_is_called_and_says_that_there_is_no_driver(machine: Machine) -> None:
    machine.run("systemctl", "stop", UNIT)
    stop_helper(machine)
    answer = machine.run(*FACTS, check=False)
    assert "Who holds VRAM cannot be read" in answer.stderr
    assert machine.property(HELPER_UNIT, "ActiveState") == "active"
    assert machine.property(HELPER_UNIT, "StatusText") == "nothing is controlled"
    stop_helper(machine)
    assert machine.property(HELPER_UNIT, "Result") == "success"
    assert "Traceback" not in machine.journal(HELPER_UNIT)
