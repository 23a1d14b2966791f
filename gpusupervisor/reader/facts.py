"""What the reader tells of processes: of those that have opened a GPU, of what started them, of the processes of the
system units that tenant files of root's name, and of those that these files recognise as an engine by the program,
user unit or container. Of no others.

Anybody can start a program that looks like an engine, or open a GPU. What is gained by it is little: the executable,
directory, ports and the variables that configure engines, of secrets only that they are set, reach root and the
supervisor. What a process runs may change between the check and the answer; even then no more than this is told.
"""

import fnmatch
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpusupervisor.engines.configuration_files import sources_of
from gpusupervisor.errors import InvalidArgument
from gpusupervisor.processes.cgroup import parse_cgroup
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.processes.inside import HOST_NETWORK, read_inside
from gpusupervisor.processes.privileged import PrivilegedFacts
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.reader.holders import HasOpened, holders_among
from gpusupervisor.reader.threads import Threads
from gpusupervisor.tenants.signs import EngineSigns

AT_MOST = 256
"""Processes of one question."""

Refusal = Literal["has not opened a GPU and is no engine", "is gone", "cannot be read"]


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
        has_opened: HasOpened,
        variables: Callable[[], frozenset[str]],
        proc_root: Path = Path("/proc"),
        network: str = HOST_NETWORK,
        units: Callable[[], frozenset[str]] = frozenset,
        signs: Callable[[], EngineSigns] = EngineSigns,
    ) -> None:
        """variables: reads which environment variables may be told, anew at every question; may block.

        units: likewise, the patterns of the system units whose processes may be told of. signs: of engines, likewise.
        """
        self._has_opened = has_opened
        self._variables = variables
        self._units = units
        self._signs = signs
        self._proc = Procfs(proc_root)
        self._root = proc_root
        self._network = network
        self._threads = Threads("The processes")

    async def tell(self, asked: Sequence[ProcessKey]) -> list[Told]:
        """The facts of each, or why there are none. Raises InvalidArgument, GpuUnavailable."""
        if len(asked) > AT_MOST:
            raise InvalidArgument(f"{len(asked)} processes are asked for at once: ask for at most {AT_MOST}.")
        keys = list(dict.fromkeys(asked))
        return await self._threads.run(lambda: self._tell(keys))

    def _tell(self, asked: Sequence[ProcessKey]) -> list[Told]:
        there = {key for key in asked if (stat := self._proc.stat(key.pid)) and stat.key == key}
        engines = self._engines_among([key for key in asked if key in there])
        others = [key.pid for key in asked if key in there and key not in engines]
        holders = holders_among(others, self._proc, self._has_opened)
        variables = self._variables()
        return [
            Told(key, None, "is gone")
            if key not in there
            else self._read(key, variables)
            if key in engines or key.pid in holders
            else Told(key, None, "has not opened a GPU and is no engine")
            for key in asked
        ]

    def _engines_among(self, asked: Sequence[ProcessKey]) -> Set[ProcessKey]:
        """Those that root's files make an engine of, whether or not they have opened a GPU."""
        units, signs, reader = self._units(), self._signs(), ProcessReader(self._root)
        identities = reader.identify(key.pid for key in asked)
        return {
            key
            for key in asked
            if self._is_in_unit(key.pid, units)
            or ((found := identities.get(key.pid)) and found.key == key and signs.shown_by(found))
        }

    def _is_in_unit(self, pid: int, units: frozenset[str]) -> bool:
        """Whether a system unit of these names runs it, as its control group says, which only root can choose."""
        unit = parse_cgroup(self._proc.cgroup(pid)).unit if units else ""
        return bool(unit) and any(fnmatch.fnmatchcase(unit, pattern) for pattern in units)

    def _read(self, key: ProcessKey, variables: frozenset[str]) -> Told:
        try:
            facts = read_inside(self._root, key, variables, self._network, sources_of)
        except OSError:
            return Told(key, None, "cannot be read")
        return Told(key, facts, None if facts else "is gone")
