"""Applying a profile to a card: item by item, in a safe order, a failure does not stop the rest, and what the driver
made of it is read back."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from gpusupervisor.errors import SupervisorError
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.profile.card import Access, Card, CardError, Fans, Reading, present, read_settings
from gpusupervisor.helper.profile.fit import fit
from gpusupervisor.helper.profile.items import (
    DOMAINS,
    LOCKED_CLOCKS,
    OFFSETS,
    PERSISTENCE,
    POWER_LIMIT,
    fan_item,
    items,
    overlay,
    part,
    shown,
)
from gpusupervisor.helper.values import Capabilities, ClockDomain, FanSetting, ItemResult, Profile

NO_GETTER = "set, but it cannot be read back: NVML has no getter for locked clocks"
NOT_REPORTED = "set, but it cannot be read back: this driver does not report the offset"

NO_DEFAULT = ItemResult(POWER_LIMIT, False, "default", "", "left as it is: the driver does not tell the default")

LARGEST_POWER_STEP = 1000
"""mW."""
LARGEST_OFFSET_STEP = 30
"""MHz; cards snap offsets to steps of 1, 2 or 15."""

Step = tuple[str, Callable[[], Awaitable[bool]]]
"""An item and what sets it; the outcome: can it be read back?"""


@dataclass(frozen=True, slots=True)
class Applied:
    """What became of a profile."""

    results: tuple[ItemResult, ...]
    accepted: Profile
    """As read back; fans as their loop took them."""
    unreadable: Profile
    """What was set and cannot be read back, as it was asked."""

    @property
    def in_force(self) -> Profile:
        """Everything that was set."""
        return overlay(self.accepted, self.unreadable)


async def apply_profile(access: Access, fans: Fans, profile: Profile) -> Applied:
    """Set what the card takes of the profile. Raises a CardError when it cannot be asked at all, before anything is
    set."""
    capabilities = await present(access)
    taken, refused = fit(profile, capabilities)
    before = await read_settings(access, items(taken))
    failures: dict[str, str] = {}
    silent: list[str] = []
    for item, setter in _steps(access, fans, taken):
        try:
            if not await setter():
                silent.append(item)
        except (*CardError, SupervisorError) as error:
            failures[item] = _why(error)
    after = await read_settings(access, [item for item in items(taken) if item not in failures])
    applied = _conclude(taken, before, after, failures, silent)
    order = items(profile)
    results = sorted((*refused, *applied.results), key=lambda result: order.index(result.item))
    return Applied(tuple(results), applied.accepted, applied.unreadable)


def _steps(access: Access, fans: Fans, taken: Profile) -> list[Step]:
    """What is to be done, in the order of `items`."""
    steps: list[Step] = []
    persistence, power = taken.persistence, taken.power_limit
    if persistence is not None:
        steps.append((PERSISTENCE, _setter(access, lambda card: card.set_persistence(persistence))))
    if power is not None:
        steps.append((POWER_LIMIT, _setter(access, lambda card: card.set_power_limit(power))))
    steps += [
        (LOCKED_CLOCKS[domain], _lock(access, domain, taken.locked_clocks[domain]))
        for domain in DOMAINS
        if domain in taken.locked_clocks
    ]
    steps += [
        (OFFSETS[domain], _setter(access, _offset(domain, taken.offsets[domain])))
        for domain in DOMAINS
        if domain in taken.offsets
    ]
    steps += [(fan_item(index), _fan(fans, index, taken)) for index in sorted(taken.fans)]
    return steps


def _setter(access: Access, work: Callable[[Card], object]) -> Callable[[], Awaitable[bool]]:
    async def set_it() -> bool:
        return await access.ask(work) is not None

    return set_it


def _offset(domain: ClockDomain, megahertz: int) -> Callable[[Card], object]:
    return lambda card: card.set_offset(domain, megahertz)


def _lock(access: Access, domain: ClockDomain, pair: tuple[int, int]) -> Callable[[], Awaitable[bool]]:
    async def lock() -> bool:
        await access.ask(lambda card: card.set_locked_clocks(domain, *pair))
        return False

    return lock


def _fan(fans: Fans, index: int, taken: Profile) -> Callable[[], Awaitable[bool]]:
    async def set_fan() -> bool:
        await fans.set_fan(index, taken.fans[index])
        return True

    return set_fan


def _conclude(
    taken: Profile, before: Reading, after: Reading, failures: Mapping[str, str], silent: list[str]
) -> Applied:
    """Pure: the result of every item from what was read before and after."""
    found = overlay(after.values, Profile(fans=taken.fans))
    results: list[ItemResult] = []
    accepted: list[str] = []
    unreadable: list[str] = []
    for item in items(taken):
        asked, is_now, was = shown(taken, item), shown(found, item), shown(before.values, item)
        if item in failures:
            results.append(ItemResult(item, False, asked, "", failures[item]))
        elif item in silent:
            unreadable.append(item)
            results.append(ItemResult(item, True, asked, "", NOT_REPORTED if item in OFFSETS.values() else NO_GETTER))
        elif not is_now:
            unreadable.append(item)
            results.append(ItemResult(item, True, asked, "", f"set, but not read back: {after.failures.get(item, '')}"))
        elif is_now == was and not _is_near(taken, found, item):
            results.append(ItemResult(item, False, asked, is_now, f"the driver took it without effect: still {is_now}"))
        else:
            accepted.append(item)
            detail = "" if is_now == asked else f"the driver made {is_now} of {asked}"
            results.append(ItemResult(item, True, asked, is_now, detail))
    return Applied(tuple(results), part(found, accepted), part(taken, unreadable))


def _is_near(taken: Profile, found: Profile, item: str) -> bool:
    """Drivers snap a value to a step nearby; farther away it is not what was asked for."""
    if item == POWER_LIMIT and taken.power_limit is not None and found.power_limit is not None:
        return abs(found.power_limit - taken.power_limit) < LARGEST_POWER_STEP
    for domain in DOMAINS:
        if item == OFFSETS[domain]:
            return abs(found.offsets[domain] - taken.offsets[domain]) < LARGEST_OFFSET_STEP
    return shown(taken, item) == shown(found, item)


def _why(error: Exception) -> str:
    if isinstance(error, DriverError) and error.error_class == "permission":
        return f"{error}; the helper lacks CAP_SYS_ADMIN: see its unit's CapabilityBoundingSet="
    return str(error)


@dataclass(frozen=True, slots=True)
class Before:
    """The state before a profile, of the items that it is going to change."""

    profile: Profile
    unlocked: tuple[ClockDomain, ...] = ()
    """Clocks that were not locked, as far as is known: taken back by a reset."""


async def capture(
    access: Access, fans: Fans, profile: Profile, known: Profile
) -> tuple[Before, tuple[ItemResult, ...]]:
    """The state before what the card takes of a profile, and a refusal for each item whose state before cannot be read.

    `known`: what was set since the driver started and cannot be read. Raises a CardError when the card
    cannot be asked at all.
    """
    capabilities = await present(access)
    taken, _ = fit(profile, capabilities)
    reading = await read_settings(access, items(taken))
    values = _override_unreported(reading.values, taken, capabilities, known)
    unlocked = tuple(
        domain for domain in DOMAINS if domain in taken.locked_clocks and domain not in known.locked_clocks
    )
    refused = tuple(
        ItemResult(
            item,
            False,
            shown(profile, item),
            "",
            f"not tried: how it is now cannot be read ({why}), so it could not be set again",
        )
        for item, why in reading.failures.items()
    )
    in_force = fans.settings()
    before = Profile(
        power_limit=values.power_limit,
        offsets=values.offsets,
        locked_clocks={domain: pair for domain, pair in known.locked_clocks.items() if domain in taken.locked_clocks},
        persistence=values.persistence,
        fans={index: in_force.get(index, FanSetting()) for index in taken.fans},
    )
    return Before(before, unlocked), refused


def _override_unreported(read: Profile, profile: Profile, capabilities: Capabilities, known: Profile) -> Profile:
    """Offsets that the driver does not report are what we set last, else none."""
    offsets = {
        domain: known.offsets.get(domain, 0)
        for domain, capability in capabilities.offsets.items()
        if capability.support == "unverifiable" and domain in profile.offsets
    }
    return overlay(read, Profile(offsets=offsets))


async def restore(access: Access, fans: Fans, before: Before) -> Applied:
    """Set the state before again; clocks that were not locked are reset. Raises as `apply_profile`."""
    applied = await apply_profile(access, fans, before.profile)
    results = list(applied.results)
    for domain in before.unlocked:
        item = LOCKED_CLOCKS[domain]
        try:
            await access.ask(_reset(domain))
        except CardError as error:
            results.append(ItemResult(item, False, "default", "", _why(error)))
        else:
            results.append(ItemResult(item, True, "default", "", NO_GETTER))
    return Applied(tuple(results), applied.accepted, applied.unreadable)


def _reset(domain: ClockDomain) -> Callable[[Card], None]:
    return lambda card: card.reset_locked_clocks(domain)


async def set_defaults(access: Access, fans: Fans, touched: Profile) -> tuple[ItemResult, ...]:
    """Set the items of a profile to the card's defaults; persistence stays. Raises as `apply_profile`."""
    default = (await present(access)).power_limit.default
    untold = touched.power_limit is not None and default is None
    defaults = Profile(
        power_limit=None if touched.power_limit is None else default,
        offsets=dict.fromkeys(touched.offsets, 0),
        fans=dict.fromkeys(touched.fans, FanSetting()),
    )
    applied = await restore(access, fans, Before(defaults, tuple(touched.locked_clocks)))
    return (*applied.results, *([NO_DEFAULT] if untold else []))
