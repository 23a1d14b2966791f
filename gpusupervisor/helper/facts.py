"""What the helper tells of processes: of those that hold VRAM as it reads itself, and of nobody else."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpusupervisor.clock import Clock
from gpusupervisor.errors import GpuUnavailable, InvalidArgument
from gpusupervisor.gpu.nvml_thread import DriverUnresponsive, NvmlThread
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.sample import GpuIdentity, Sample
from gpusupervisor.gpu.session import DriverSession
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.processes.inside import HOST_NETWORK, read_inside
from gpusupervisor.processes.privileged import PrivilegedFacts

AT_MOST = 256
"""Processes of one question."""
DEADLINE = 5.0
"""Seconds in which the driver must have listed the holders."""

Refusal = Literal["holds no VRAM", "is gone", "cannot be read"]


class Holders:
    """Which processes hold VRAM. NVML is opened for the answer and closed after it, so that GPUs can sleep."""

    def __init__(
        self,
        thread: NvmlThread,
        clock: Clock,
        sysfs_root: Path = SYSFS_PCI_DEVICES,
        given_away: Callable[[], Mapping[str, GpuIdentity]] = dict,
    ) -> None:
        """given_away: GPUs that are not to be touched."""
        self._thread = thread
        self._session = DriverSession(NvmlReader(clock), clock, sysfs_root, given_away)

    async def pids(self) -> frozenset[int]:
        """Their PIDs now; sleeping GPUs are left alone. Raises GpuUnavailable."""
        try:
            sample = await self._thread.call(self._read, deadline=DEADLINE)
        except DriverUnresponsive as problem:
            raise GpuUnavailable(f"Who holds VRAM cannot be read, so nothing is told: {problem}.") from problem
        driver = sample.driver
        if driver.state not in ("ok", "asleep"):
            what = driver.detail or f"the driver is {driver.state}"
            raise GpuUnavailable(f"Who holds VRAM cannot be read, so nothing is told: {what}. {driver.remedy}".strip())
        return frozenset(process.pid for gpu in sample.gpus for process in gpu.processes)

    def _read(self) -> Sample:
        try:
            return self._session.sample(fresh_processes=True, utilization=False, needed=True)
        finally:
            self._session.close()


@dataclass(frozen=True, slots=True)
class Told:
    """The answer about one process."""

    key: ProcessKey
    facts: PrivilegedFacts | None
    refusal: Refusal | None = None
    """Why there are no facts."""


class FactTeller:
    """Answers questions about processes. It remembers nothing: a port may be there at the next question."""

    def __init__(
        self,
        holders: Holders,
        variables: Callable[[], frozenset[str]],
        proc_root: Path = Path("/proc"),
        network: str = HOST_NETWORK,
    ) -> None:
        """variables: reads which environment variables may be told, anew at every question; may block."""
        self._holders = holders
        self._variables = variables
        self._root = proc_root
        self._network = network

    async def tell(self, asked: Sequence[ProcessKey]) -> list[Told]:
        """The facts of each, or why there are none. Raises InvalidArgument, GpuUnavailable."""
        if len(asked) > AT_MOST:
            raise InvalidArgument(f"{len(asked)} processes are asked for at once: ask for at most {AT_MOST}.")
        holders = await self._holders.pids()
        return await asyncio.to_thread(self._read_all, list(dict.fromkeys(asked)), holders)

    def _read_all(self, asked: Sequence[ProcessKey], holders: frozenset[int]) -> list[Told]:
        variables = self._variables()
        return [self._read(key, variables) if key.pid in holders else Told(key, None, "holds no VRAM") for key in asked]

    def _read(self, key: ProcessKey, variables: frozenset[str]) -> Told:
        try:
            facts = read_inside(self._root, key, variables, self._network)
        except OSError:
            return Told(key, None, "cannot be read")
        return Told(key, facts, None if facts else "is gone")
