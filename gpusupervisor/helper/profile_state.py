"""What can be shown of a GPU's profile, and what is told when it happens."""

from dataclasses import dataclass

from gpusupervisor.helper.drift.keeper import DriftEvent
from gpusupervisor.helper.drift.verdict import Verdict
from gpusupervisor.helper.profile.record import Record
from gpusupervisor.helper.profile.trial import Ended, Trial
from gpusupervisor.helper.values import ItemResult


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """A trial is over, and what became of the state before."""

    ended: Ended
    results: tuple[ItemResult, ...]


ProfileEvent = DriftEvent | TrialEnded


@dataclass(frozen=True, slots=True)
class ProfileState:
    """What can be shown."""

    record: Record | None
    """The stored profile; its `distrust` says why it is not applied by itself."""
    trial: Trial | None
    trial_results: tuple[ItemResult, ...]
    last_trial: Ended | None
    verdicts: tuple[Verdict, ...]
    frozen: bool
    problem: str
    """Why something that should have happened by itself did not; empty when nothing is wrong."""
