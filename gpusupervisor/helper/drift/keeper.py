"""When to look for drift and what to do about it: a state machine with the time as a value, and no I/O.

It looks on a timer and after what makes drivers forget. It asks for a repair only of what was just read as drifted.
What has fallen back to the card's default was reset by the driver, and is set again for as long as that happens.
Anything else was set by somebody: before each further repair it waits longer, and it stops when an item was repaired
too often, because fighting helps nobody.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.helper.drift.verdict import Cause, Kind, Verdict, contested
from gpusupervisor.helper.values import ItemResult

Trigger = Literal["resume", "waking", "driver", "xid", "persistence"]
"""waking: the GPU slept by itself, and is in use again."""

INTERVAL = 60 * MICROSECONDS
SETTLE: Mapping[Trigger, int] = {
    "resume": 3 * MICROSECONDS,
    "waking": 2 * MICROSECONDS,
    "driver": 2 * MICROSECONDS,
    "xid": 2 * MICROSECONDS,
    "persistence": 0,
}
"""How long after a trigger the driver is left alone: right after resuming it answers what is not true yet."""
FORGETFUL: frozenset[Trigger] = frozenset({"resume", "waking", "driver", "persistence"})
"""Triggers after which what cannot be read is set once more: the driver may have forgotten it."""
RESET: Cause = "reset-to-default"
WINDOW = 600 * MICROSECONDS
MOST_REPAIRS = 3
"""Of one item within the window."""
CONFIRM = 5 * MICROSECONDS
"""After a repair, until it is looked whether it lasts."""
BACK_OFF = (20 * MICROSECONDS, 60 * MICROSECONDS)
"""After the first and the second repair of an item within the window, before the next."""
RESET_PAUSE = 60 * MICROSECONDS
"""Between two repairs of what the driver resets, unless something happens in between that explains it."""


@dataclass(frozen=True, slots=True)
class DriftDetected:
    """An item was found to have drifted; told once, until that is over."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class DriftRepaired:
    """An item was set again."""

    result: ItemResult


