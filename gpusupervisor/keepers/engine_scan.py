"""Engines that hold no VRAM, in whatever unit or container, found among all processes by what everybody may read.

Nearly free: every few seconds the PIDs are listed, and only those that are new are looked at, once more when they
have had time to become the program that they were started for. Of the others a few are looked at each time, since any
may have become another program.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import is_local
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.processes.cgroup import parse_cgroup
from gpusupervisor.processes.containers import ContainerProxy, container_proxy
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.listening import port_of_url
from gpusupervisor.tenants.matching import Recognition
from gpusupervisor.tenants.signs import EngineSigns

EVERY = 10 * MICROSECONDS
TURNS = 30
"""Scans in which every process is looked at again: about five minutes."""
SUSPECTED_FOR = 120 * MICROSECONDS
"""In this time what is hidden of a process must have shown that it is an engine."""
OF_ONE_USER = 16
"""Processes that are followed: anybody can start more that look like engines, and keeps only others of the same user
from being found."""
OF_ROOT = 64
AT_MOST = 512

Recognize = Callable[[ProcessIdentity], Recognition | None]
Resolve = Callable[[str], TenantDefinition]
"""The definition of a tenant."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A process that is recognised as an engine's."""

    identity: ProcessIdentity
    recognition: Recognition
    definition: TenantDefinition

    @property
    def is_told(self) -> bool:
        """Whether what /proc hides of it is known."""
        return "environment" not in self.identity.hidden

    @property
    def serves(self) -> bool:
        """Whether it listens where its tenant would be asked. A client does not listen, nor does a look-alike."""
        identity, endpoint, port = self.identity, self.definition.endpoint, self.recognition.port
        if self.recognition.orphan or not identity.listens or (endpoint is not None and not is_local(endpoint.url)):
            return False
        if port is None and endpoint is not None and not self.definition.endpoint_is_usual:
            port = port_of_url(endpoint.url)
        return port is None or port in identity.listening_ports or identity.listens_elsewhere

    @property
    def is_usual(self) -> bool:
        """Whether it listens at the port that its definition names."""
        endpoint = self.definition.endpoint
        return endpoint is not None and port_of_url(endpoint.url) in self.identity.listening_ports


