"""What is remembered of a profile, and whether it may be applied again without being asked. Pure."""

from dataclasses import dataclass, field, replace
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.helper.profile.items import overlay
from gpusupervisor.helper.values import ItemResult, Profile

PROBATION = 120 * MICROSECONDS
"""For how long after applying a crash or an Xid is laid to the profile."""

Phase = Literal["applying", "probation", "settled"]


@dataclass(frozen=True, slots=True)
class Record:
    """The profile of one GPU as stored."""

    requested: Profile
    accepted: Profile = field(default_factory=Profile)
    """As read back right after applying: what drift is measured against."""
    unreadable: Profile = field(default_factory=Profile)
    """What was set since the driver started and cannot be read back, of earlier profiles too."""
    results: tuple[ItemResult, ...] = ()
    boot_id: str = ""
    """Of the boot in which it was applied last."""
    applied_at: int = 0
    """Realtime microseconds (Unix epoch)."""
    phase: Phase = "applying"
    """applying: being set. probation: it was set only just now."""
    stopped: bool = False
    """The helper was stopped in an orderly way since then, so an end of the machine was no crash."""
    distrust: str = ""
    """Why it is not applied by itself any more, nor repaired; empty when it is."""

    @property
    def in_force(self) -> Profile:
        """What was set on the card: what it refused never was. All that was asked for, while it is being applied."""
        known = self.requested if self.phase == "applying" else self.accepted
        return overlay(known, self.unreadable)


def reason_not_to_apply(record: Record, boot_id: str) -> str:
    """Why the profile must not be applied at start; empty when it may be."""
    if record.distrust:
        return record.distrust
    machine = record.boot_id != boot_id
    who = "the machine went down" if machine else "the helper ended"
    if record.phase == "applying":
        return f"{who} while the profile was being applied"
    if record.stopped:
        return ""
    if record.phase == "probation":
        return f"{who} shortly after the profile was applied"
    return "the machine was not shut down in an orderly way while the profile was in force" if machine else ""


def after_xid(record: Record, code: int) -> Record:
    """An Xid came; within the probation it is laid to the profile."""
    if record.phase == "settled" or record.distrust:
        return record
    return replace(record, distrust=f"the GPU reported Xid {code} shortly after the profile was applied")
