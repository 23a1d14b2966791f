"""The GPUs as the rest of the program sees them: asynchronous, never blocking, never raising for the driver."""

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path

from gpusupervisor.clock import Clock
from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.gpu import driver_status
from gpusupervisor.gpu.errors import plain
from gpusupervisor.gpu.nvml_thread import DriverUnresponsive, NvmlThread
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.sample import GpuIdentity, GpuSample, Sample
from gpusupervisor.gpu.session import DriverSession

DEADLINE = 5.0
"""Seconds that one sample may take."""
CLOSING_DEADLINE = 2.0


class GpuMonitor:
    """Takes samples through the NVML thread; a driver that hangs becomes the state `unresponsive`."""

    def __init__(
        self,
        reader: NvmlReader,
        thread: NvmlThread,
        clock: Clock,
        *,
        sysfs_root: Path = SYSFS_PCI_DEVICES,
        deadline: float = DEADLINE,
        given_away: Callable[[], Mapping[str, GpuIdentity]] = dict,
    ) -> None:
        """deadline: seconds that one sample may take. given_away: GPUs that are not to be touched, by UUID."""
        self._session = DriverSession(reader, clock, sysfs_root, given_away)
        self._thread = thread
        self._clock = clock
        self._deadline = deadline
        self._last = Sample(clock.now(), driver_status.STARTING)

    async def sample(
        self, *, fresh_processes: bool = False, utilization: bool = False, needed: bool = True, sensors: bool = False
    ) -> Sample:
        """All GPUs now.

        fresh_processes: read the process lists even if the last ones still stand. utilization: per-process SM time
        too. needed: False when nobody wants figures; said for long enough, NVML is closed so that the GPUs can sleep.
        sensors: what the cards' own sensors tell too.
        """
        try:
            self._last = await self._thread.call(
                self._session.sample, fresh_processes, utilization, needed, sensors, deadline=self._deadline
            )
        except DriverUnresponsive as problem:
            self._last = self._wedged(str(problem))
        return self._last

    async def wake(self) -> Sample:
        """All GPUs now, those woken that sleep: somebody is about to use one. What is given away is left alone."""
        try:
            self._last = await self._thread.call(self._session.wake, deadline=self._deadline)
        except DriverUnresponsive as problem:
            self._last = self._wedged(str(problem))
        return self._last

    async def sample_gpu(self, uuid: str) -> GpuSample:
        """One GPU now with its processes; for looking often while a release is verified. Raises NoSuchGpu."""
        try:
            return await self._thread.call(self._session.sample_gpu, uuid, deadline=self._deadline)
        except DriverUnresponsive as problem:
            self._last = self._wedged(str(problem))
            known = [gpu for gpu in self._last.gpus if gpu.identity.uuid == uuid]
            if not known:
                raise NoSuchGpu(f"There is no GPU {plain(uuid)!r}, and the driver does not answer") from problem
            return known[0]

    async def close(self) -> None:
        """Shut NVML down and end its thread; a driver that hangs does not hold it up."""
        with contextlib.suppress(DriverUnresponsive):
            await self._thread.call(self._session.close, deadline=CLOSING_DEADLINE)
        await self._thread.close()

    def _wedged(self, detail: str) -> Sample:
        now = self._clock.now()
        gpus = tuple(
            GpuSample(gpu.identity, "failing", now, detail=detail) if gpu.state != "asleep" else gpu
            for gpu in self._last.gpus
        )
        return Sample(now, driver_status.unresponsive(detail, self._last.driver.version), gpus)
