"""What telemetry is made of, as values. Times are realtime microseconds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.foreign_text import harmless

GPU_SERIES = ("used", "free", "unattributed", "power", "temperature", "utilization")
TENANT_SERIES = ("holding", "activity", "need", "shortfall")
ACTIVITIES = ("absent", "idle", "busy", "stuck", "unknown", "claimed", "stirring")
"""The values of the series "activity" are the places of these words."""
HEARTBEAT = 60_000_000
"""A value that stands still is noted once in this time, so that standing still is told from not running."""
HOLD = 90_000_000
"""A value stands until the next one, but no longer than this: nothing is known of a time when nobody looked."""

EventKind = Literal["plan", "plan-started", "step", "outcome", "load", "health", "drift", "fans", "job", "decisions"]
EVENT_KINDS: tuple[str, ...] = (
    "plan", "plan-started", "step", "outcome", "load", "health", "drift", "fans", "job", "decisions",
)  # fmt: skip


LARGEST = 2**62


class Series(NamedTuple):
    """Which figure of what."""

    name: str
    gpu: str = ""
    """UUID; empty for what is not of one GPU."""
    tenant: str = ""


class Point(NamedTuple):
    """A figure at one moment."""

    series: Series
    at: int
    value: int | None
    """None: not known from now on."""


@dataclass(frozen=True, slots=True)
class TelemetryEvent:
    """Something that happened."""

    kind: EventKind
    at: int
    tenant: str = ""
    gpu: str = ""
    plan: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    """What JSON can hold."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event as it was stored: its details are JSON text."""

    kind: str
    at: int
    tenant: str
    gpu: str
    plan: str
    details: str


@dataclass(frozen=True, slots=True)
class Span:
    """A series there is, and from when to when."""

    series: Series
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Load:
    """A model was loaded."""

    tenant: str
    gpu: str
    model: str
    size: int
    """Bytes that were read."""
    duration: int
    """Microseconds."""
    source: Literal["cold", "warm", "unknown"]
    """From disk, from RAM, or nobody knows."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """What an earlier life of the service left."""

    facts: tuple[Fact, ...] = ()
    plans: int = 0
    """Number of the last plan."""


def bounded(value: object, texts: int = 512, items: int = 32) -> object:
    """A value for an event's details, of limited size and harmless."""
    if isinstance(value, str):
        return harmless(value, texts)
    if isinstance(value, Mapping):
        return {harmless(str(key), 64): bounded(item, texts, items) for key, item in list(value.items())[:items]}
    if isinstance(value, list | tuple):
        return [bounded(item, texts, items) for item in value[:items]]
    return value if value is None or isinstance(value, bool | int | float) else harmless(str(value), texts)


def countable(value: int) -> int:
    """A figure that SQLite can hold; what others wrote may be of any size."""
    return min(max(value, -LARGEST), LARGEST)