@dataclass(frozen=True, slots=True)
class DriftContested:
    """An item is not repaired any more, until a profile is applied anew."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class DriftEnded:
    """Drift that was told is over without a repair."""

    item: str
    cause: Literal["restored", "replaced"]
    """restored: it reads as accepted again. replaced: a profile was applied or reset, so it is not judged any more."""


OVER = {
    "restored": "it is as it was set again, though it was not set again from here",
    "replaced": "a profile was applied or reset since",
}
"""Causes of the end, in words."""

DriftEvent = DriftDetected | DriftRepaired | DriftContested | DriftEnded


@dataclass(frozen=True, slots=True)
class Decision:
    """What a check came to."""

    verdicts: tuple[Verdict, ...]
    repair: tuple[str, ...]
    """Items to set again, each read as drifted."""
    renew: tuple[str, ...]
    """Items that cannot be read, to be set once more because the driver may have forgotten them."""
    events: tuple[DriftEvent, ...]


class DriftKeeper:
    """Of one GPU. Times are microseconds of the domain clock."""

    def __init__(self, now: int) -> None:
        self._next = now + INTERVAL
        self._not_before = now
        self._frozen = False
        self._forgetful = False
        self._repairs: dict[str, list[int]] = {}
        """Of what somebody else had changed."""
        self._resets: dict[str, int] = {}
        """By item: when it was last set again after a reset."""
        self._contested: set[str] = set()
        self._told: dict[str, Kind] = {}
        """By item: the drift that was told and is not over."""

    @property
    def frozen(self) -> bool:
        """The machine is going to sleep: nothing is read or set."""
        return self._frozen

    def next_check(self) -> int | None:
        """When to look next; None while frozen."""
        return None if self._frozen else self._next

    def due(self, now: int) -> bool:
        """Is it time to look?"""
        return not self._frozen and now >= self._next

    def trigger(self, trigger: Trigger, now: int) -> None:
        """Something happened that makes drivers forget: look once it has settled."""
        settled = now + SETTLE[trigger]
        if trigger in FORGETFUL:
            self._forgetful = True
            self._resets.clear()
            self._not_before = max(self._not_before, settled)
        self._next = max(self._not_before, min(self._next, settled))

    def freeze(self) -> None:
        """The machine goes to sleep."""
        self._frozen = True

    def thaw(self, now: int) -> None:
        """The machine woke up: look when the driver has settled."""
        self._frozen = False
        self.trigger("resume", now)

    def start_over(self, now: int) -> tuple[DriftEvent, ...]:
        """A profile was applied or forgotten: what was before does not count, contested items are kept again."""
        over = tuple(DriftEnded(item, "replaced") for item in self._told)
        self._repairs.clear()
        self._resets.clear()
        self._contested.clear()
        self._told.clear()
        self._forgetful = False
        self._next = now + INTERVAL
        return over

    def looked(self, now: int) -> None:
        """A look is taken, whatever comes of it."""
        self._next = now + INTERVAL

    def decide(self, verdicts: Sequence[Verdict], now: int, *, repair: bool) -> Decision:
        """What the verdicts of a reading just made lead to; `repair` false: only look."""
        self.looked(now)
        events: list[DriftEvent] = []
        repairs: list[str] = []
        final: list[Verdict] = []
        for read in verdicts:
            verdict = self._with_history(read, now, repair=repair)
            final.append(verdict)
            events += self._news(verdict)
            if verdict.verdict == "drifted" and repair and self._may_repair(verdict, now):
                repairs.append(verdict.item)
        resets = {verdict.item for verdict in final if verdict.cause == RESET}
        reset = any(item in resets for item in repairs)
        blind = tuple(verdict.item for verdict in final if verdict.cause == "no-getter")
        renew = blind if repair and (self._forgetful or reset) else ()
        self._forgetful &= not repair or any(verdict.cause == "unreadable" for verdict in final)
        for item in repairs:
            if item in resets:
                self._resets[item] = now
            else:
                self._repairs.setdefault(item, []).append(now)
            self._next = min(self._next, now + CONFIRM)
        return Decision(tuple(final), tuple(repairs), renew, tuple(events))

    def repaired(self, results: Sequence[ItemResult]) -> tuple[DriftEvent, ...]:
        """What became of the repairs that were decided."""
        for result in results:
            if result.ok:
                self._told.pop(result.item, None)
        return tuple(DriftRepaired(result) for result in results if result.ok)

    def _with_history(self, verdict: Verdict, now: int, *, repair: bool) -> Verdict:
        if verdict.verdict != "drifted" or verdict.cause == RESET:
            return verdict
        recent = self._recent(verdict.item, now)
        if verdict.item in self._contested or (repair and len(recent) >= MOST_REPAIRS):
            return contested(verdict, MOST_REPAIRS)
        return verdict

    def _news(self, verdict: Verdict) -> list[DriftEvent]:
        item, found = verdict.item, verdict.verdict
        told = self._told.get(item)
        if found in ("ok", "overridden") and told is not None:
            del self._told[item]
            return [DriftEnded(item, "restored")]
        if found not in ("drifted", "contested") or found == told:
            return []
        self._told[item] = found
        if found == "drifted":
            return [DriftDetected(verdict)]
        self._contested.add(item)
        return [DriftContested(verdict)]

    def _may_repair(self, verdict: Verdict, now: int) -> bool:
        """Not before the back-off is over; then the next look comes right when it is."""
        item = verdict.item
        if verdict.cause == RESET:
            last = self._resets.get(item)
            return last is None or now - last >= RESET_PAUSE
        recent = self._recent(item, now)
        if not recent:
            return True
        allowed = recent[-1] + BACK_OFF[len(recent) - 1]
        if now < allowed:
            self._next = min(self._next, allowed)
        return now >= allowed

    def _recent(self, item: str, now: int) -> list[int]:
        """The repairs of an item within the window."""
        recent = [then for then in self._repairs.get(item, []) if then > now - WINDOW]
        self._repairs[item] = recent
        return recent
