"""The trial as a state machine, and what may be applied again."""

from dataclasses import replace

import pytest

from gpusupervisor.errors import InvalidArgument
from gpusupervisor.helper.profile import trial
from gpusupervisor.helper.profile.apply import Before
from gpusupervisor.helper.profile.record import Record, after_xid, reason_not_to_apply
from gpusupervisor.helper.values import Profile
from tests.helper.profile.station import BOOT, NEXT_BOOT

RUNNING = trial.Trial(Profile(300_000), Before(Profile(450_000)), 100, 20_000_100, BOOT)
RECORD = Record(Profile(300_000), boot_id=BOOT, phase="settled")


def test_confirmed_in_time_it_stays() -> None:
    assert trial.confirm(RUNNING, RUNNING.deadline - 1) == trial.Ended("confirmed", False, "confirmed in time")


def test_confirmed_too_late_it_is_taken_back() -> None:
    ended = trial.confirm(RUNNING, RUNNING.deadline)
    assert (ended.end, ended.restore) == ("timed-out", True)


def test_nobody_confirms() -> None:
    assert trial.tick(RUNNING, RUNNING.deadline - 1) is None
    ended = trial.tick(RUNNING, RUNNING.deadline)
    assert ended is not None
    assert ended.restore
    assert trial.tick(None, RUNNING.deadline) is None


def test_reverted_as_asked() -> None:
    assert trial.revert(RUNNING).restore


def test_there_must_be_a_trial() -> None:
    with pytest.raises(InvalidArgument):
        trial.confirm(None, 0)
    with pytest.raises(InvalidArgument):
        trial.revert(None)


@pytest.mark.parametrize("within", [0, 4_999_999, 600_000_001, 2**64 - 1])
def test_the_time_to_confirm_is_bounded(within: int) -> None:
    with pytest.raises(InvalidArgument, match="5s to 10min"):
        trial.check_time(within)


def test_a_fault_takes_it_back() -> None:
    assert trial.fault(None, "Xid 62") is None
    ended = trial.fault(RUNNING, "the GPU reported Xid 62")
    assert ended is not None
    assert ended.restore
    assert "Xid 62" in ended.reason


def test_a_trial_that_outlived_its_helper_is_taken_back() -> None:
    ended = trial.restarted(RUNNING, BOOT)
    assert ended is not None
    assert (ended.end, ended.restore) == ("restarted", True)
    assert trial.restarted(None, BOOT) is None


def test_a_reboot_took_it_back_already() -> None:
    ended = trial.restarted(RUNNING, NEXT_BOOT)
    assert ended is not None
    assert (ended.end, ended.restore) == ("rebooted", False)


@pytest.mark.parametrize(
    ("record", "boot", "part"),
    [
        (RECORD, BOOT, ""),
        (replace(RECORD, stopped=True), NEXT_BOOT, ""),
        (replace(RECORD, stopped=True, phase="probation"), NEXT_BOOT, ""),
        (RECORD, NEXT_BOOT, "not shut down in an orderly way"),
        (replace(RECORD, phase="probation"), NEXT_BOOT, "the machine went down shortly after"),
        (replace(RECORD, phase="probation"), BOOT, "the helper ended shortly after"),
        (replace(RECORD, phase="applying"), BOOT, "the helper ended while"),
        (replace(RECORD, phase="applying", stopped=True), NEXT_BOOT, "the machine went down while"),
        (replace(RECORD, stopped=True, distrust="Xid"), BOOT, "Xid"),
    ],
)
def test_what_may_have_brought_the_machine_down_is_not_applied_again(record: Record, boot: str, part: str) -> None:
    reason = reason_not_to_apply(record, boot)
    assert part in reason
    assert bool(reason) is bool(part)


def test_an_xid_counts_only_shortly_after_applying() -> None:
    assert after_xid(RECORD, 62) == RECORD
    marked = after_xid(replace(RECORD, phase="probation"), 62)
    assert "Xid 62" in marked.distrust
    assert after_xid(marked, 13) == marked
