"""A profile as a document (TOML, or JSON of the same shape), and back.

    power-limit = "300W"            # or "300000mW"; the unit must be there, for NVML counts mW and people count W
    persistence = true

    [offsets]                       # MHz, as the driver counts: memory +1000 raises the clock that tools show by 500
    graphics = 120
    memory = 1000

    [locked-clocks]                 # MHz: lowest and highest
    graphics = [210, 1800]

    [fans.0]
    mode = "curve"                  # or "automatic", or "fixed" with percent = 60
    points = [[40, 30], [80, 100]]  # degrees Celsius, percent
    hysteresis = 3
    spin-down-delay = "5s"
    zero-rpm-below = 45

What is left out is left as it is. Nothing here knows a card: whether one takes the values is decided by `fit`.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.configuration.document import Table
from gpusupervisor.configuration.layers import Finding
from gpusupervisor.foreign_text import harmless
from gpusupervisor.helper.profile.items import DOMAINS
from gpusupervisor.helper.values import ClockDomain, FanMode, FanSetting, Profile
from gpusupervisor.quantities import format_duration

HIGHEST_POWER = 10_000_000
"""mW that any GPU could take."""
HIGHEST_CLOCK = 20_000
"""MHz, of offsets too."""
HIGHEST_TEMPERATURE = 120
MAX_FANS = 16
MAX_POINTS = 32
LONGEST_DELAY = 600 * MICROSECONDS

_POWER = re.compile(r"([0-9]{1,8})(?:\.([0-9]{1,3}))? ?(W|mW)", re.ASCII)
_FAN_MODES: Sequence[FanMode] = ("automatic", "fixed", "curve")


def check_profile(table: Table) -> tuple[Profile, Sequence[Finding]]:
    """The profile in a table, and everything that is wrong with it; with findings the profile is not to be used."""
    findings: list[Finding] = []
    reader = TableReader(table, findings)
    profile = Profile(
        power_limit=_power(reader),
        persistence=reader.boolean("persistence", False) if reader.has("persistence") else None,
        offsets=_offsets(reader),
        locked_clocks=_locked_clocks(reader),
        fans=_fans(reader),
    )
    reader.raw("persistence")  # known, though it may be missing
    reader.finish()
    return profile, findings


def profile_table(profile: Profile) -> Table:
    """The table that `check_profile` reads back as the same profile."""
    table: Table = {}
    if profile.power_limit is not None:
        whole, rest = divmod(profile.power_limit, 1000)
        table["power-limit"] = f"{profile.power_limit}mW" if rest else f"{whole}W"
    if profile.persistence is not None:
        table["persistence"] = profile.persistence
    if profile.offsets:
        table["offsets"] = dict(profile.offsets)
    if profile.locked_clocks:
        table["locked-clocks"] = {domain: list(pair) for domain, pair in profile.locked_clocks.items()}
    if profile.fans:
        table["fans"] = {str(index): _fan_table(setting) for index, setting in profile.fans.items()}
    return table


def _power(reader: TableReader) -> int | None:
    key = "power-limit"
    value = reader.raw(key)
    if value is None:
        return None
    match = _POWER.fullmatch(value) if isinstance(value, str) else None
    milliwatts = 0
    if match is not None and match[3] == "W":
        milliwatts = int(match[1]) * 1000 + int((match[2] or "").ljust(3, "0"))
    elif match is not None and match[2] is None:
        milliwatts = int(match[1])
    if not 1 <= milliwatts <= HIGHEST_POWER:
        shown = f'"{harmless(value, 64)}"' if isinstance(value, str) else "no text with a unit"
        reader.complain(key, f'is {shown}; allowed: a power with its unit in quotes, e.g. "300W" or "285500mW"')
        return None
    return milliwatts


def _offsets(reader: TableReader) -> dict[ClockDomain, int]:
    with reader.table("offsets") as table:
        if table is None:
            return {}
        values = {domain: table.integer(domain, 0, -HIGHEST_CLOCK, HIGHEST_CLOCK) for domain in DOMAINS}
        return {domain: value for domain, value in values.items() if table.has(domain)}


def _locked_clocks(reader: TableReader) -> dict[ClockDomain, tuple[int, int]]:
    with reader.table("locked-clocks") as table:
        if table is None:
            return {}
        pairs = {domain: _clock_pair(table, domain) for domain in DOMAINS}
        return {domain: pair for domain, pair in pairs.items() if pair is not None}


def _clock_pair(table: TableReader, domain: ClockDomain) -> tuple[int, int] | None:
    value = table.raw(domain)
    if value is None:
        return None
    pair = _int_pair(value)
    if pair is None or not 1 <= pair[0] <= pair[1] <= HIGHEST_CLOCK:
        table.complain(domain, "is no range of clocks; allowed: [lowest, highest] in MHz, e.g. [210, 1800]")
        return None
    return pair


def _int_pair(value: object) -> tuple[int, int] | None:
    match value:
        case [int(first), int(second)] if not isinstance(first, bool) and not isinstance(second, bool):
            return first, second
        case _:
            return None


def _fans(reader: TableReader) -> dict[int, FanSetting]:
    raw = reader.raw("fans")
    fans: dict[int, FanSetting] = {}
    with reader.table("fans") as table:
        if table is None or not isinstance(raw, dict):
            return fans
        for key in raw:
            if not re.fullmatch(r"0|[1-9][0-9]?", key, re.ASCII) or int(key) >= MAX_FANS:
                table.raw(key)
                table.complain(harmless(key, 64), f"is no fan; allowed: a fan's number, 0 to {MAX_FANS - 1}")
                continue
            with table.table(key) as fan:
                if fan is not None:
                    fans[int(key)] = _fan(fan)
    return fans


def _fan(reader: TableReader) -> FanSetting:
    """Only what the mode uses is a known key: what would have no effect is an error."""
    chosen = reader.choice("mode", _FAN_MODES)
    mode = next((mode for mode in _FAN_MODES if mode == chosen), None)
    if mode is None:
        if not reader.has("mode"):
            reader.complain("mode", f"is missing; allowed: {', '.join(_FAN_MODES)}")
        for key in ("percent", "points", "hysteresis", "spin-down-delay", "zero-rpm-below"):
            reader.raw(key)
        return FanSetting()
    if mode == "fixed":
        if not reader.has("percent"):
            reader.complain("percent", "is missing; a fixed fan needs it")
        return FanSetting(mode, percent=reader.integer("percent", 100, 0, 100))
    if mode == "automatic":
        return FanSetting()
    fallback = FanSetting()
    return FanSetting(
        mode,
        points=_points(reader),
        hysteresis=reader.integer("hysteresis", fallback.hysteresis, 0, 30),
        spin_down_delay=reader.duration("spin-down-delay", fallback.spin_down_delay, 0, LONGEST_DELAY),
        zero_rpm_below=reader.integer("zero-rpm-below", fallback.zero_rpm_below, 0, HIGHEST_TEMPERATURE),
    )


def _points(reader: TableReader) -> tuple[tuple[int, int], ...]:
    value = reader.raw("points")
    help_text = f"allowed: 2 to {MAX_POINTS} points [degrees, percent], e.g. [[40, 30], [80, 100]]"
    if not isinstance(value, list) or not 2 <= len(value) <= MAX_POINTS:
        reader.complain("points", f"is no curve; {help_text}")
        return ()
    pairs = [_int_pair(item) for item in value]
    points = tuple(pair for pair in pairs if pair is not None)
    inside = all(0 <= degrees <= HIGHEST_TEMPERATURE and 0 <= percent <= 100 for degrees, percent in points)
    if len(points) != len(value) or not inside:
        reader.complain(
            "points", f"has a point that is none; {help_text}, degrees to {HIGHEST_TEMPERATURE}, percent to 100"
        )
        return ()
    if not all(cooler[0] < hotter[0] and cooler[1] <= hotter[1] for cooler, hotter in pairwise(points)):
        reader.complain("points", "does not rise: each point must be hotter than the one before, and not slower")
        return ()
    return points


def _fan_table(setting: FanSetting) -> Table:
    if setting.mode == "automatic":
        return {"mode": "automatic"}
    if setting.mode == "fixed":
        return {"mode": "fixed", "percent": setting.percent}
    return {
        "mode": "curve",
        "points": [list(point) for point in setting.points],
        "hysteresis": setting.hysteresis,
        "spin-down-delay": format_duration(setting.spin_down_delay, accuracy=1),
        "zero-rpm-below": setting.zero_rpm_below,
    }
