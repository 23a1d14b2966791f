"""What one GPU's sensors tell at one moment, and what is set on it. NVML thread only."""

from collections.abc import Callable

from gpusupervisor.clock import Clock
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.values import Sensors


def read_sensors(gpu: GpuHardware, clock: Clock) -> Sensors:
    """Everything; raises DriverError when the GPU or the driver is gone."""
    known = gpu.capabilities()
    readable = known.offsets["graphics"].support == "supported"
    at, energy = clock.now(), gpu.energy()
    return Sensors(
        at=at,
        power=gpu.power_usage(),
        energy=energy,
        temperature=gpu.temperatures().gpu,
        reasons=gpu.clock_event_reasons(),
        power_limit=_told(gpu.power_limit),
        offset=_told(lambda: gpu.offset("graphics")) if readable else None,
    )


def _told(read: Callable[[], int]) -> int | None:
    try:
        return read()
    except DriverError as error:
        if error.error_class == "lifecycle":
            raise
        return None
