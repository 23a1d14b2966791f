"""What profiles need of a GPU and of its fans: the calls, how they are reached, and the settings read back."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.nvml_thread import DriverUnresponsive
from gpusupervisor.helper.profile.items import DOMAINS, OFFSETS, PERSISTENCE, POWER_LIMIT
from gpusupervisor.helper.values import Capabilities, ClockDomain, FanSetting, Profile

Result = TypeVar("Result")
CardError = (DriverError, DriverUnresponsive, NoSuchGpu)
"""How a call of the card fails."""


class Card(Protocol):
    """One GPU's settings; synchronous, in the NVML thread, everything raises DriverError."""

    def capabilities(self) -> Capabilities:
        """What can be set, and in which range."""

    def power_limit(self) -> int:
        """mW, as requested of the driver."""

    def enforced_power_limit(self) -> int | None:
        """mW that the least of all limiters leaves; None where the driver does not tell."""

    def set_power_limit(self, milliwatts: int) -> int:
        """Set; the value read back."""

    def offset(self, domain: ClockDomain) -> int:
        """MHz."""

    def set_offset(self, domain: ClockDomain, megahertz: int) -> int | None:
        """Set; the value read back, None when the driver does not report what is set."""

    def set_locked_clocks(self, domain: ClockDomain, low: int, high: int) -> tuple[int, int]:
        """Set; NVML has no getter."""

    def reset_locked_clocks(self, domain: ClockDomain) -> None:
        """Clocks of this domain are free again."""

    def persistence(self) -> bool:
        """Is persistence mode on?"""

    def set_persistence(self, on: bool) -> bool:
        """Set; the value read back."""

    def clock_event_reasons(self) -> frozenset[str]:
        """Why clocks are lower than they could be, e.g. "hw-thermal-slowdown"."""


class Access(Protocol):
    """One GPU, reached from the event loop."""

    @property
    def generation(self) -> int:
        """Counts how often NVML was initialised: a new one may be a driver that was loaded anew."""

    async def ask(self, work: Callable[[Card], Result]) -> Result:
        """Run `work` with the card; raises a CardError."""


class Fans(Protocol):
    """The fan loop of one GPU, which keeps what it is told by itself."""

    def settings(self) -> Mapping[int, FanSetting]:
        """What is wanted of every fan that is known; of another nothing, so it is automatic."""

    def set_fan(self, index: int, setting: FanSetting) -> Awaitable[None]:
        """Take this setting from now on; raises a CardError or a SupervisorError."""


async def present(access: Access) -> Capabilities:
    """What can be set on a card that answers now; raises a CardError when it does not.

    A handle of an earlier generation of the driver fails once and is then renewed, so it is asked twice.
    """
    try:
        return await access.ask(_answer)
    except DriverError as error:
        if error.error_class != "lifecycle":
            raise
    return await access.ask(_answer)


def _answer(card: Card) -> Capabilities:
    card.clock_event_reasons()  # asks the driver in any case; capabilities are kept from before
    return card.capabilities()


@dataclass(frozen=True, slots=True)
class Reading:
    """What the driver says is set now. Fans are not in it: their loop looks at them at every step."""

    values: Profile
    """What could be read of what was wanted."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """By item: why it could not be read."""
    enforced_power_limit: int | None = None
    slowdown: frozenset[str] = frozenset()
    """Why clocks are held down."""


async def read_settings(access: Access, wanted: Collection[str]) -> Reading:
    """The wanted items, each by itself, so that one that fails does not hide the others."""
    failures: dict[str, str] = {}

    async def read(item: str, getter: Callable[[Card], Result]) -> Result | None:
        if item not in wanted:
            return None
        try:
            return await access.ask(getter)
        except CardError as error:
            failures[item] = str(error)
            return None

    persistence = await read(PERSISTENCE, lambda card: card.persistence())
    power = await read(POWER_LIMIT, lambda card: card.power_limit())
    offsets = {
        domain: value
        for domain in DOMAINS
        if (value := await read(OFFSETS[domain], _offset_getter(domain))) is not None
    }
    enforced: int | None = None
    slowdown: frozenset[str] = frozenset()
    try:
        if power is not None:
            enforced = await access.ask(lambda card: card.enforced_power_limit())
        slowdown = await access.ask(lambda card: card.clock_event_reasons())
    except CardError:
        pass  # both only explain
    return Reading(Profile(power, offsets, {}, persistence), failures, enforced, slowdown)


def _offset_getter(domain: ClockDomain) -> Callable[[Card], int]:
    return lambda card: card.offset(domain)
