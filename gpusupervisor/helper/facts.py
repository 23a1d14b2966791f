"""What the helper tells of processes: of those that hold VRAM as it reads itself, of what started them, of the
processes of the system units that tenant files of root's name, and of those that these files recognise as an engine by
the program, user unit or container. Of nobody else.

Anybody can start a program that looks like an engine. What is gained by it is little: its own executable, folder, ports
and the variables that engines are set by, of secrets only that they are set, are told to root and the supervisor. What
it runs may change between the look at it and the answer, and even then no more is told than this.
"""

import asyncio
import fnmatch
from collections.abc import Callable, Mapping, Sequence, Set
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
from gpusupervisor.processes.cgroup import parse_cgroup
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.processes.inside import HOST_NETWORK, read_inside
from gpusupervisor.processes.privileged import PrivilegedFacts
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.tenants.signs import EngineSigns

AT_MOST = 256
"""Processes of one question."""
DEADLINE = 5.0
"""Seconds in which the driver must have listed the holders."""
MAX_ANCESTORS = 16

Refusal = Literal["holds no VRAM and is no engine", "is gone", "cannot be read"]


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
        units: Callable[[], frozenset[str]] = frozenset,
        signs: Callable[[], EngineSigns] = EngineSigns,
    ) -> None:
        """variables: reads which environment variables may be told, anew at every question; may block.

        units: likewise, the patterns of the system units whose processes may be told of. signs: of engines, likewise.
        """
        self._holders = holders
        self._variables = variables
        self._units = units
        self._signs = signs
        self._proc = Procfs(proc_root)
        self._root = proc_root
        self._network = network

    async def tell(self, asked: Sequence[ProcessKey]) -> list[Told]:
        """The facts of each, or why there are none. Raises InvalidArgument, GpuUnavailable."""
        if len(asked) > AT_MOST:
            raise InvalidArgument(f"{len(asked)} processes are asked for at once: ask for at most {AT_MOST}.")
        keys = list(dict.fromkeys(asked))
        engines = await asyncio.to_thread(self._engines_among, keys)
        holders = await self._holders.pids() if engines != set(keys) else frozenset()
        return await asyncio.to_thread(self._read_all, keys, engines, holders)

    def _engines_among(self, asked: Sequence[ProcessKey]) -> set[ProcessKey]:
        """Those that root's files make an engine of, whether or not they hold VRAM; the driver is not needed for it."""
        units, signs, reader = self._units(), self._signs(), ProcessReader(self._root)
        identities = reader.identify(key.pid for key in asked)
        return {
            key
            for key in asked
            if self._is_in_unit(key.pid, units)
            or ((found := identities.get(key.pid)) and found.key == key and signs.shown_by(found))
        }

    def _read_all(self, asked: Sequence[ProcessKey], engines: Set[ProcessKey], holders: frozenset[int]) -> list[Told]:
        variables = self._variables()
        known = holders | self._starters_of(holders)
        return [
            self._read(key, variables)
            if key in engines or key.pid in known
            else Told(key, None, "holds no VRAM and is no engine" if self._lives(key) else "is gone")
            for key in asked
        ]

    def _lives(self, key: ProcessKey) -> bool:
        """Whether there is such a process, and not another one of the same PID."""
        stat = self._proc.stat(key.pid)
        return stat is not None and stat.key == key

    def _starters_of(self, holders: frozenset[int]) -> frozenset[int]:
        """The ancestors of processes, PID 1 left out: a server's settings are with the server, not its workers."""
        found: set[int] = set()
        for pid in holders:
            for _ in range(MAX_ANCESTORS):
                stat = self._proc.stat(pid)
                if stat is None or stat.parent_pid <= 1 or stat.parent_pid in found:
                    break
                pid = stat.parent_pid  # noqa: PLW2901  (up one generation)
                found.add(pid)
        return frozenset(found)

    def _is_in_unit(self, pid: int, units: frozenset[str]) -> bool:
        """Whether a system unit of these names runs it, as its control group says, which only root can choose."""
        unit = parse_cgroup(self._proc.cgroup(pid)).unit if units else ""
        return bool(unit) and any(fnmatch.fnmatchcase(unit, pattern) for pattern in units)

    def _read(self, key: ProcessKey, variables: frozenset[str]) -> Told:
        try:
            facts = read_inside(self._root, key, variables, self._network)
        except OSError:
            return Told(key, None, "cannot be read")
        return Told(key, facts, None if facts else "is gone")
