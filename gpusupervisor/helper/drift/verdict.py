"""Does what was accepted still stand? Pure: compares what is read now with what was read right after applying.

Compared with what was accepted and never with the wish: a driver that made 464 MHz of 465 has not drifted. Fans are
not judged here: their loop looks at them at every step, and a second keeper would undo its fail-safe.
"""

from dataclasses import dataclass, replace
from typing import Literal

from gpusupervisor.helper.profile.card import Reading
from gpusupervisor.helper.profile.items import (
    DOMAINS,
    LOCKED_CLOCKS,
    OFFSETS,
    PERSISTENCE,
    POWER_LIMIT,
    items,
    shown,
    watts,
)
from gpusupervisor.helper.values import Capabilities, Profile

Kind = Literal["ok", "drifted", "overridden", "unverifiable", "contested"]
Cause = Literal[
    "", "reset-to-default", "changed-by-another", "enforced-limit", "thermal-slowdown", "no-getter", "unreadable"
]
"""no-getter: it can never be read here; unreadable: reading it failed this time."""

POWER_STEP = 1000
"""mW: power limits that differ by less are the same."""
OFFSET_STEP = 2
"""MHz, likewise: some cards take even offsets only."""
HEAT = frozenset({"hw-slowdown", "sw-thermal-slowdown", "hw-thermal-slowdown", "hw-power-brake"})
"""Reasons for which the hardware holds clocks down whatever is set."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """About one item."""

    item: str
    verdict: Kind
    cause: Cause
    accepted: str
    found: str
    """Empty when it cannot be read."""
    detail: str = ""
    """A sentence; without figures that change all the time."""


def judge(accepted: Profile, unreadable: Profile, reading: Reading, capabilities: Capabilities) -> tuple[Verdict, ...]:
    """A verdict on every item that was set, but the fans; `contested` is not among them, for it needs the history."""
    readable = [_readable(item, accepted, reading, capabilities) for item in items(accepted) if not _is_fan(item)]
    blind = [
        Verdict(item, "unverifiable", "no-getter", shown(unreadable, item), "", _no_answer(item))
        for item in items(unreadable)
        if not _is_fan(item)
    ]
    return tuple(readable + blind)


def contested(verdict: Verdict, attempts: int) -> Verdict:
    """A drifted item that was repaired too often."""
    detail = (
        f"set again {attempts} times in a short while to no lasting effect: another program sets it too, or it fails"
    )
    return replace(verdict, verdict="contested", detail=detail)


def _is_fan(item: str) -> bool:
    return item.startswith("fan-")


def _no_answer(item: str) -> str:
    return "NVML has no getter for it" if item in LOCKED_CLOCKS.values() else "the driver does not report it"


def _readable(item: str, accepted: Profile, reading: Reading, capabilities: Capabilities) -> Verdict:
    was, now = shown(accepted, item), shown(reading.values, item)
    if not now:
        return Verdict(
            item, "unverifiable", "unreadable", was, "", reading.failures.get(item, "the driver reports nothing")
        )
    difference, step = _distance(item, accepted, reading.values)
    if difference >= step:
        if _is_default(item, reading.values, capabilities):
            return Verdict(item, "drifted", "reset-to-default", was, now, f"reset to the default, {now}, by the driver")
        return Verdict(item, "drifted", "changed-by-another", was, now, f"changed to {now} by another program")
    override = _override(item, accepted, reading)
    if override is not None:
        return Verdict(item, "overridden", override[0], was, now, override[1])
    return Verdict(item, "ok", "", was, now)


def _distance(item: str, accepted: Profile, found: Profile) -> tuple[int, int]:
    """How far the values are apart, and from where on that counts."""
    if item == POWER_LIMIT:
        return abs((accepted.power_limit or 0) - (found.power_limit or 0)), POWER_STEP
    for domain in DOMAINS:
        if item == OFFSETS[domain]:
            return abs(accepted.offsets[domain] - found.offsets[domain]), OFFSET_STEP
    return int(accepted.persistence != found.persistence), 1


def _is_default(item: str, found: Profile, capabilities: Capabilities) -> bool:
    if item == POWER_LIMIT:
        default = capabilities.power_limit.default
        return default is not None and abs((found.power_limit or 0) - default) < POWER_STEP
    if item == PERSISTENCE:
        return found.persistence is False
    return all(abs(found.offsets[domain]) < OFFSET_STEP for domain in DOMAINS if item == OFFSETS[domain])


def _override(item: str, accepted: Profile, reading: Reading) -> tuple[Cause, str] | None:
    """The setting stands, but something stronger has its way."""
    enforced = reading.enforced_power_limit
    if item == POWER_LIMIT and enforced is not None and enforced <= (accepted.power_limit or 0) - POWER_STEP:
        return "enforced-limit", f"set, but {watts(enforced)} is enforced (by the board, its firmware or nvidia-powerd)"
    if item in OFFSETS.values() and reading.slowdown & HEAT:
        return "thermal-slowdown", "set, but the hardware holds the clocks down: it is too hot or short of power"
    return None
