"""One GPU's settings, read and written; every value is clamped to the hardware's own limits. NVML thread only."""

import ctypes
from dataclasses import replace

from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.helper.hardware.fans import Fans
from gpusupervisor.helper.hardware.handle import Handle
from gpusupervisor.helper.hardware.probe import Probe
from gpusupervisor.helper.hardware.structures import CLOCK_TYPES, ClockOffset
from gpusupervisor.helper.hardware.thermometer import Thermometer
from gpusupervisor.helper.values import Capabilities, Capability, ClockDomain, FanPolicy, FanReading, Temperatures

LARGEST_STEP = 30
"""MHz: drivers snap offsets to steps of at most this, so a larger one that reads as 0 is not reported."""
NOT_REPORTED = "this driver does not report the clock offsets that are set"
UNKNOWN_STATE = 32
"""NVML_PSTATE_UNKNOWN."""
REASONS = {
    0x1: "idle",
    0x2: "locked-clocks",
    0x4: "sw-power-cap",
    0x8: "hw-slowdown",
    0x10: "sync-boost",
    0x20: "sw-thermal-slowdown",
    0x40: "hw-thermal-slowdown",
    0x80: "hw-power-brake",
    0x100: "display-clocks",
}
"""nvmlClocksEventReason*. 0x2 is set by locked and by application clocks."""
LOCK: dict[ClockDomain, tuple[str, str]] = {
    "graphics": ("nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks"),
    "memory": ("nvmlDeviceSetMemoryLockedClocks", "nvmlDeviceResetMemoryLockedClocks"),
}


