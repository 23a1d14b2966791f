"""The same situation is announced once, whatever flips."""

from dataclasses import replace

from gpusupervisor.arbitration.announcements import OVER_AFTER, RESTLESS, Announcements
from gpusupervisor.arbitration.situation import Blocker, BlockerReason, ReleasePlan
from tests.arbitration.builders import CARD, NOW

SECOND = 1_000_000


def blocked(reason: BlockerReason, now: int = NOW, holder: str = "ollama") -> ReleasePlan:
    blocker = Blocker(holder, reason, 1, "why")
    return ReleasePlan(
        f"plan-{now}-{holder}-{reason}", "starved", CARD, "comfyui", 1, (), (blocker,), False, 0, "x", now
    )


def announced(book: Announcements, plan: ReleasePlan) -> bool:
    if book.known(plan, must_be_told=False):
        return False
    book.told(plan)
    return True


def test_a_reason_that_flips_for_a_minute_is_announced_once_each_way() -> None:
    book = Announcements()
    reasons: tuple[BlockerReason, BlockerReason] = ("busy", "cooldown")
    told = [announced(book, blocked(reasons[at % 2], NOW + 3 * at * SECOND)) for at in range(20)]
    assert told == [True, True, *[False] * 18]


def test_however_much_flips_only_so_many_are_announced() -> None:
    book = Announcements()
    told = [announced(book, blocked("busy", NOW + at * SECOND, f"holder-{at}")) for at in range(30)]
    assert sum(told) == RESTLESS


def test_what_is_carried_out_is_always_announced() -> None:
    book = Announcements()
    for at in range(30):
        announced(book, blocked("busy", NOW + at * SECOND, f"holder-{at}"))
    plan = replace(blocked("busy"), id="plan-x", blockers=(), sufficient=True)
    assert not book.known(plan, must_be_told=True)
    book.told(plan)
    assert book.known(plan, must_be_told=True) == "plan-x"
    book.started(plan)
    assert not book.known(plan, must_be_told=True), "the next one is another plan"


def test_after_a_while_without_want_it_is_another_situation() -> None:
    book = Announcements()
    assert announced(book, blocked("busy"))
    book.forget_before(NOW + OVER_AFTER)
    assert announced(book, blocked("busy", NOW + OVER_AFTER))
