"""What one fan was told, and whether it does so. Pure."""

from dataclasses import dataclass, replace
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.helper.values import FanReading

FanVerdict = Literal[
    "ok",
    "settling",  # it is slower than it was told, and not for long yet
    "overridden",  # it is faster: the driver does so when the GPU is hot
    "changed",  # another program, or a reset, has told it something else
    "not-following",  # it stays slower than it was told
]

REASSERT = 30 * MICROSECONDS
"""How often a speed is written that has not changed."""
SETTLE = 20 * MICROSECONDS
"""Fans take seconds to reach a speed."""
TOLERANCE = 10
"""Percent points by which a fan may be off."""


@dataclass(frozen=True, slots=True)
class Command:
    """What a fan was told last."""

    percent: int | None
    """None: automatic."""
    accepted: int | None
    """The target read back; None when it cannot be, or for automatic."""
    written_at: int
    slow_since: int | None = None
    """Since when it has been slower than it was told."""


def is_due(command: Command | None, percent: int | None, verdict: FanVerdict, now: int) -> bool:
    """Whether a fan has to be told."""
    if command is None or command.percent != percent or verdict == "changed":
        return True
    return percent is not None and now - command.written_at >= REASSERT


def told(before: Command | None, percent: int | None, accepted: int | None, now: int) -> Command:
    """The command after it was written."""
    if before is not None and before.percent == percent:
        return replace(before, accepted=accepted, written_at=now)
    return Command(percent, accepted, now)


def watch(command: Command, reading: FanReading, now: int) -> tuple[Command, FanVerdict]:
    """Hold a reading against the command."""
    if command.percent is None:
        return command, "changed" if reading.policy == "manual" else "ok"
    target = command.percent if command.accepted is None else command.accepted
    if reading.policy == "automatic" or (reading.target is not None and reading.target != target):
        return replace(command, slow_since=None), "changed"
    if reading.percent is None or abs(reading.percent - target) <= TOLERANCE:
        return replace(command, slow_since=None), "ok"
    if reading.percent > target:
        return replace(command, slow_since=None), "overridden"
    since = now if command.slow_since is None else command.slow_since
    return replace(command, slow_since=since), "settling" if now - since < SETTLE else "not-following"