class EngineScan:
    """Looks through /proc. For one event loop; `look` blocks and is called in the thread that reads processes."""

    def __init__(self, proc: Procfs, clock: Clock) -> None:
        self._proc = proc
        self._clock = clock
        self._signs = EngineSigns()
        self._due_at = 0
        self._scans = 0
        self._seen: dict[int, int] = {}
        """By PID: a mark of the command line that it had when it was looked at."""
        self._owners: dict[int, int] = {}
        """By PID that is followed: its user."""
        self._new: frozenset[int] = frozenset()
        """Seen for the first time at the last scan: a fork is seen before its exec."""
        self.followed: Mapping[int, int] = {}
        """PIDs that may be engines', and since when that is thought. Replaced and never changed."""
        self.proxies: Mapping[int, ContainerProxy] = {}
        """Published ports of containers, by the PID of their proxy. Replaced and never changed."""

    def use(self, signs: EngineSigns) -> None:
        """Look for other signs from now on, in all processes."""
        if signs != self._signs:
            self._signs, self._seen, self._due_at = signs, {}, 0

    def is_due(self) -> bool:
        """Whether it is time for a scan; whoever is told so makes it."""
        now = self._clock.now()
        if now < self._due_at or self._signs == EngineSigns():
            return False
        self._due_at = now + EVERY
        return True

    def look(self) -> frozenset[int]:
        """Look at the processes that are due; returns those that may be engines'."""
        pids, now, seen = self._proc.pids(), self._clock.now(), self._seen
        for gone in seen.keys() - pids:
            del seen[gone]
        new = pids - seen.keys()
        turn = self._scans % TURNS
        again = (pid for pid in pids if pid % TURNS == turn)
        followed = {pid: since for pid, since in self.followed.items() if pid in pids}
        for pid in new.union(self._new & pids, again):
            command_line = self._proc.command_line(pid)
            if seen.get(pid) != (mark := hash(command_line)):
                seen[pid] = mark
                self._note_proxy(pid, command_line)
                self._owners.pop(pid, None)
                followed.pop(pid, None)
                if command_line and self._is_suspect(pid, command_line):
                    if self._has_room(pid, followed):
                        followed[pid] = now
                    else:
                        del seen[pid]  # it is new again at the next scan
        self._owners = {pid: uid for pid, uid in self._owners.items() if pid in followed}
        self.proxies = {pid: each for pid, each in self.proxies.items() if pid in pids}
        self._new, self._scans, self.followed = new, self._scans + 1, followed
        return frozenset(followed)

    def _note_proxy(self, pid: int, command_line: tuple[str, ...]) -> None:
        """Remember a published port of a container; only root's processes are believed."""
        proxy = container_proxy(command_line)
        if proxy is not None and self._proc.uid(pid) == 0:
            self.proxies = {**self.proxies, pid: proxy}
        elif pid in self.proxies:
            self.proxies = {each: known for each, known in self.proxies.items() if each != pid}

    def _has_room(self, pid: int, followed: Mapping[int, int]) -> bool:
        """Whether one more of its user is followed."""
        uid = self._proc.uid(pid)
        if uid is None or len(followed) >= AT_MOST:
            return False
        others = sum(self._owners.get(each) == uid for each in followed)
        if others >= (OF_ROOT if uid == 0 else OF_ONE_USER):
            return False
        self._owners[pid] = uid
        return True

    def servers(self, identities: Mapping[int, ProcessIdentity], recognize: Recognize, resolve: Resolve) -> list[int]:
        """PIDs of those that are servers: where several are of one tenant, first the one that is it most likely."""
        found = {each.identity.key.pid: each for each in self._recognised(identities, recognize, resolve)}
        self._drop(found)
        servers = [
            each
            for each in found.values()
            if each.serves and not any(_is_worker(each, found.get(above.pid)) for above in each.identity.ancestors)
        ]
        servers.sort(
            key=lambda each: (
                not self._signs.shown_by_program(each.identity),
                not each.is_usual,
                each.identity.key.start_time,
            )
        )
        return [each.identity.key.pid for each in servers]

    def _is_suspect(self, pid: int, command_line: tuple[str, ...]) -> bool:
        place = parse_cgroup(self._proc.cgroup(pid))
        identity = ProcessIdentity(
            ProcessKey(pid, 0), 0, 0, "", command_line=command_line, cgroup=place.path, user_unit=place.user_unit,
            container=place.container,
        )  # fmt: skip
        return self._signs.shown_by(identity) or self._signs.could_be_shown_by(identity)

    def _recognised(
        self, identities: Mapping[int, ProcessIdentity], recognize: Recognize, resolve: Resolve
    ) -> Iterator[_Found]:
        for pid in self.followed.keys() & identities.keys():
            recognition = recognize(identities[pid])
            definition = resolve(recognition.tenant) if recognition else None
            if recognition and definition and definition.engine in TABLES:
                yield _Found(identities[pid], recognition, definition)

    def _drop(self, found: Mapping[int, _Found]) -> None:
        """Follow no longer what has had its time and is no engine."""
        earliest = self._clock.now() - SUSPECTED_FOR
        if any(since < earliest and pid not in found for pid, since in self.followed.items()):
            kept = {pid: since for pid, since in self.followed.items() if since >= earliest or pid in found}
            self.followed = kept


def _is_worker(one: _Found, above: _Found | None) -> bool:
    """Whether one is below another server of its tenant, or below what may turn out to be one."""
    return (
        above is not None
        and above.recognition.definition_id == one.recognition.definition_id
        and (above.serves or not above.is_told)
    )
