"""The fans of one GPU, one by one. NVML thread only; raises DriverError."""

import ctypes

from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.hardware.handle import Handle
from gpusupervisor.helper.hardware.structures import FanSpeedInfo
from gpusupervisor.helper.values import FanPolicy, FanReading

POLICIES: dict[int, FanPolicy] = {0: "automatic", 1: "manual"}
"""nvmlFanControlPolicy_t: NVML_FAN_POLICY_TEMPERATURE_CONTINOUS_SW, NVML_FAN_POLICY_MANUAL."""


class Fans:
    """Percent of the speed at full, whole numbers from end to end."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def count(self) -> int:
        """How many can be commanded; raises DriverError where the driver has none to command, as on laptops."""
        return int(self._handle.ask("nvmlDeviceGetNumFans"))

    def limits(self) -> tuple[int, int]:
        """Lowest and highest percent that the card accepts for all its fans."""
        low, high = self._handle.ask("nvmlDeviceGetMinMaxFanSpeed")
        return int(low), int(high)

    def read(self, index: int) -> FanReading:
        """One fan now; what the driver does not tell is None."""
        return FanReading(
            index=index,
            percent=self._handle.try_ask("nvmlDeviceGetFanSpeed_v2", index),
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
