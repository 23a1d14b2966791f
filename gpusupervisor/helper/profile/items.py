"""The items of a profile by name, in the order in which they are applied, and small algebra on profiles.

The order: persistence first, for switching it off makes the driver forget the rest; then power, so that clocks rise
only within the limit; then clocks; fans last, when all that makes heat is known.
"""

from collections.abc import Container, Mapping

from gpusupervisor.helper.values import ClockDomain, FanSetting, Profile

PERSISTENCE = "persistence"
POWER_LIMIT = "power-limit"
DOMAINS: tuple[ClockDomain, ...] = ("graphics", "memory")
LOCKED_CLOCKS: Mapping[ClockDomain, str] = {domain: f"locked-clocks-{domain}" for domain in DOMAINS}
OFFSETS: Mapping[ClockDomain, str] = {domain: f"offset-{domain}" for domain in DOMAINS}


def fan_item(index: int) -> str:
    """The item of one fan."""
    return f"fan-{index}"


def items(profile: Profile) -> tuple[str, ...]:
    """What the profile says something about, in the order of applying."""
    return (
        *([PERSISTENCE] if profile.persistence is not None else []),
        *([POWER_LIMIT] if profile.power_limit is not None else []),
        *(LOCKED_CLOCKS[domain] for domain in DOMAINS if domain in profile.locked_clocks),
        *(OFFSETS[domain] for domain in DOMAINS if domain in profile.offsets),
        *(fan_item(index) for index in sorted(profile.fans)),
    )


def part(profile: Profile, wanted: Container[str]) -> Profile:
    """The profile with nothing but the wanted items."""
    return Profile(
        power_limit=profile.power_limit if POWER_LIMIT in wanted else None,
        offsets={domain: value for domain, value in profile.offsets.items() if OFFSETS[domain] in wanted},
        locked_clocks={
            domain: value for domain, value in profile.locked_clocks.items() if LOCKED_CLOCKS[domain] in wanted
        },
        persistence=profile.persistence if PERSISTENCE in wanted else None,
        fans={index: value for index, value in profile.fans.items() if fan_item(index) in wanted},
    )


def overlay(base: Profile, top: Profile) -> Profile:
    """Both; what `top` says stands."""
    return Profile(
        power_limit=base.power_limit if top.power_limit is None else top.power_limit,
        offsets={**base.offsets, **top.offsets},
        locked_clocks={**base.locked_clocks, **top.locked_clocks},
        persistence=base.persistence if top.persistence is None else top.persistence,
        fans={**base.fans, **top.fans},
    )


def shown(profile: Profile, item: str) -> str:
    """The value of an item as a person reads it; empty when the profile does not have it."""
    if item == PERSISTENCE and profile.persistence is not None:
        return on_off(profile.persistence)
    if item == POWER_LIMIT and profile.power_limit is not None:
        return watts(profile.power_limit)
    for domain in DOMAINS:
        if item == LOCKED_CLOCKS[domain] and domain in profile.locked_clocks:
            low, high = profile.locked_clocks[domain]
            return f"{low}-{high} MHz"
        if item == OFFSETS[domain] and domain in profile.offsets:
            return offset(profile.offsets[domain])
    for index, setting in profile.fans.items():
        if item == fan_item(index):
            return fan(setting)
    return ""


def watts(milliwatts: int) -> str:
    """A power, e.g. "250 W", "250.5 W"."""
    whole, rest = divmod(milliwatts, 1000)
    return f"{whole}.{rest:03}".rstrip("0").rstrip(".") + " W"


def offset(megahertz: int) -> str:
    """A clock offset, with its sign."""
    return f"{megahertz:+} MHz" if megahertz else "0 MHz"


def on_off(value: bool) -> str:
    """A switch."""
    return "on" if value else "off"


def fan(setting: FanSetting) -> str:
    """A fan's setting, e.g. "automatic", "60 %", "curve 40 °C 30 %, 80 °C 100 %"."""
    if setting.mode == "fixed":
        return f"{setting.percent} %"
    if setting.mode == "curve":
        return "curve " + ", ".join(f"{degrees} °C {percent} %" for degrees, percent in setting.points)
    return "automatic"
