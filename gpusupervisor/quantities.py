"""Bytes and durations as text: systemd's notation in, text for people out.

Bytes have base 1024 ("13G", "1.5G", "1G 512M"), durations are microseconds ("10min", "1h 30min", a plain
number is seconds), as systemd.time(7) and systemd's MemoryMax= have it. "infinity" is `INFINITY` in both.
"""

import re
from collections.abc import Mapping

from gpusupervisor.clock import UNKNOWN as INFINITY

BYTES_HELP = 'a number of bytes, or one with K, M, G, T, P or E (base 1024), e.g. "600M", "1.5G", or "infinity"'
"""What a size may look like. "8.0 GiB", "8GB" and "8g" mean the same as "8G"."""
DURATION_HELP = 'a number of seconds, or one with us, ms, s, min, h, d or w, e.g. "500ms", "1h 30min", or "infinity"'

_LONGEST = 64
"""Characters of a text that is worth parsing, and digits that are shown back."""
_PART = re.compile(r"\s*([0-9]{1,20})(?:\.([0-9]{1,9}))?\s*([A-Za-zµμ]*)", re.ASCII)

_SIZES: Mapping[str, int] = {
    spelling: 1 << 10 * power
    for power, letter in enumerate("KMGTPE", start=1)
    for spelling in (letter, letter.lower(), f"{letter}B", f"{letter.lower()}b", f"{letter}b", f"{letter}iB",
                     f"{letter.lower()}ib")
} | {"B": 1, "": 1}  # fmt: skip
"""Bytes by unit. GPU tools print base-1024 figures as "GB" too, so "GB" and "GiB" are one unit."""

_SECOND = 1_000_000
_MINUTE = 60 * _SECOND
_HOUR = 60 * _MINUTE
_DAY = 24 * _HOUR
_YEAR = 31_557_600 * _SECOND
"""365.25 days, as systemd counts."""
_TIMES: Mapping[str, int] = {
    name: unit
    for names, unit in (
        ("us usec µs μs", 1),
        ("ms msec", 1000),
        ("s sec second seconds", _SECOND),
        ("m min minute minutes", _MINUTE),
        ("h hr hour hours", _HOUR),
        ("d day days", _DAY),
        ("w week weeks", 7 * _DAY),
        ("M month months", _YEAR // 12),
        ("y year years", _YEAR),
    )
    for name in names.split()
} | {"": _SECOND}


def _sum_of_parts(text: str, units: Mapping[str, int], meaning: str) -> int:
    """The sum of every "number unit" in `text`."""
    problem = f"{text[:_LONGEST]!r} is not {meaning}"
    if text.lstrip().startswith("-"):
        problem = f"{text[:_LONGEST]!r} is negative; give {meaning}"
    if not text.strip() or len(text) > _LONGEST:
        raise ValueError(problem)
    total, position = 0, 0
    text = text.strip()
    while position < len(text):
        part = _PART.match(text, position)
        bare_among_others = part is not None and not part[3] and part[0] != text
        if part is None or part[3] not in units or bare_among_others:
            raise ValueError(problem)
        unit = units[part[3]]
        total += int(part[1]) * unit
        if part[2]:
            total += int(part[2]) * unit // 10 ** len(part[2])
        position = part.end()
    if total >= INFINITY:
        raise ValueError(f'{text!r} is too much: below 2^64 - 1, or "infinity"')
    return total


def parse_bytes(text: str) -> int:
    """Return the bytes of "13G", "1.5 GiB", "512K" or "4096". Raises ValueError, which says what is allowed."""
    if text.strip() == "infinity":
        return INFINITY
    return _sum_of_parts(text, _SIZES, BYTES_HELP)


def parse_duration(text: str) -> int:
    """Microseconds of "10min", "1h 30min", "500ms", "10"; raises ValueError that says what is allowed."""
    if text.strip() == "infinity":
        return INFINITY
    return _sum_of_parts(text, _TIMES, DURATION_HELP)


def format_bytes(size: int) -> str:
    """For people, with one decimal: "13.1 GiB", "600.0 MiB", "512 B"; "unknown" for all ones."""
    if size == INFINITY:
        return "unknown"
    if abs(size) < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if abs(value) < 1023.95:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} EiB"


def format_duration(duration: int, accuracy: int = 1000) -> str:
    """As systemd writes it: "1h 30min", "500ms", "0"; rounded down to `accuracy` microseconds.

    With an accuracy of 1, `parse_duration` reads back the very same value.
    """
    if duration == INFINITY:
        return "infinity"
    left = duration - duration % accuracy
    parts = []
    for name, unit in (
        ("d", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", _SECOND), ("ms", 1000), ("us", 1),
    ):  # fmt: skip
        count, left = divmod(left, unit)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts) or "0"
