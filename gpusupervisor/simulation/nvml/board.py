"""What a simulated card can be set to, how it answers, and what is set on it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ALL_SETTINGS = ("fans", "power", "offsets", "locked-clocks", "persistence")


@dataclass
class Board:
    """What the card is and how it behaves. Percent, mW, MHz, degrees Celsius, seconds."""

    fan_count: int = 2
    """0: a laptop or a passive card, whose driver answers NOT_SUPPORTED."""
    fan_range: tuple[int, int] = (30, 100)
    rejects_fan_range: bool = True
    """Speeds out of range are INVALID_ARGUMENT; otherwise the driver takes them as they are."""
    fan_ramp: float = 0.0
    """Percent a second by which a fan nears its target; 0 for at once."""
    deaf_fans: list[int] = field(default_factory=list)
    """Fans that take a target and stay at the speed they have."""
    fans_settable: bool = True
    """False: reading works, every setter answers NOT_SUPPORTED."""
    automatic_percent: int = 35
    temperature: int = 50
    sensor_reads: int | None = None
    """What the sensor says instead of the truth: stuck, or garbage."""
    slowdown: int | None = 92
    shutdown: int | None = 95
    """None: the threshold call answers NOT_SUPPORTED and the margin is to be asked, as with Ada and later."""
    limit: int = 84
    """T.Limit, to which the margin is told."""
    override_above: int | None = None
    """From this temperature on the driver runs the fans at full, whatever was asked of them."""
    architecture: int = 8
    """nvmlDeviceArchitecture_t: 8 is Ada."""
    power: int = 60_000
    """What the load would draw; what is drawn keeps the limit."""
    power_range: tuple[int, int] | None = (150_000, 480_000)
    power_default: int = 450_000
    power_settable: bool = True
    clocks: dict[str, int] = field(default_factory=lambda: {"graphics": 2520, "memory": 10501})
    """What the load would run at: locks, offsets and the power limit change it."""
    max_clocks: dict[str, int] = field(default_factory=lambda: {"graphics": 3105, "memory": 10501})
    pstate: int = 0
    pstates: list[int] = field(default_factory=lambda: [0, 2, 3, 5, 8])
    linked_pstates: bool = False
    """An offset for one P-state is set for all."""
    offset_ranges: dict[str, tuple[int, int]] = field(
        default_factory=lambda: {"graphics": (-1000, 1000), "memory": (-2000, 6000)}
    )
    """Clocks without a range answer NOT_SUPPORTED."""
    offset_step: int = 1
    """Offsets are snapped to multiples of it, towards zero."""
    offsets_reported: bool = True
    """False: they work and read as 0."""
    lockable: list[str] = field(default_factory=lambda: ["graphics", "memory"])
    persistence_supported: bool = True
    clock_event_reasons: int = 0
    """Bits beside those that follow from the rest."""
    event_types: int = 8
    """Supported ones; 8 is Xid."""
    lost_on_resume: list[str] = field(default_factory=lambda: ["fans", "power", "offsets", "locked-clocks"])
    """Of ALL_SETTINGS, those that do not survive a suspend."""
    deinitialises_idle: bool = False
    """Without persistence, all settings are lost when the last client of this process leaves the card unused."""


@dataclass
class FanState:
    """One fan, and where it came from when it was last told something."""

    manual: bool = False
    target: int = 0
    began_from: float = 0.0
    began_at: float = 0.0


@dataclass
class Settings:
    """What is set on one card."""

    fans: list[FanState] = field(default_factory=list)
    power_limit: int | None = None
    """None: the default."""
    offsets: dict[str, int] = field(default_factory=dict)
    """By clock and P-state, e.g. "graphics/0"."""
    locked_clocks: dict[str, tuple[int, int]] = field(default_factory=dict)
    persistence: bool = False

    @classmethod
    def of(cls, board: Board) -> "Settings":
        """As the driver leaves them when it initialises the card."""
        return cls([_automatic(board) for _ in range(board.fan_count)])

    def lose(self, board: Board, what: list[str]) -> None:
        """Fall back to the default; what: of ALL_SETTINGS."""
        fresh = Settings.of(board)
        for name in what:
            attribute = {"power": "power_limit", "locked-clocks": "locked_clocks"}.get(name, name)
            setattr(self, attribute, getattr(fresh, attribute))

    def to_json(self) -> dict[str, Any]:
        """For a state file."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: Mapping[str, Any]) -> "Settings":
        """From a state file."""
        locked = {clock: (low, high) for clock, (low, high) in text["locked_clocks"].items()}
        return cls(**{**text, "fans": [FanState(**fan) for fan in text["fans"]], "locked_clocks": locked})


def power_limit(board: Board, settings: Settings) -> int:
    """mW that are allowed."""
    return board.power_default if settings.power_limit is None else settings.power_limit


def power_drawn(board: Board, settings: Settings) -> int:
    """mW that the load takes within what is allowed."""
    return min(board.power, power_limit(board, settings))


def fan_speed(board: Board, settings: Settings, index: int, now: float) -> int:
    """Percent at which a fan runs now; above 100 when the driver overrides because it is hot."""
    fan = settings.fans[index]
    if index in board.deaf_fans:
        return round(fan.began_from)
    goal = float(fan.target if fan.manual else board.automatic_percent)
    if board.override_above is not None and board.temperature >= board.override_above:
        return max(round(goal), 118)
    if not board.fan_ramp:
        return round(goal)
    reach = board.fan_ramp * (now - fan.began_at)
    return round(min(goal, fan.began_from + reach) if goal > fan.began_from else max(goal, fan.began_from - reach))


def command_fan(board: Board, settings: Settings, index: int, now: float, percent: int | None) -> None:
    """Set a fan's speed; None for automatic."""
    speed = fan_speed(board, settings, index, now)
    target = board.automatic_percent if percent is None else percent
    settings.fans[index] = FanState(percent is not None, target, float(min(speed, 100)), now)


def _automatic(board: Board) -> FanState:
    return FanState(target=board.automatic_percent, began_from=float(board.automatic_percent))
