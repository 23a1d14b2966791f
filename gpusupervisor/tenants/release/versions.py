"""Comparing engines' versions."""

import re

_VERSION = re.compile(r"v?(\d{1,9}(?:\.\d{1,9}){0,5})(?!\d)(.*)", re.ASCII)


def parse_version(text: str) -> tuple[tuple[int, ...], bool] | None:
    """The numbers of a version, and whether it is a full release (0.33.0-rc2 is before 0.33.0); None if none."""
    found = _VERSION.fullmatch(text.strip()[:100])
    if found is None:
        return None
    numbers = [int(part) for part in found[1].split(".")]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers), not re.match(r"-?(?:rc|a|b|alpha|beta|dev|pre)", found[2])


def at_least(version: str, minimum: str) -> bool | None:
    """Whether `version` is not older than `minimum`; None when either cannot be compared."""
    left, right = parse_version(version), parse_version(minimum)
    if left is not None and not any(left[0]):
        return None  # 0.0.0 is what was built from source without a version
    return None if left is None or right is None else left >= right
