"""The fans of one GPU, one by one. NVML thread only; raises DriverError."""

import ctypes

from gpusupervisor.gpu.calls import has
from gpusupervisor.gpu.errors import FUNCTION_NOT_FOUND, DriverError
from gpusupervisor.helper.hardware.handle import Handle
from gpusupervisor.helper.hardware.structures import FanSpeedInfo
from gpusupervisor.helper.values import FanPolicy, FanReading

POLICIES: dict[int, FanPolicy] = {0: "automatic", 1: "manual"}
"""nvmlFanControlPolicy_t: NVML_FAN_POLICY_TEMPERATURE_CONTINOUS_SW, NVML_FAN_POLICY_MANUAL."""

MOST_FANS = 16
"""No card has more."""


class Fans:
    """Percent of the speed at full, whole numbers from end to end."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def count(self) -> int:
        """How many can be commanded; raises DriverError where the driver has none to command, as on laptops."""
        try:
            return int(self._handle.ask("nvmlDeviceGetNumFans"))
        except DriverError as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
        return self._count_by_reading()

    def limits(self) -> tuple[int, int]:
        """Lowest and highest percent that the card accepts for all its fans."""
        low, high = self._handle.ask("nvmlDeviceGetMinMaxFanSpeed")
        return int(low), int(high)

    def read(self, index: int) -> FanReading:
        """One fan now; what the driver does not tell is None."""
        return FanReading(
            index=index,
            percent=self._percent(index),
            target=self.target(index),
            rpm=self._rpm(index),
            policy=self.policy(index),
        )

    def target(self, index: int) -> int | None:
        """Percent that was last asked of a fan; None before driver 520.56."""
        told = self._handle.try_ask("nvmlDeviceGetTargetFanSpeed", index)
        return None if told is None else int(told)

    def policy(self, index: int) -> FanPolicy:
        """Who sets its speed; `unknown` before driver 520.56."""
        return POLICIES.get(self._handle.try_ask("nvmlDeviceGetFanControlPolicy_v2", index), "unknown")

    def set(self, index: int, percent: int) -> int | None:
        """Set a speed, which makes the fan manual; the target read back, None where it cannot be."""
        self._handle.ask("nvmlDeviceSetFanSpeed_v2", index, percent)
        return self.target(index)

    def set_automatic(self, index: int) -> FanPolicy:
        """Give a fan back to the driver; the policy read back."""
        self._handle.ask("nvmlDeviceSetDefaultFanSpeed_v2", index)
        return self.policy(index)

    def _count_by_reading(self) -> int:
        """Drivers before 510.39 do not tell how many there are; those before 418.30 have no more than one."""
        if not has("nvmlDeviceGetFanSpeed_v2"):
            self._handle.ask("nvmlDeviceGetFanSpeed")
            return 1
        self._handle.ask("nvmlDeviceGetFanSpeed_v2", 0)
        count = 1
        while count < MOST_FANS and self._handle.try_ask("nvmlDeviceGetFanSpeed_v2", count) is not None:
            count += 1
        return count

    def _percent(self, index: int) -> int | None:
        told = self._handle.try_ask("nvmlDeviceGetFanSpeed_v2", index)
        if told is None and index == 0:  # drivers before 418.30
            told = self._handle.try_ask("nvmlDeviceGetFanSpeed")
        return None if told is None else int(told)

    def _rpm(self, index: int) -> int | None:
        """pynvml's own wrapper reads fan 0 whichever is asked for."""
        info = FanSpeedInfo.of(index)
        try:
            self._handle.ask_c("nvmlDeviceGetFanSpeedRPM", ctypes.byref(info))
        except DriverError as error:
            if error.error_class == "lifecycle":
                raise
            return None
        return info.speed
