"""What the helper controls, as frozen values. Percent, mW, MHz, degrees Celsius, all int; None = not known."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Support = Literal["supported", "read-only", "unsupported", "unverifiable"]
ClockDomain = Literal["graphics", "memory"]
FanMode = Literal["automatic", "fixed", "curve"]
FanPolicy = Literal["automatic", "manual", "unknown"]


@dataclass(frozen=True, slots=True)
class Capability:
    """Whether one thing can be read and set on one GPU, and why not."""

    support: Support
    reason: str = ""
    """Empty when supported."""
    minimum: int | None = None
    maximum: int | None = None
    default: int | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Of one GPU, probed once per driver generation."""

    fans: Capability
    """minimum and maximum: percent that the card accepts. A laptop's is unsupported, with the reason."""
    fan_count: int
    temperature: Capability
    power_limit: Capability
    """mW."""
    offsets: Mapping[ClockDomain, Capability]
    """MHz of offset; `unverifiable` where the driver never reports what is set."""
    locked_clocks: Mapping[ClockDomain, Capability]
    """MHz; settable ones are at best `unverifiable`: NVML has no getter."""
    persistence: Capability


@dataclass(frozen=True, slots=True)
class FanReading:
    """One fan now."""

    index: int
    percent: int | None
    """Speed that the driver intends; may exceed the target when the card is hot."""
    target: int | None
    rpm: int | None
    policy: FanPolicy


@dataclass(frozen=True, slots=True)
class Temperatures:
    """One GPU now, with the limits that matter."""

    gpu: int | None
    slowdown: int | None
    """At which the hardware throttles."""
    shutdown: int | None


@dataclass(frozen=True, slots=True)
class Sensors:
    """One GPU at one moment; None = not told."""

    at: int
    """Microseconds of the domain clock, when the energy was read."""
    power: int | None
    """mW."""
    energy: int | None
    """mJ since the driver was loaded."""
    temperature: int | None
    """Degrees Celsius."""
    reasons: frozenset[str]
    """What holds the clocks down, e.g. "sw-power-cap"."""
    power_limit: int | None
    """mW, as set."""
    offset: int | None
    """MHz of the graphics clock, as set."""


@dataclass(frozen=True, slots=True)
class FanSetting:
    """What is wanted of one fan."""

    mode: FanMode = "automatic"
    percent: int = 0
    """fixed."""
    points: tuple[tuple[int, int], ...] = ()
    """curve: (degrees, percent), ascending in both."""
    hysteresis: int = 3
    """Degrees that it must be cooler before a curve slows the fan down."""
    spin_down_delay: int = 5_000_000
    """Microseconds that it must stay cooler, likewise."""
    zero_rpm_below: int = 0
    """Degrees below which a curve hands the fan back to automatic, which may stop it; 0 = never."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Wanted settings of one GPU; what is None or missing is left as it is."""

    power_limit: int | None = None
    offsets: Mapping[ClockDomain, int] = field(default_factory=dict)
    locked_clocks: Mapping[ClockDomain, tuple[int, int]] = field(default_factory=dict)
    persistence: bool | None = None
    fans: Mapping[int, FanSetting] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What became of one setting of a profile."""

    item: str
    """"power-limit", "offset-graphics", "locked-clocks-memory", "persistence", "fan-0", ..."""
    ok: bool
    asked: str
    accepted: str
    """Read back right after applying: drivers snap values; empty when nothing can be read."""
    detail: str = ""
    """Why it failed, or why it cannot be verified."""
