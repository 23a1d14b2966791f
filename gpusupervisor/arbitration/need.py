"""What a tenant needs: an interval with its source, from the evidence of one moment. Pure."""

from dataclasses import dataclass
from typing import Literal

from gpusupervisor.arbitration.pressure import Pressure
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.tenants.activity.verdict import Placement

NeedSource = Literal["needs-vram", "placed", "spilled", "learned", "pressed", "out-of-memory"]
CROWDED = 1 << 30
"""Bytes per card. With more than this, and more than half of what spilled, left free, a model did not spill for lack
of memory: its engine was configured to, or counts a mapped file twice."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes that a tenant needs in total, what it holds included, on the set of cards that it uses."""

    low: int
    """At least; room is made for this much."""
    high: int | None
    """At most; None when that is not known."""
    source: NeedSource
    is_open: bool = False
    """It is seen to lack memory, and how much beyond `low` is not known: room is made step by step."""

    @property
    def figure(self) -> int:
        """The one number for requests that name none: the upper bound where it is known."""
        return self.low if self.high is None else self.high


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that a need is derived from. Bytes, over the tenant's set of cards."""

    held: int
    available: int
    """Free, less the reserve and what is kept for others; may be negative."""
    most: int
    """What the cards could offer with nobody else on them; 0 when no card can be read."""
    cards: int = 1
    written: int | None = None
    """needs-vram of its file."""
    placement: Placement | None = None
    offered: int = 0
    """The most that was available since the placement is as it is: what was free and not taken is not lacking."""
    pressure: Pressure | None = None
    peak: int | None = None
    """The most that it held in sessions that were not pressed."""
    usual: int | None = None
    """The least that it took in each of several sessions that left plenty of room."""


def need_of(evidence: Evidence) -> Need | None:
    """The need, from the strongest evidence there is; None when nothing is known."""
    found = _written(evidence) or _by_placement(evidence)
    under = evidence.pressure
    if under is not None and under.kind == "out-of-memory":
        return _more_than(max(under.held, found.low if found else 0), evidence, "out-of-memory")
    is_placed = evidence.placement is not None and not evidence.placement.spilled
    if under is not None and not is_placed and (found is None or evidence.held + WORTHWHILE > found.low):
        return _more_than(evidence.held, evidence, "pressed")
    return found or _learned(evidence)


def _written(evidence: Evidence) -> Need | None:
    if evidence.written is None:
        return None
    size = _capped(evidence.written, evidence)
    return Need(size, size, "needs-vram")


def _by_placement(evidence: Evidence) -> Need | None:
    placement = evidence.placement
    if placement is None:
        return None
    lacking = max(0, placement.spilled - max(0, evidence.offered))
    crowded = evidence.available < max(placement.spilled // 2, CROWDED * evidence.cards)
    if not placement.spilled or lacking < WORTHWHILE or not crowded:
        return Need(evidence.held, evidence.held, "placed")
    size = max(evidence.held, _capped(evidence.held + lacking, evidence))
    return Need(size, size, "spilled")


def _more_than(held: int, evidence: Evidence, source: NeedSource) -> Need:
    low = held + WORTHWHILE
    high = _capped(evidence.peak, evidence) if evidence.peak is not None else None
    return Need(low, high if high is not None and high > low else None, source, is_open=True)


def _learned(evidence: Evidence) -> Need | None:
    if evidence.peak is None:
        return None
    high = _capped(evidence.peak, evidence)
    return Need(min(evidence.usual or 0, high), high, "learned")


def _capped(size: int, evidence: Evidence) -> int:
    """Nobody needs more than could ever be given."""
    return min(size, evidence.most) if evidence.most > 0 else size
