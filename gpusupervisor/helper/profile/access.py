"""A GPU's settings reached from the event loop, each call in the NVML thread within a deadline."""

from collections.abc import Callable

from gpusupervisor.clock import Clock
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.sensors import read_sensors
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.profile.card import Card, Result
from gpusupervisor.helper.values import Sensors

DEADLINE = 5.0
"""Seconds; the first call may have to wake the GPU."""


class NvmlAccess:
    """One GPU by its UUID."""

    def __init__(self, thread: NvmlThread, session: HardwareSession, gpu: str) -> None:
        self._thread = thread
        self._session = session
        self._gpu = gpu

    @property
    def generation(self) -> int:
        """Counts how often NVML was initialised."""
        return self._session.generation

    async def read_sensors(self, clock: Clock) -> Sensors:
        """What its sensors tell now; raises a CardError."""
        return await self._thread.call(self._run, lambda gpu: read_sensors(gpu, clock), deadline=DEADLINE)

    async def ask(self, work: Callable[[Card], Result]) -> Result:
        """Run `work` with the card; raises a CardError."""
        return await self._thread.call(self._run, work, deadline=DEADLINE)

    def _run(self, work: Callable[[GpuHardware], Result]) -> Result:
        try:
            return work(self._session.gpu(self._gpu))
        except DriverError as error:
            if error.error_class == "lifecycle":
                self._session.close()  # opened again, with handles that are good, by the next call
            raise
