"""Reading who a process is from /proc, cheaply: one short read per process and look, the rest once.

A process may vanish between any two reads, and its PID may be another's a moment later: what was read is believed
only while the start time is the same before and after. Use one reader from one thread at a time.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from gpusupervisor.processes.cgroup import parse_cgroup
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.processes.privileged import PrivilegedReader, Sight
from gpusupervisor.processes.procfs import Procfs, Stat

MAX_ANCESTORS = 16
CACHE_SIZE = 1024


class ProcessReader:
    """Identities of processes, remembered as long as they live."""

    def __init__(
        self,
        proc_root: Path = Path("/proc"),
        privileged: PrivilegedReader | None = None,
        cache_size: int = CACHE_SIZE,
        proc: Procfs | None = None,
    ) -> None:
        """proc: what is read in the place of the files in `proc_root`."""
        self.proc = proc or Procfs(proc_root)
        """What it reads."""
        self._privileged = privileged
        self._cache_size = cache_size
        self._cache: OrderedDict[int, ProcessIdentity] = OrderedDict()

    def identify(self, pids: Iterable[int]) -> dict[int, ProcessIdentity]:
        """The identities, by PID, of these processes and of their ancestors.

        Left out are PIDs that are gone, zombies, or not visible.
        """
        stats: dict[int, Stat | None] = {}
        found: dict[int, ProcessIdentity] = {}
        asked = dict.fromkeys(pids)
        for pid in asked:
            chain = self._chain(pid, stats)
            keys = tuple(stat.key for stat in chain)
            for depth, stat in enumerate(chain):
                above = keys[depth + 1 :]
                known = found.get(stat.key.pid)
                if known is not None and len(known.ancestors) >= len(above):
                    break  # and so are its ancestors
                identity = self._identity(stat, above, unhide=stat.key.pid in asked)
                if identity is not None:
                    found[stat.key.pid] = identity
        for pid, read in stats.items():
            if read is None:
                self._cache.pop(pid, None)
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        return found

    def _chain(self, pid: int, stats: dict[int, Stat | None]) -> list[Stat]:
        """The process and its ancestors, itself first, PID 1 left out; every stat is read once a look."""
        chain: list[Stat] = []
        while pid > (1 if chain else 0) and len(chain) <= MAX_ANCESTORS:
            if pid not in stats:
                stats[pid] = self.proc.stat(pid)
            stat = stats[pid]
            if stat is None or stat in chain:
                break
            chain.append(stat)
            pid = stat.parent_pid
        return chain

    def sight(self) -> Sight:
        """How well what is hidden is seen."""
        return self._privileged.sight() if self._privileged is not None else Sight("unasked")

    def _identity(self, stat: Stat, ancestors: tuple[ProcessKey, ...], *, unhide: bool) -> ProcessIdentity | None:
        """The remembered identity while it is the same process, the same program and below the same parents.

        unhide: it is one of those that were asked for. Of their ancestors nobody tells what is hidden.
        """
        pid = stat.key.pid
        known = self._cache.get(pid)
        # without arguments it was seen in the middle of its exec
        if known is None or known.key != stat.key or known.comm != stat.comm or not known.command_line:
            known = self._read(stat)
        if known is None:
            return None
        if unhide and known.hidden and self._privileged is not None:
            known = self._unhidden(known, self._privileged)
        if known.ancestors != ancestors or known.parent_pid != stat.parent_pid:
            known = replace(known, ancestors=ancestors, parent_pid=stat.parent_pid)
        self._cache[pid] = known
        self._cache.move_to_end(pid)
        return known

    def _read(self, stat: Stat) -> ProcessIdentity | None:
        """Everything about a process; None when it is another one, or none, at the end."""
        pid = stat.key.pid
        uid = self.proc.uid(pid)
        command_line = self.proc.command_line(pid)
        place = parse_cgroup(self.proc.cgroup(pid))
        executable = self.proc.link(pid, "exe")
        working_directory = self.proc.link(pid, "cwd")
        hidden = {"listening_ports", "environment"}
        if executable is None:
            hidden.add("executable")
        if working_directory is None:
            hidden.add("working_directory")
        still = self.proc.stat(pid)
        if still is None or still.key != stat.key or uid is None:
            return None
        return ProcessIdentity(
            key=stat.key,
            parent_pid=stat.parent_pid,
            uid=uid,
            comm=stat.comm,
            executable=executable or "",
            command_line=command_line,
            cgroup=place.path,
            unit=place.unit,
            user_unit=place.user_unit,
            container=place.container,
            working_directory=working_directory or "",
            hidden=frozenset(hidden),
        )

    def _unhidden(self, identity: ProcessIdentity, privileged: PrivilegedReader) -> ProcessIdentity:
        """The identity with what only root may read, as soon as that is known; a port may come later than the rest."""
        facts = privileged.facts(identity.key)
        if facts is None:
            return identity
        return replace(
            identity,
            executable=identity.executable or facts.executable,
            working_directory=identity.working_directory or facts.working_directory,
            listening_ports=facts.listening_ports,
            listens_elsewhere=facts.listens_elsewhere,
            network=facts.network,
            has_opened_gpu=facts.has_opened_gpu,
            environment=facts.environment,
            configuration=facts.configuration,
            hidden=frozenset() if facts.listening_ports else frozenset({"listening_ports"}),
        )
