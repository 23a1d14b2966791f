"""Which settings a sweep tries."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Point:
    """Settings that are tried together."""

    power_limit: int
    """mW."""
    offset: int | None = None
    """MHz by which the graphics clock is moved; None leaves it as it is."""


def steps(low: int, high: int, step: int) -> range | tuple[int, ...]:
    """From `low` to `high` in steps, both kept; the last step may be a shorter one. One value when they are equal.

    Raises ValueError for a range that runs backwards, or steps that do not lead on.
    """
    if low > high or step < 1:
        raise ValueError(f"there are no steps of {step} from {low} to {high}")
    values = range(low, high + 1, step)
    return values if values[-1] == high else (*values, high)


def subsample(values: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` of them, evenly spread, the first and the last kept; of several the last when one is asked for.

    values: strictly increasing, at least one. Raises ValueError otherwise.
    """
    if not values or count < 1:
        raise ValueError("there is nothing to choose from, or nothing to be chosen")
    last = len(values) - 1
    if count == 1 or last == 0:
        return (values[last],)
    taken = min(count, len(values))
    return tuple(values[round(index * last / (taken - 1))] for index in range(taken))


def sweep(power_limits: Sequence[int], offsets: Sequence[int] = ()) -> tuple[Point, ...]:
    """Every power limit at every offset, the gentlest first: what fails later spoils nothing that came before."""
    limits = sorted(set(power_limits))
    moved: list[int | None] = [*sorted(set(offsets))] or [None]
    return tuple(Point(limit, offset) for offset in moved for limit in limits)


def profile_document(point: Point, stored: str = "") -> str:
    """The point as a profile in JSON, which the helper tries or applies; what it does not name is left as it is.

    stored: a profile in JSON whose other settings are to be in it.
    """
    table: dict[str, Any] = json.loads(stored) if stored else {}
    table["power-limit"] = f"{point.power_limit}mW"
    if point.offset is not None:
        table["offsets"] = {**table.get("offsets", {}), "graphics": point.offset}
    return json.dumps(table)