class GpuHardware:
    """One GPU of this initialisation of NVML. Everything raises DriverError; ValueRefused for a value not taken."""

    def __init__(self, identity: GpuIdentity, handle: Handle, *, may_write: bool) -> None:
        self.identity = identity
        self._may_write = may_write
        self._handle = handle
        self._fans = Fans(handle)
        self._thermometer = Thermometer(handle)
        self._known: Capabilities | None = None

    def capabilities(self) -> Capabilities:
        """What can be read and set: probed once, refined by what setters meet."""
        if self._known is not None:
            return self._known
        probe = Probe(self._handle, self._fans, may_write=self._may_write)
        found = probe.run()
        if probe.conclusive:
            self._known = found
        return found

    def temperatures(self) -> Temperatures:
        """Degrees Celsius; `gpu` is None when it cannot be read or cannot be true."""
        return self._thermometer.read()

    def fans(self) -> tuple[FanReading, ...]:
        """Every fan now; none on a GPU without."""
        return tuple(self._fans.read(index) for index in range(self.capabilities().fan_count))

    def set_fan(self, index: int, percent: int) -> int | None:
        """Set one fan's speed, which makes it manual; the target read back, None where there is no getter."""
        allowed = self.capabilities().fans
        try:
            return self._fans.set(index, clamped(percent, allowed))
        except DriverError as error:
            if _is_settled(error):
                self._refine(fans=_read_only(allowed, error))
            raise

    def set_fan_automatic(self, index: int) -> FanPolicy:
        """Give one fan back to the driver; the policy read back, `unknown` where there is no getter."""
        return self._fans.set_automatic(index)

    def power_limit(self) -> int:
        """mW, as it was asked of the driver; what is enforced may be less (nvidia-powerd, the board)."""
        return int(self._handle.ask("nvmlDeviceGetPowerManagementLimit"))

    def enforced_power_limit(self) -> int | None:
        """mW that the least of all limiters leaves; None when it is not told."""
        told = self._handle.try_ask("nvmlDeviceGetEnforcedPowerLimit")
        return None if told is None else int(told)

    def set_power_limit(self, milliwatts: int) -> int:
        """Set it; mW read back."""
        allowed = self.capabilities().power_limit
        try:
            self._handle.ask("nvmlDeviceSetPowerManagementLimit", clamped(milliwatts, allowed))
        except DriverError as error:
            if _is_settled(error):
                self._refine(power_limit=_read_only(allowed, error))
            raise
        return self.power_limit()

    def power_usage(self) -> int | None:
        """mW now (an average over a second on most cards); None when it is not told."""
        told = self._handle.try_ask("nvmlDeviceGetPowerUsage")
        return None if told is None else int(told)

    def energy(self) -> int | None:
        """mJ since the driver was loaded; None where the card does not count it (before Volta)."""
        told = self._handle.try_ask("nvmlDeviceGetTotalEnergyConsumption")
        return None if told is None else int(told)

    def offset(self, domain: ClockDomain) -> int:
        """MHz at P-state 0, as the driver reports it: always 0 where that is `unverifiable`."""
        told = ClockOffset.of(domain)
        self._handle.ask_c("nvmlDeviceGetClockOffsets", ctypes.byref(told))
        return told.offset

    def set_offset(self, domain: ClockDomain, megahertz: int) -> int | None:
        """Set it at P-state 0; MHz read back (drivers snap to steps), None when the driver does not report it."""
        allowed = self.capabilities().offsets[domain]
        wanted = clamped(megahertz, allowed)
        try:
            self._handle.ask_c("nvmlDeviceSetClockOffsets", ctypes.byref(ClockOffset.of(domain, wanted)))
        except DriverError as error:
            if _is_settled(error):
                self._refine_offset(domain, _read_only(allowed, error))
            raise
        accepted = self.offset(domain)
        if accepted == 0 and abs(wanted) >= LARGEST_STEP:
            self._refine_offset(domain, replace(allowed, support="unverifiable", reason=NOT_REPORTED))
        return None if self.capabilities().offsets[domain].support == "unverifiable" else accepted

    def set_locked_clocks(self, domain: ClockDomain, low: int, high: int) -> tuple[int, int]:
        """Keep a clock between two MHz; what was asked of the driver, since NVML reads nothing back."""
        allowed = self.capabilities().locked_clocks[domain]
        lower, upper = clamped(low, allowed), clamped(high, allowed)
        try:
            self._handle.ask(LOCK[domain][0], lower, upper)
        except DriverError as error:
            if _is_settled(error):
                self._refine_locking(domain, Capability("unsupported", str(error)))
            raise
        return lower, upper

    def reset_locked_clocks(self, domain: ClockDomain) -> None:
        """Let a clock move freely again."""
        self._handle.ask(LOCK[domain][1])

    def persistence(self) -> bool:
        """Whether the driver stays initialised, its settings with it, while nobody uses the GPU."""
        return bool(self._handle.ask("nvmlDeviceGetPersistenceMode"))

    def set_persistence(self, on: bool) -> bool:
        """Switch it; read back."""
        self._handle.ask("nvmlDeviceSetPersistenceMode", int(on))
        return self.persistence()

    def clock(self, domain: ClockDomain) -> int | None:
        """MHz now; None when it is not told."""
        told = self._handle.try_ask("nvmlDeviceGetClockInfo", CLOCK_TYPES[domain])
        return None if told is None else int(told)

    def performance_state(self) -> int | None:
        """P-state now, 0 (fastest) to 15; None when it is not told."""
        told = self._handle.try_ask("nvmlDeviceGetPerformanceState")
        return None if told in (None, UNKNOWN_STATE) else int(told)

    def clock_event_reasons(self) -> frozenset[str]:
        """What holds the clocks down now, in the words of REASONS; empty when nothing does or it is not told."""
        told = self._handle.try_ask("nvmlDeviceGetCurrentClocksEventReasons")
        if told is None:  # drivers before 535.43
            told = self._handle.try_ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        return frozenset(word for bit, word in REASONS.items() if (told or 0) & bit)

    def _refine(self, *, fans: Capability | None = None, power_limit: Capability | None = None) -> None:
        known = self.capabilities()
        self._known = replace(known, fans=fans or known.fans, power_limit=power_limit or known.power_limit)

    def _refine_offset(self, domain: ClockDomain, capability: Capability) -> None:
        known = self.capabilities()
        self._known = replace(known, offsets={**known.offsets, domain: capability})

    def _refine_locking(self, domain: ClockDomain, capability: Capability) -> None:
        known = self.capabilities()
        self._known = replace(known, locked_clocks={**known.locked_clocks, domain: capability})


def clamped(value: int, allowed: Capability) -> int:
    """`value` within what the hardware takes; as it is where that is not known."""
    if allowed.minimum is not None:
        value = max(value, allowed.minimum)
    if allowed.maximum is not None:
        value = min(value, allowed.maximum)
    return value


def _is_settled(error: DriverError) -> bool:
    """It will be answered so for as long as this driver is loaded."""
    return error.error_class in ("unsupported", "permission")


def _read_only(allowed: Capability, error: DriverError) -> Capability:
    return replace(allowed, support="read-only", reason=str(error))
