import pytest

from gpusupervisor.gpu.power import DevicePower
from gpusupervisor.gpu.sleep_gate import SleepGate
from tests.gpu.machine import SECOND

AWAKE = DevicePower("0000:01:00.0", "active", "auto")
ASLEEP = DevicePower("0000:01:00.0", "suspended", "auto")
SECOND_AWAKE = DevicePower("0000:02:00.0", "active", "auto")
ALWAYS_ON = DevicePower("0000:02:00.0", "active", "on")


class Driver:
    """Asks the gate at instants given in seconds."""

    def __init__(self) -> None:
        self.gate = SleepGate()

    def at(self, seconds: float, *devices: DevicePower, needed: bool = False, vacant: bool = True) -> bool:
        return self.gate.may_open(int(seconds * SECOND), devices, needed=needed, vacant=vacant)


@pytest.fixture
def gate() -> Driver:
    return Driver()


def closed_at_ten(gate: Driver) -> None:
    assert gate.at(0, AWAKE)
    assert gate.at(9.9, AWAKE)
    assert not gate.at(10, AWAKE)


def test_nvml_is_not_opened_while_every_gpu_sleeps_however_much_it_is_needed(gate: Driver) -> None:
    assert not gate.at(0, ASLEEP, needed=True)
    assert not gate.at(100, ASLEEP, needed=True)


def test_one_gpu_awake_is_enough_to_open(gate: Driver) -> None:
    assert gate.at(0, ASLEEP, SECOND_AWAKE, needed=True)


def test_a_machine_whose_sysfs_shows_no_gpu_is_never_held_back(gate: Driver) -> None:
    assert gate.at(0)
    assert gate.at(1000)


def test_ten_quiet_seconds_close(gate: Driver) -> None:
    closed_at_ten(gate)


def test_need_or_a_process_starts_the_quiet_over(gate: Driver) -> None:
    assert gate.at(0, AWAKE)
    assert gate.at(9, AWAKE, needed=True)
    assert gate.at(10, AWAKE)
    assert gate.at(19, AWAKE, vacant=False)
    assert gate.at(20, AWAKE)
    assert gate.at(29.9, AWAKE)
    assert not gate.at(30, AWAKE)


def test_a_gpu_that_never_sleeps_keeps_nvml_open(gate: Driver) -> None:
    assert all(gate.at(second, AWAKE, ALWAYS_ON) for second in range(0, 100, 5))


def test_need_opens_again_once_it_is_awake(gate: Driver) -> None:
    closed_at_ten(gate)
    assert gate.at(11, AWAKE, needed=True)


def test_a_gpu_that_stays_awake_half_a_minute_is_looked_at(gate: Driver) -> None:
    closed_at_ten(gate)
    assert not gate.at(39.9, AWAKE)
    assert gate.at(40, AWAKE)


def test_a_gpu_that_fell_asleep_and_woke_is_given_half_a_minute_again(gate: Driver) -> None:
    closed_at_ten(gate)
    assert not gate.at(20, ASLEEP)
    assert not gate.at(50, AWAKE)
    assert not gate.at(79.9, AWAKE)
    assert gate.at(80, AWAKE)


def test_closing_that_does_not_let_it_sleep_is_tried_ever_more_rarely(gate: Driver) -> None:
    closed_at_ten(gate)
    assert gate.at(40, AWAKE)
    assert gate.at(41, AWAKE)
    assert gate.at(60.9, AWAKE)
    assert not gate.at(61, AWAKE)
    assert gate.at(91, AWAKE)
    assert gate.at(92, AWAKE)
    assert gate.at(131.9, AWAKE)
    assert not gate.at(132, AWAKE)


def test_once_it_slept_ten_seconds_are_enough_again(gate: Driver) -> None:
    closed_at_ten(gate)
    assert gate.at(40, AWAKE)
    assert not gate.at(41, ASLEEP)
    assert gate.at(42, AWAKE, needed=True)
    assert gate.at(43, AWAKE)
    assert not gate.at(53, AWAKE)
