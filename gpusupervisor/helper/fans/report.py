"""What a tick of the fan control saw and did, as values."""

from dataclasses import dataclass
from typing import Literal

from gpusupervisor.helper.fans.command import FanVerdict
from gpusupervisor.helper.fans.safety import Cause
from gpusupervisor.helper.values import FanMode, FanReading, Temperatures

FanControlState = Literal[
    "idle",  # all fans are automatic, as wanted
    "controlling",
    "fail-safe",  # all fans are automatic, or at full, although something else is wanted
    "unsupported",
    "unavailable",  # the GPU or the driver cannot be reached
]
Done = Literal["set", "automatic", "full"]


@dataclass(frozen=True, slots=True)
class FanAction:
    """One write to one fan."""

    index: int
    what: Done
    percent: int | None
    """The target read back; None for automatic, or where it cannot be read."""
    error: str = ""
    """Why it failed; empty when it did not."""
    hopeless: bool = False
    """It failed for a reason that will not go away."""


@dataclass(frozen=True, slots=True)
class FanStatus:
    """One fan after a tick."""

    reading: FanReading
    """As it was before the writes of the tick."""
    mode: FanMode
    wanted: int | None
    """Percent that its setting asks for; None: automatic."""
    verdict: FanVerdict


@dataclass(frozen=True, slots=True)
class Alert:
    """Something that a person should know; told once, on the tick on which it comes about."""

    cause: Cause | Literal["unsupported", "unresponsive", "stranded", "recovered"]
    """`stranded`: fans could be set neither to automatic nor to full. `recovered`: they are in our hands again."""
    text: str


@dataclass(frozen=True, slots=True)
class FanReport:
    """The fans of one GPU after a tick."""

    uuid: str
    at: int
    state: FanControlState
    reason: str = ""
    """Why, for all states but `idle` and `controlling`."""
    temperatures: Temperatures | None = None
    fans: tuple[FanStatus, ...] = ()
    done: tuple[FanAction, ...] = ()
    alerts: tuple[Alert, ...] = ()
