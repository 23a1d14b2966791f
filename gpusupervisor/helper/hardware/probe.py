"""What one GPU lets us read and set, and why not the rest. NVML thread only."""

import ctypes
from collections.abc import Callable
from functools import partial

from gpusupervisor.gpu.calls import has
from gpusupervisor.gpu.errors import FUNCTION_NOT_FOUND, DriverError
from gpusupervisor.helper.hardware.fans import Fans
from gpusupervisor.helper.hardware.handle import Handle
from gpusupervisor.helper.hardware.structures import CLOCK_TYPES, ClockOffset
from gpusupervisor.helper.values import Capabilities, Capability, ClockDomain

NO_FANS = "the driver has no fans to control on this GPU, as on laptops and passively cooled cards"
NO_GETTER = "NVML cannot read locked clocks back"
VOLTA, AMPERE = 5, 7
"""nvmlDeviceArchitecture_t."""
LOCKING: dict[ClockDomain, tuple[str, int, str]] = {
    "graphics": ("nvmlDeviceSetGpuLockedClocks", VOLTA, "Volta"),
    "memory": ("nvmlDeviceSetMemoryLockedClocks", AMPERE, "Ampere"),
}


class Probe:
    """One pass over everything."""

    def __init__(self, handle: Handle, fans: Fans, *, may_write: bool) -> None:
        """may_write: False leaves it open whether a power limit that can be read can be set too."""
        self._may_write = may_write
        self._handle = handle
        self._fans = fans
        self.conclusive = True
        """False after an error that may pass: what was found out is not to be kept."""

    def run(self) -> Capabilities:
        """Ask for everything; raises DriverError when the GPU or the driver is gone."""
        fans, count = self._fan_control()
        return Capabilities(
            fans=fans,
            fan_count=count,
            temperature=self._capability(self._temperature),
            power_limit=self._capability(self._power_limit),
            offsets={domain: self._capability(partial(self._offset, domain)) for domain in CLOCK_TYPES},
            locked_clocks={domain: self._capability(partial(self._locking, domain)) for domain in CLOCK_TYPES},
            persistence=self._capability(partial(self._readable, "nvmlDeviceGetPersistenceMode")),
        )

    def _capability(self, find_out: Callable[[], Capability]) -> Capability:
        try:
            return find_out()
        except DriverError as error:
            self._note(error)
            return Capability("unsupported", str(error))

    def _note(self, error: DriverError) -> None:
        if error.error_class == "lifecycle":
            raise error
        if error.error_class == "transient":
            self.conclusive = False

    def _readable(self, function: str, *arguments: object) -> Capability:
        self._handle.ask(function, *arguments)
        return Capability("supported")

    def _temperature(self) -> Capability:
        if self._handle.try_ask("nvmlDeviceGetTemperatureV", 0) is not None:
            return Capability("supported")
        return self._readable("nvmlDeviceGetTemperature", 0)

    def _fan_control(self) -> tuple[Capability, int]:
        try:
            count = self._fans.count()
        except DriverError as error:
            self._note(error)
            absent = error.error_class in ("unsupported", "refused")
            return Capability("unsupported", NO_FANS if absent else str(error)), 0
        if not count:
            return Capability("unsupported", NO_FANS), 0
        if not (has("nvmlDeviceSetFanSpeed_v2") and has("nvmlDeviceSetDefaultFanSpeed_v2")):
            return Capability("read-only", "fans can be set from driver 515.43 on"), count
        return self._capability(self._fan_range), count

    def _fan_range(self) -> Capability:
        low, high = self._fans.limits()
        if not 0 <= low < high <= 100:
            return Capability("read-only", "the driver does not tell which fan speeds the card accepts")
        return Capability("supported", "", low, high)

    def _power_limit(self) -> Capability:
        limit = self._handle.ask("nvmlDeviceGetPowerManagementLimit")
        low, high = self._handle.ask("nvmlDeviceGetPowerManagementLimitConstraints")
        default = self._handle.try_ask("nvmlDeviceGetPowerManagementDefaultLimit")
        if not 0 < low < high:
            return Capability("read-only", "the card's power limit is fixed", low, high, default)
        if not self._may_write:
            return Capability("supported", "", low, high, default)
        try:
            # Laptops tell limits and refuse every write (since driver 530): only writing what stands tells them apart.
            self._handle.ask("nvmlDeviceSetPowerManagementLimit", limit)
        except DriverError as error:
            self._note(error)
            if error.error_class != "refused":
                return Capability("read-only", str(error), low, high, default)
        return Capability("supported", "", low, high, default)

    def _offset(self, domain: ClockDomain) -> Capability:
        offset = ClockOffset.of(domain)
        try:
            self._handle.ask_c("nvmlDeviceGetClockOffsets", ctypes.byref(offset))
        except DriverError as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
            return Capability("unsupported", "clock offsets can be set from driver 555.42 on")
        if not offset.minimum < offset.maximum:
            return Capability("unsupported", "the card takes no clock offset")
        return Capability("supported", "", offset.minimum, offset.maximum, 0)

    def _locking(self, domain: ClockDomain) -> Capability:
        function, oldest, name = LOCKING[domain]
        architecture = self._handle.try_ask("nvmlDeviceGetArchitecture")
        if not has(function) or (architecture is not None and architecture < oldest):
            return Capability("unsupported", f"{domain} clocks can be locked on {name} and later GPUs")
        highest = int(self._handle.ask("nvmlDeviceGetMaxClockInfo", CLOCK_TYPES[domain]))
        return Capability("unverifiable", NO_GETTER, 0, highest)
