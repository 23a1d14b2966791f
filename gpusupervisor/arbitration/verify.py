"""Verification: what a release really brought, as NVML measured it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.processes.identity import ProcessKey

COMPLETE = 0.9
"""Share of what was expected at which a release counts as done; the rest is credited when it comes."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One GPU at one moment, as far as one tenant's release goes. All in bytes."""

    holding: int | None
    """What the tenant holds; None when the driver does not say for some of its processes."""
    free: int
    others: Mapping[str, int]
    """What everybody else holds, by name: their growth must not hide what came back."""
    anchors: frozenset[ProcessKey] = frozenset()
    """The processes that can be asked: its servers, or its holders where no server is known."""
    is_unified: bool = False
    """The GPU shares the machine's memory: what is free there changes for other reasons too."""


def credited(before: Measurement, after: Measurement) -> int:
    """Return the bytes freed between two measurements of one GPU.

    This is the smaller of the tenant's decrease and the device's increase in free memory, corrected for growth of
    others. If the tenant's holding is unknown, only the device counts; on unified memory only the tenant does.
    """
    taken = sum(max(0, size - before.others.get(name, 0)) for name, size in after.others.items())
    device = max(0, after.free - before.free + taken)
    if before.holding is None or after.holding is None:
        return device
    fallen = max(0, before.holding - after.holding)
    return fallen if after.is_unified else min(fallen, device)


def are_replaced(before: Mapping[str, Measurement], after: Mapping[str, Measurement]) -> bool:
    """Whether other processes of the tenant are there in the place of those that were asked."""
    asked, there = _anchors(before), _anchors(after)
    return bool(asked and there) and not asked & there


def have_ended(before: Mapping[str, Measurement], after: Mapping[str, Measurement]) -> bool:
    """Whether none of the processes that were asked is there any more; False where they were not known."""
    asked = _anchors(before)
    return bool(asked) and not asked & _anchors(after)


def _anchors(measured: Mapping[str, Measurement]) -> frozenset[ProcessKey]:
    return frozenset[ProcessKey]().union(*(each.anchors for each in measured.values()))


Progress = Literal["complete", "some", "nothing"]


def progress(freed: int, expected: int | None) -> Progress:
    """How far a release has come. expected: None where it is not known how much there is."""
    if expected is None:
        return "some" if freed >= WORTHWHILE else "nothing"
    if freed >= expected * COMPLETE:
        return "complete"
    return "some" if freed >= min(WORTHWHILE, expected // 2) else "nothing"
