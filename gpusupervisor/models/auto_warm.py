"""Which model is read into RAM without being asked to: one that is used daily, where it is sure to help. Pure."""

from collections.abc import Iterable

from gpusupervisor.memory import Memory
from gpusupervisor.models.warm_plan import Candidate, Usage, room_for, worth

CALM = 0.5
"""Percent of the last 10 s in which something may have waited for memory: more than that is pressure."""
DAYS = 5
"""Of the last seven, on which a model must have been used: daily, but for weekends."""
SHARE = 4
"""Without a budget, a part of the RAM: one in so many."""
_DAY = 86_400_000_000
_WEEK = 7 * _DAY


def is_used_daily(usage: Usage, now: int) -> bool:
    """Whether it is. now: realtime microseconds."""
    return len({day // _DAY for day in usage.days if 0 <= now - day < _WEEK}) >= DAYS


def next_to_warm(
    candidates: Iterable[Candidate], memory: Memory | None, budget: int | None, now: int, *, shared: bool
) -> Candidate | None:
    """The worthiest model that is used daily, is not in RAM and fits there; None when there is none, or no calm.

    budget: bytes that such models may fill, those included that are there already; None for a share of the RAM.
    shared: the GPU uses the same memory.
    """
    if memory is None or memory.shortage or memory.pressure is None or memory.pressure > CALM:
        return None
    daily = sorted((each for each in candidates if each.usage and is_used_daily(each.usage, now)), key=worth)
    warm = sum(room_for(each.model.size, shared=shared) for each in daily if each.model.is_warm)
    left = min(memory.total // SHARE if budget is None else budget, memory.spare) - warm
    for each in daily:
        is_cold = each.model.cached is not None and not each.model.is_warm
        if is_cold and room_for(each.model.size, shared=shared) <= left:
            return each
    return None
