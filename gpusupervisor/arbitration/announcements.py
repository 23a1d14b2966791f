"""Which plans have been announced, so that the same situation is told once whatever flips. Pure but for remembering."""

from dataclasses import dataclass, field

from gpusupervisor.arbitration.situation import ReleasePlan
from gpusupervisor.clock import MICROSECONDS

TOLD_FOR = 600 * MICROSECONDS
"""A plan that says the same as one of so lately is not announced again."""
OVER_AFTER = 60 * MICROSECONDS
"""A beneficiary for which nothing was planned for so long is in another situation when it is starved again."""
RESTLESS = 4
"""So many different plans of a beneficiary within `TOLD_FOR` that nothing came of; more are not announced."""


@dataclass(slots=True)
class _Told:
    """Of one beneficiary."""

    last: str = ""
    """Id of the plan that was announced last."""
    made_at: int = 0
    """When it was last planned for it."""
    ids: dict[object, tuple[str, int]] = field(default_factory=dict)
    """By the gist of a plan: its id, and when it was announced."""


class Announcements:
    """Of every beneficiary of late."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def known(self, plan: ReleasePlan, *, must_be_told: bool) -> str:
        """Return the id under which a plan has been announced; empty when it has to be announced now.

        must_be_told: it will be carried out, and is announced before that, however restless its beneficiary is.
        """
        told = self._told.setdefault(plan.beneficiary, _Told())
        told.made_at = plan.made_at
        told.ids = {gist: (id_, at) for gist, (id_, at) in told.ids.items() if plan.made_at - at < TOLD_FOR}
        found = told.ids.get(_gist(plan))
        if found is not None:
            return found[0]
        return "" if must_be_told or len(told.ids) < RESTLESS else told.last

    def told(self, plan: ReleasePlan) -> None:
        """A plan has been announced."""
        told = self._told.setdefault(plan.beneficiary, _Told())
        told.last = plan.id
        told.ids[_gist(plan)] = (plan.id, plan.made_at)

    def started(self, plan: ReleasePlan) -> None:
        """A plan is carried out: the next one is another, announced anew even when it says the same."""
        self._told[plan.beneficiary].ids.pop(_gist(plan), None)

    def forget_before(self, now: int) -> None:
        """Forget the beneficiaries that have been content for long enough."""
        self._told = {who: told for who, told in self._told.items() if now - told.made_at < OVER_AFTER}


def _gist(plan: ReleasePlan) -> object:
    """What makes a plan another plan: whom it asks and what is in the way, not each byte."""
    return (
        plan.cards,
        plan.sufficient,
        plan.fits,
        tuple(step.tenant for step in plan.steps),
        frozenset((blocker.holder, blocker.reason) for blocker in plan.blockers),
    )
