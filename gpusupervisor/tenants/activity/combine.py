"""From observations to one verdict. Pure.

The first probe that does not defer is the authority, the others corroborate: any that sees life makes the tenant
busy, none of them makes it idle. What is too old, unreadable or contradictory is unknown, and unknown is never idle.
"""

from collections.abc import Sequence
from dataclasses import replace

from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity, ActivityState, Observation
from gpusupervisor.tenants.census import TenantPresence

LIFE_SIGNS = frozenset({"vram", "sm-utilization", "cpu"})
"""Probes that look at the processes themselves: they outweigh an engine whose own word is not believed."""


def judge(
    observations: Sequence[Observation],
    presence: TenantPresence,
    previous: Activity,
    *,
    growth: bool,
    now: int,
    freshness: int,
) -> Activity:
    """The activity of one tenant.

    observations: the latest of each probe, the authority's first. growth: its memory has grown since the last
    census. freshness: microseconds after which evidence no longer counts.
    """
    current = [_if_fresh(observation, now, freshness) for observation in observations]
    state, reason, basis = _verdict(current, presence, growth)
    authority = _authority(current)
    return Activity(
        state=state,
        reason=reason,
        evidence=tuple(f"{seen.probe}: {seen.state}: {seen.reason}" for seen in current),
        observed_at=min((seen.observed_at for seen in basis), default=now),
        since=previous.since if previous.state == state and previous != UNOBSERVED else now,
        need=authority.need if authority else None,
        pinned=any(seen.pinned for seen in current),
        unreachable=authority.unreachable if authority else False,
        trouble=authority.trouble if authority else "",
        answered=_answered(current),
        trouble_detail=authority.reason if authority and authority.trouble else "",
        impact=basis[0].impact if state == "stuck" else "",
        remedy=basis[0].remedy if state == "stuck" else "",
        placement=authority.placement if authority else None,
        out_of_memory_at=max((seen.out_of_memory_at for seen in current if seen.out_of_memory_at), default=None),
    )


def _authority(current: Sequence[Observation]) -> Observation | None:
    return next((seen for seen in current if not seen.defers), current[0] if current else None)


def _answered(current: Sequence[Observation]) -> bool | None:
    asked = [seen.answered for seen in current if seen.answered is not None]
    return any(asked) if asked else None


def _verdict(
    current: Sequence[Observation], presence: TenantPresence, growth: bool
) -> tuple[ActivityState, str, Sequence[Observation]]:
    """State, reason and the observations it rests on (none: on the census itself)."""
    if growth:
        return "busy", "it is loading (its memory grows)", ()
    authority = _authority(current)
    if authority is None:
        if presence.holders:
            return "unknown", "no probe is defined that could tell whether it is working", ()
        return "absent", presence.absence, ()
    stuck = [seen for seen in current if seen.state == "stuck"]
    busy = [seen for seen in current if seen.state == "busy" and (not stuck or seen.probe in LIFE_SIGNS)]
    if busy:
        return "busy", busy[0].reason, busy[:1]
    if stuck:
        return "stuck", stuck[0].reason, stuck[:1]
    if authority.state == "idle":
        return "idle", authority.reason, [seen for seen in current if seen.state == "idle"]
    if authority.state == "absent":
        if presence.holders:
            return "unknown", f"{authority.reason}, though its processes hold VRAM", (authority,)
        return "absent", authority.reason, (authority,)
    return "unknown", authority.reason, (authority,)


def _if_fresh(observation: Observation, now: int, freshness: int) -> Observation:
    """The observation, or unknown in its place once it is too old to go by."""
    if now - observation.observed_at <= freshness:
        return observation
    reason = f"last heard too long ago ({observation.state} then)"
    return replace(
        observation,
        state="unknown",
        reason=reason,
        need=None,
        unreachable=False,
        trouble="",
        answered=None if observation.answered is None else False,
        impact="",
        remedy="",
    )
