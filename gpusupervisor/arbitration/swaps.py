"""Swaps: memory that one tenant gave up for another, counted for each pair so that there is an end to it."""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from gpusupervisor.clock import MICROSECONDS

HOUR = 3600 * MICROSECONDS
SWAPS_PER_HOUR = 12
"""Of each pair of tenants, in both directions together."""
THRASH_WITHIN = 600 * MICROSECONDS
THRASH_TURNS = 3
"""Changes of direction within `THRASH_WITHIN` from which on a pair thrashes."""

Pair = tuple[str, str]
"""Tenant ids in alphabetical order."""


@dataclass(frozen=True, slots=True)
class _Swap:
    at: int
    giver: str


@dataclass(frozen=True, slots=True)
class Thrash:
    """Two tenants that take the memory from each other."""

    pair: Pair
    swaps: int
    """Within the last `THRASH_WITHIN`."""


class SwapBook:
    """Of every pair of tenants, for the last hour."""

    def __init__(self) -> None:
        self._swaps: dict[Pair, deque[_Swap]] = {}

    def note(self, giver: str, beneficiary: str, now: int) -> None:
        """A tenant is asked for the sake of another."""
        self._swaps.setdefault(_pair(giver, beneficiary), deque(maxlen=256)).append(_Swap(now, giver))

    def until(self, giver: str, beneficiary: str, now: int) -> int:
        """When a pair may swap again; 0 when it may now."""
        recent = self._recent(_pair(giver, beneficiary), now)
        return recent[-SWAPS_PER_HOUR].at + HOUR if len(recent) >= SWAPS_PER_HOUR else 0

    def paused(self, beneficiary: str, now: int) -> dict[str, int]:
        """Tenants that are not asked for a beneficiary at present, with the instant until which that is so."""
        partners = (pair[0] if pair[1] == beneficiary else pair[1] for pair in self._swaps if beneficiary in pair)
        found = {partner: self.until(partner, beneficiary, now) for partner in partners}
        return {partner: until for partner, until in found.items() if until}

    def thrashing(self, now: int) -> tuple[Thrash, ...]:
        """The pairs whose memory goes back and forth."""
        found = []
        for pair in sorted(self._swaps):
            lately = [swap for swap in self._recent(pair, now) if now - swap.at < THRASH_WITHIN]
            turns = sum(one.giver != other.giver for one, other in pairwise(lately))
            if turns >= THRASH_TURNS:
                found.append(Thrash(pair, len(lately)))
        return tuple(found)

    def _recent(self, pair: Pair, now: int) -> deque[_Swap]:
        swaps = self._swaps.get(pair, deque())
        while swaps and now - swaps[0].at >= HOUR:
            swaps.popleft()
        return swaps


def _pair(one: str, other: str) -> Pair:
    return (one, other) if one < other else (other, one)
