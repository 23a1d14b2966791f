"""What the helper controls, as the supervisor shows it: fans, profile, drift, and what can be set at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from gpusupervisor.gpu.sample import GpuIdentity

NOT_ASKED = "the helper has not been asked yet"


@dataclass(frozen=True, slots=True)
class Ability:
    """Whether one thing of a GPU can be set."""

    item: str
    """"fans", "power-limit" (mW), "offset-graphics" (MHz), ..."""
    support: str
    """supported, read-only, unsupported or unverifiable."""
    reason: str = ""
    minimum: int | None = None
    maximum: int | None = None
    default: int | None = None


@dataclass(frozen=True, slots=True)
class FanState:
    """One fan: what is wanted of it, and how it was when it was looked at last."""

    index: int
    mode: str
    """automatic, fixed or curve."""
    percent: int | None = None
    points: tuple[tuple[int, int], ...] = ()
    """(degrees, percent)."""
    options: Mapping[str, int] = field(default_factory=dict)
    """Of a curve, by the names that SetCurve takes."""
    policy: str = ""
    verdict: str = ""
    speed: int | None = None
    """Percent."""
    target: int | None = None
    rpm: int | None = None


@dataclass(frozen=True, slots=True)
class SettingResult:
    """What became of one setting."""

    item: str
    ok: bool
    asked: str
    accepted: str
    detail: str


@dataclass(frozen=True, slots=True)
class DriftVerdict:
    """Whether one setting still stands."""

    item: str
    verdict: str
    """ok, drifted, overridden, unverifiable or contested."""
    cause: str
    accepted: str
    found: str
    detail: str


@dataclass(frozen=True, slots=True)
class GpuControls:
    """Of one GPU. Times are realtime microseconds; documents are JSON, empty for none."""

    identity: GpuIdentity
    condition: str
    """ok, asleep, given-away or unavailable."""
    detail: str = ""
    abilities: tuple[Ability, ...] = ()
    fans: tuple[FanState, ...] = ()
    fan_control: str = ""
    """idle, controlling, fail-safe, unsupported, unavailable; empty when not looked at yet."""
    fan_control_reason: str = ""
    read_at: int | None = None
    profile: str = ""
    accepted: str = ""
    results: tuple[SettingResult, ...] = ()
    applied_at: int | None = None
    phase: str = ""
    distrust: str = ""
    """Why the profile is not applied by itself."""
    problem: str = ""
    drift: tuple[DriftVerdict, ...] = ()
    trial: str = ""
    trial_deadline: int | None = None
    last_trial: str = ""
    last_trial_reason: str = ""

    def ability(self, item: str) -> Ability | None:
        """Whether an item can be set; None when it is not known yet."""
        return next((ability for ability in self.abilities if ability.item == item), None)

    @property
    def is_held(self) -> bool:
        """The helper controls something of it."""
        return bool(self.profile or self.trial) or any(fan.mode != "automatic" for fan in self.fans)


@dataclass(frozen=True, slots=True)
class Controls:
    """Of all GPUs, by UUID."""

    gpus: Mapping[str, GpuControls] = field(default_factory=dict)
    problem: str = NOT_ASKED
    """Why nothing (new) is known; empty when all is well."""


@dataclass(frozen=True, slots=True)
class FanWish:
    """What somebody wants of a fan."""

    mode: str
    percent: int = 0
    points: tuple[tuple[int, int], ...] = ()
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TuningWish:
    """The sweep that somebody wants of a GPU's power limit."""

    engine: str
    """The id of the engine that works meanwhile."""
    model: str = ""
    """What it runs, where it has several."""
    steps: int = 8
    """Power limits that are tried."""
    tokens: int = 256
    """Of one run."""
    tolerance: int = 5
    """Percent of the best throughput that may be given up."""
    offsets: tuple[int, ...] = ()
    """MHz of the graphics clock, each tried with every power limit; none leaves it as it is."""


class HardwareController(Protocol):
    """What the bus may ask to be done to a GPU. gpu: UUID. Every method raises SupervisorErrors only."""

    async def set_fan(self, gpu: str, fan: int, wish: FanWish) -> None:
        """Set one fan."""

    async def try_profile(self, gpu: str, document: str, within: int) -> tuple[SettingResult, ...]:
        """Set a profile, to be confirmed within so many microseconds."""

    async def confirm(self, gpu: str) -> None:
        """Keep the profile on trial."""

    async def revert(self, gpu: str) -> tuple[SettingResult, ...]:
        """Set the state before the trial again."""

    async def apply_profile(self, gpu: str, document: str) -> tuple[SettingResult, ...]:
        """Set a profile and keep it."""

    async def reset_profile(self, gpu: str) -> tuple[SettingResult, ...]:
        """The card's defaults, and no profile."""

    async def check_drift(self, gpu: str) -> tuple[DriftVerdict, ...]:
        """Look now whether the profile still stands."""

    async def detach(self, gpu: str) -> None:
        """Give the GPU away."""

    async def attach(self, gpu: str) -> None:
        """Take it back."""
