"""What a card's own sensors tell: for telemetry, nothing is decided by them. NVML thread only."""

from collections.abc import Callable

from gpusupervisor.gpu.calls import ask
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.sample import GpuSensors

SENSOR_GPU = 0
"""NVML_TEMPERATURE_GPU."""
LOWEST, HIGHEST = 1, 129
"""Degrees that a GPU in use can have; sensors that fail have been seen to say 0, 255 and 65535."""

_READ: dict[str, Callable[[object], int]] = {
    "power": lambda handle: int(ask("nvmlDeviceGetPowerUsage", handle)),
    "temperature": lambda handle: int(ask("nvmlDeviceGetTemperature", handle, SENSOR_GPU)),
    "utilization": lambda handle: int(ask("nvmlDeviceGetUtilizationRates", handle).gpu),
    "persistence": lambda handle: int(ask("nvmlDeviceGetPersistenceMode", handle)),
}


class SensorReader:
    """Of one GPU; what it has not is asked once."""

    def __init__(self, handle: object) -> None:
        self._handle = handle
        self._there = dict(_READ)

    def read(self) -> GpuSensors:
        """All now; raises DriverError when the GPU or the driver is gone."""
        told = {name: self._one(name) for name in tuple(self._there)}
        temperature = told.get("temperature")
        if temperature is not None and not LOWEST <= temperature <= HIGHEST:
            temperature = None
        persistence = told.get("persistence")
        mode = None if persistence is None else bool(persistence)
        return GpuSensors(told.get("power"), temperature, told.get("utilization"), mode)

    def _one(self, name: str) -> int | None:
        try:
            return self._there[name](self._handle)
        except DriverError as error:
            if error.is_fatal:
                raise
            if error.error_class == "unsupported":
                del self._there[name]
            return None
