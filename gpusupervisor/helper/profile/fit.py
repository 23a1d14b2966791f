"""What a card takes of a profile: each item is taken as it is or refused with the reason, never changed."""

from collections.abc import Callable

from gpusupervisor.helper.profile.items import (
    DOMAINS,
    LOCKED_CLOCKS,
    OFFSETS,
    PERSISTENCE,
    POWER_LIMIT,
    fan_item,
    items,
    offset,
    part,
    shown,
    watts,
)
from gpusupervisor.helper.values import Capabilities, Capability, FanSetting, ItemResult, Profile


def fit(profile: Profile, capabilities: Capabilities) -> tuple[Profile, tuple[ItemResult, ...]]:
    """The items that this card takes, and a refusal for each of the others."""
    reasons = _refusals(profile, capabilities)
    taken = part(profile, [item for item in items(profile) if not reasons[item]])
    refused = tuple(
        ItemResult(item, ok=False, asked=shown(profile, item), accepted="", detail=reasons[item])
        for item in items(profile)
        if reasons[item]
    )
    return taken, refused


def _refusals(profile: Profile, capabilities: Capabilities) -> dict[str, str]:
    """By item: why it is refused; empty when it is not."""
    reasons: dict[str, str] = {}
    if profile.persistence is not None:
        reasons[PERSISTENCE] = _unsettable(capabilities.persistence)
    if profile.power_limit is not None:
        limit = capabilities.power_limit
        reasons[POWER_LIMIT] = _unsettable(limit) or _outside(limit, (profile.power_limit,), watts)
    for domain in DOMAINS:
        if domain in profile.locked_clocks:
            capability = capabilities.locked_clocks.get(domain, _UNKNOWN)
            pair = profile.locked_clocks[domain]
            reasons[LOCKED_CLOCKS[domain]] = _unsettable(capability) or _outside(capability, pair, _megahertz)
        if domain in profile.offsets:
            capability = capabilities.offsets.get(domain, _UNKNOWN)
            value = profile.offsets[domain]
            reasons[OFFSETS[domain]] = _unsettable(capability) or _outside(capability, (value,), offset)
    for index, setting in profile.fans.items():
        reasons[fan_item(index)] = _fan_refusal(index, setting, capabilities)
    return reasons


_UNKNOWN = Capability("unsupported", "this GPU has no such clock")


def _unsettable(capability: Capability) -> str:
    if capability.support in ("supported", "unverifiable"):
        return ""
    why = capability.reason or "the driver does not say why"
    return f"can be read but not set: {why}" if capability.support == "read-only" else f"not supported: {why}"


def _outside(capability: Capability, values: tuple[int, ...], text: Callable[[int], str]) -> str:
    """What is not known to be inside of the card's range is outside."""
    low, high = capability.minimum, capability.maximum
    if low is None or high is None:
        return "the driver does not tell which values the card takes, so none is set"
    if low > high:
        return "the range that the driver tells has no value in it"
    wrong = next((value for value in values if not low <= value <= high), None)
    return "" if wrong is None else f"{text(wrong)} is out of range: this card takes {text(low)} to {text(high)}"


def _fan_refusal(index: int, setting: FanSetting, capabilities: Capabilities) -> str:
    unsettable = _unsettable(capabilities.fans)
    if unsettable:
        return unsettable
    count = capabilities.fan_count
    if not 0 <= index < count:
        return f"there is no fan {index}: this card has {count}, counted from 0"
    if setting.mode == "fixed":
        return _outside(capabilities.fans, (setting.percent,), _percent)
    if setting.mode == "curve":
        return _outside(capabilities.fans, tuple(percent for _, percent in setting.points), _percent)
    return ""


def _megahertz(value: int) -> str:
    return f"{value} MHz"


def _percent(value: int) -> str:
    return f"{value} %"
