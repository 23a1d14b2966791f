"""Verification: what a release really brought, as NVML measured it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.arbitration.eligibility import WORTHWHILE

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
    shared: bool = False
    """It is the host's memory: what is free moves with every program, so it is no witness."""


def credited(before: Measurement, after: Measurement) -> int:
    """Bytes that came back between two measurements of one GPU.

    Two witnesses must agree: the tenant holds less, and the device has more free, where what others took meanwhile
    counts as come back too. A process that vanished from the list while its memory is still in use brought nothing.
    Where the tenant's holding has no known size, the device alone is the witness. Of memory that is shared with the
    host the tenant's own fall is the only one.
    """
    if after.shared and before.holding is not None and after.holding is not None:
        return max(0, before.holding - after.holding)
    taken = sum(max(0, size - before.others.get(name, 0)) for name, size in after.others.items())
    device = max(0, after.free - before.free + taken)
    if before.holding is None or after.holding is None:
        return device
    return min(max(0, before.holding - after.holding), device)


Progress = Literal["complete", "some", "nothing"]


def progress(freed: int, expected: int) -> Progress:
    """How far a release has come."""
    if freed >= expected * COMPLETE:
        return "complete"
    return "some" if freed >= min(WORTHWHILE, expected // 2) else "nothing"
