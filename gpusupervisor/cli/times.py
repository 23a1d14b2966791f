"""Points in time as people type them, in the forms that `journalctl --since` accepts."""

import re
from datetime import datetime, timedelta

from gpusupervisor.quantities import parse_duration

SINCE_HELP = (
    'how far back ("2h", "1w"), or since when: "today", "yesterday", "14:30", "2026-01-31" or "2026-01-31 14:30"'
)

_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{2})(?::(\d{2}))?)?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


def parse_since(text: str, now: datetime | None = None) -> int:
    """Return how long ago a time was, in microseconds.

    text: a duration ("2h", "-2h", "2h ago"), "now", "today", "yesterday", a time of today, or a local date with or
    without a time. now: the local time, for tests. Raises ValueError, which says what is allowed.
    """
    typed = text.strip()
    local = now or datetime.now().astimezone()
    begin = _instant(typed, local)
    if begin is None:
        return _duration(text, typed.removesuffix("ago").strip().removeprefix("-"))
    passed = (local - begin) // timedelta(microseconds=1)
    if passed < 0:
        raise ValueError(f"{text!r} is in the future")
    return passed


def _duration(text: str, typed: str) -> int:
    try:
        return parse_duration(typed)
    except ValueError:
        raise ValueError(f"{text[:64]!r} is no time; give {SINCE_HELP}") from None


def _instant(typed: str, local: datetime) -> datetime | None:
    """The local time that is meant; None if it is none of the known forms. Raises ValueError for an impossible one."""
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    match typed:
        case "now":
            return local
        case "today":
            return midnight
        case "yesterday":
            return midnight - timedelta(days=1)
    try:
        if found := _DATE.fullmatch(typed):
            return datetime(*(int(part or 0) for part in found.groups())).astimezone(local.tzinfo)  # type: ignore[arg-type]
        if found := _CLOCK.fullmatch(typed):
            hour, minute, second = (int(part or 0) for part in found.groups())
            return midnight.replace(hour=hour, minute=minute, second=second)
    except ValueError:
        raise ValueError(f"{typed!r} is not a date or time that exists") from None
    return None
