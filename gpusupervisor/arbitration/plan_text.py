"""What a plan says to a person. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusupervisor.arbitration.assess import arithmetic
from gpusupervisor.arbitration.situation import Blocker, PlanStep, Situation, TenantSituation
from gpusupervisor.quantities import format_bytes

NAMED = 5
"""Blockers named in a summary; the plan itself has all of them."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What a plan has come to."""

    shortfall: int
    steps: Sequence[PlanStep]
    blockers: Sequence[Blocker]
    reclaimable: int
    sufficient: bool
    fits: bool


def summary_of(
    situation: Situation, beneficiary: TenantSituation | None, need: int, cards: Sequence[str], found: Findings
) -> str:
    """One or two sentences: what will be done, or what is in the way."""
    whom = f"for {beneficiary.id} " if beneficiary else ""
    where = " and ".join(situation.gpus[gpu].name for gpu in cards)
    if not found.fits:
        most = format_bytes(sum(situation.most(gpu) for gpu in cards))
        verb = "offers" if len(cards) == 1 else "offer"
        pronoun = "it" if len(cards) == 1 else "they"
        return f"{format_bytes(need)} {whom}can never fit on {where}: {pronoun} {verb} {most} at most. Nothing is done."
    if found.sufficient and not found.steps:
        return f"Nothing needs to be released: there is room {whom}already.".replace("  ", " ")
    asked = ", ".join(f"{step.tenant} ({size_text(step.expected)})" for step in found.steps)
    sums = f"({format_bytes(need)} needed; {arithmetic(situation, beneficiary, cards)})"
    missing = f"{format_bytes(found.shortfall)} are missing {whom}on {where} {sums}"
    if found.sufficient:
        return f"{missing}: ask {asked}."
    names = f" {in_the_way(found.blockers)}."
    start = f"{missing}, and {releasable(found.reclaimable)}."
    return (
        f"{start} Ask {asked} all the same: less helps.{names}" if found.steps else f"{start} Nothing is done.{names}"
    )


def size_text(size: int | None) -> str:
    """A size, or that it is unknown."""
    return "size unknown" if size is None else format_bytes(size)


def releasable(size: int) -> str:
    """How much the tenants that may be asked could release, in words."""
    return f"only {format_bytes(size)} can be released" if size else "nothing can be released"


def in_the_way(blockers: Sequence[Blocker]) -> str:
    """The largest blockers by name, size and reason."""
    named = ", ".join(f"{b.holder} ({size_text(b.held)}, {_why(b)})" for b in blockers[:NAMED])
    return f"In the way: {named}" if named else "It is unknown who holds the rest"


def _why(blocker: Blocker) -> str:
    """The reason in a word; of one that ends by itself also the cause, and the time left."""
    return f"{blocker.reason}: {blocker.detail}" if blocker.until else blocker.reason
