"""The temperatures of one GPU, believed only when they can be true. NVML thread only; raises DriverError."""

from gpusupervisor.helper.hardware.handle import Handle
from gpusupervisor.helper.values import Temperatures

SENSOR_GPU = 0
"""NVML_TEMPERATURE_GPU."""
SHUTDOWN, SLOWDOWN = 0, 1
"""nvmlTemperatureThresholds_t."""
MARGIN_FIELDS = {SHUTDOWN: 193, SLOWDOWN: 194}
"""NVML_FI_DEV_TEMPERATURE_*_TLIMIT: Ada and later tell their thresholds as margins to T.Limit."""
LOWEST, HIGHEST = 1, 129
"""What a GPU in use can have; sensors that fail have been seen to say 0, 255 and 65535."""
LOWEST_THRESHOLD = 50


class Thermometer:
    """Degrees Celsius."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._thresholds: dict[int, int] = {}

    def read(self) -> Temperatures:
        """All now; None for what cannot be read or cannot be true. Raises DriverError when the GPU is gone."""
        gpu = self._gpu()
        return Temperatures(gpu, self._threshold(SLOWDOWN, gpu), self._threshold(SHUTDOWN, gpu))

    def _gpu(self) -> int | None:
        told = self._handle.try_ask("nvmlDeviceGetTemperatureV", SENSOR_GPU)
        if told is None:  # drivers before 565.57
            told = self._handle.try_ask("nvmlDeviceGetTemperature", SENSOR_GPU)
        return told if told is not None and LOWEST <= told <= HIGHEST else None

    def _threshold(self, which: int, gpu: int | None) -> int | None:
        """Thresholds belong to the card, so one that was read is kept."""
        if which not in self._thresholds:
            told = self._handle.try_ask("nvmlDeviceGetTemperatureThreshold", which)
            if told is None and gpu is not None:
                told = self._from_margin(which, gpu)
            if told is None or not LOWEST_THRESHOLD <= told <= HIGHEST:
                return None
            self._thresholds[which] = told
        return self._thresholds[which]

    def _from_margin(self, which: int, gpu: int) -> int | None:
        """The temperature at which the margin to T.Limit will be that of the threshold (itself zero or below)."""
        margin = self._handle.try_ask("nvmlDeviceGetMarginTemperature")
        fields = self._handle.try_ask("nvmlDeviceGetFieldValues", [MARGIN_FIELDS[which]])
        if margin is None or fields is None or fields[0].nvmlReturn:
            return None
        return int(gpu + margin - fields[0].value.siVal)
