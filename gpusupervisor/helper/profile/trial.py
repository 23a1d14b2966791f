"""Try a profile, then confirm it, or it is taken back: a state machine with the time as a value, and no I/O.

The running trial is a value that is stored before anything is set, so a helper that dies during it takes it back when
it starts again.
"""

from dataclasses import dataclass
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.errors import InvalidArgument
from gpusupervisor.helper.profile.apply import Before
from gpusupervisor.helper.values import Profile
from gpusupervisor.quantities import format_duration

SHORTEST = 5 * MICROSECONDS
LONGEST = 600 * MICROSECONDS
"""Of the time within which a trial must be confirmed."""

End = Literal["confirmed", "reverted", "timed-out", "fault", "abandoned", "restarted", "rebooted"]


@dataclass(frozen=True, slots=True)
class Trial:
    """A profile on trial. Microseconds of the domain clock, which counts from the boot."""

    profile: Profile
    before: Before
    started: int
    deadline: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """How a trial ended."""

    end: End
    restore: bool
    """The state before must be set again."""
    reason: str


def check_time(within: int) -> None:
    """Raises InvalidArgument for a time to confirm that is too short to look or too long to wait."""
    if not SHORTEST <= within <= LONGEST:
        span = f"{format_duration(SHORTEST)} to {format_duration(LONGEST)}"
        raise InvalidArgument(f"The time to confirm is {format_duration(min(within, 1 << 62))}; allowed: {span}")


def confirm(running: Trial | None, now: int) -> Ended:
    """The person is content; too late is a time-out. Raises InvalidArgument when nothing is on trial."""
    trial = _needed(running)
    return tick(trial, now) or Ended("confirmed", False, "confirmed in time")


def revert(running: Trial | None) -> Ended:
    """The person wants the state before. Raises InvalidArgument when nothing is on trial."""
    _needed(running)
    return Ended("reverted", True, "taken back as asked")


def tick(running: Trial | None, now: int) -> Ended | None:
    """The time has come on; ends a trial that nobody confirmed."""
    if running is None or now < running.deadline:
        return None
    return Ended("timed-out", True, "not confirmed in time, so the state before was set again")


def abandoned() -> Ended:
    """Whoever set a point of a sweep is gone."""
    return Ended("abandoned", True, "the sweep ended without taking its point back, so the state before was set again")


def fault(running: Trial | None, what: str) -> Ended | None:
    """Something went wrong on the GPU."""
    if running is None:
        return None
    return Ended("fault", True, f"{what} during the trial, so the state before was set again")


def restarted(stored: Trial | None, boot_id: str) -> Ended | None:
    """The helper starts and finds this trial stored: nobody could have confirmed it meanwhile."""
    if stored is None:
        return None
    if stored.boot_id != boot_id:
        reason = "the machine restarted during the trial, which took it back; the profile on trial was dropped"
        return Ended("rebooted", False, reason)
    return Ended("restarted", True, "the helper ended during the trial, so the state before was set again")


def _needed(running: Trial | None) -> Trial:
    if running is None:
        raise InvalidArgument("No profile is on trial: try one first")
    return running
