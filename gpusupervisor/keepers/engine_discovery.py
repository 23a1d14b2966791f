"""What the engines on this machine are set to: looked up when something about them changes, and otherwise remembered.

A look never waits: process and unit are at hand, and the engine's own API is asked in the background.
"""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import NO_USERS, EngineHttp, Header, Peer, is_local
from gpusupervisor.engines.ask import ask
from gpusupervisor.engines.configured import Unit
from gpusupervisor.engines.interpret import NOT_ASKED, ApiFacts
from gpusupervisor.engines.reading import Reading, is_launcher, read, server_among
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.engines import EngineFound, EngineGone
from gpusupervisor.keepers.engine_scan import EngineScan, Recognize, Resolve
from gpusupervisor.peers.unit_client import Units
from gpusupervisor.processes.containers import MONITOR, seen_from_outside
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.census import Census, TenantPresence
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.instances import service_name

ASKED_EVERY = 300 * MICROSECONDS
FIRST_RETRY = 5 * MICROSECONDS
"""After an engine that did not answer: it may be starting. Then after twice as long, and so on."""
NOTHING = Reading()


@dataclass(slots=True)
class _Followed:
    """What is known of one engine."""

    server: ProcessIdentity | None = None
    unit: Unit | None = None
    endpoint: str = ""
    headers: tuple[Header, ...] = ()
    peer: Peer = NO_USERS
    api: ApiFacts = NOT_ASKED
    reading: Reading = NOTHING
    due_at: int = 0
    failures: int = 0
    task: asyncio.Task[None] | None = None

    @property
    def key(self) -> ProcessKey | None:
        """Which process its server is."""
        return self.server.key if self.server is not None else None


@dataclass(slots=True)
class _Chosen:
    """Which process of a unit is its engine."""

    unit: Unit
    pids: tuple[int, ...]
    """One when it is found, else all those that may be it."""
    found: bool = field(default=False)


class EngineDiscovery:
    """Follows the engines. For one event loop."""

    def __init__(self, http: EngineHttp, clock: Clock, units: Units, scan: EngineScan) -> None:
        self.scan = scan
        self._http = http
        self._clock = clock
        self._units = units
        self._chosen: dict[str, _Chosen] = {}
        self._outer: frozenset[int] = frozenset()
        """Servers that no unit led to."""
        self._monitors: frozenset[int] = frozenset()
        """Container runtimes' processes, which know of ports that lead into containers."""
        self._followed: dict[str, _Followed] = {}

    def servers(self) -> frozenset[int]:
        """PIDs that are to be identified beside the holders of VRAM."""
        units = {name: unit for name, unit in self._units.units.items() if unit.active and unit.main_pid}
        for name in self._chosen.keys() - units.keys():
            del self._chosen[name]
        for name, unit in units.items():
            chosen = self._chosen.get(name)
            if chosen is None or chosen.unit is not unit:
                self._chosen[name] = _Chosen(unit, tuple(dict.fromkeys((unit.main_pid, *unit.members))))
        return self._outer.union(self._monitors, self.scan.followed, *(chosen.pids for chosen in self._chosen.values()))

    def informed(
        self, identities: Mapping[int, ProcessIdentity], variables: frozenset[str]
    ) -> Mapping[int, ProcessIdentity]:
        """The identities, with what their units say in the place of environments that are hidden.

        variables: those by which engines say where they listen.
        """
        for chosen in self._chosen.values():
            server = server_among(chosen.pids, identities)
            if server is not None:
                chosen.pids, chosen.found = (server.key.pid,), True
            elif chosen.found:
                chosen.pids, chosen.found = (chosen.unit.main_pid, *chosen.unit.members), False
        identities = self._from_outside(identities)
        units = self._units.units
        hidden = {
            pid: identity
            for pid, identity in identities.items()
            if identity.unit in units and not identity.user_unit and "environment" in identity.hidden
        }
        if not hidden:
            return identities
        return {**identities, **{pid: _told(each, units[each.unit], variables) for pid, each in hidden.items()}}

    def _from_outside(self, identities: Mapping[int, ProcessIdentity]) -> Mapping[int, ProcessIdentity]:
        """The identities, with what the runtimes' own processes say of those in containers."""
        contained = {pid: each for pid, each in identities.items() if each.container}
        above = {pid: tuple(reversed(tuple(_above(each, identities)))) for pid, each in contained.items()}
        self._monitors = frozenset(one.key.pid for each in above.values() for one in each if one.comm == MONITOR)
        proxies = tuple(self.scan.proxies.values())
        seen = {pid: seen_from_outside(each, proxies, above[pid]) for pid, each in contained.items()}
        return {**identities, **seen} if seen else identities

    def found_servers(
        self, identities: Mapping[int, ProcessIdentity], recognize: Recognize, resolve: Resolve
    ) -> tuple[int, ...]:
        """PIDs of the servers, of which the first of a tenant is the one that is asked: those that run in system units,
        then those that were found before (these stay known when they have given their VRAM back), then new ones.
        """
        in_units = sorted(chosen.pids[0] for chosen in self._chosen.values() if chosen.found)
        new = self.scan.servers(identities, recognize, resolve)
        elsewhere = [pid for pid in new if identities[pid].unit not in self._chosen]
        return tuple(dict.fromkeys((*in_units, *sorted(self._outer), *elsewhere)))

    def look(
        self,
        census: Census,
        identities: Mapping[int, ProcessIdentity],
        definitions: Mapping[str, TenantDefinition],
        recognize: Recognize,
    ) -> None:
        """Bring what is known up to date with a census; what the engines themselves say comes later."""
        engines = {id_: each for id_, each in census.tenants.items() if definitions[id_].engine in TABLES}
        for gone in self._followed.keys() - engines.keys():
            self._drop(self._followed.pop(gone))
        outer: set[int] = set()
        units = {name for each in definitions.values() if each.engine in TABLES for name in each.match.units}
        for tenant, presence in engines.items():
            server = presence.servers[0] if presence.servers else _root(presence, identities, recognize)
            if server is not None:
                outer.add(server.key.pid)
            if server is not None and not server.user_unit and service_name(server):
                units.add(server.unit)
            self._follow(tenant, definitions[tenant], presence, server)
        self._outer = frozenset(outer)
        self._units.want(frozenset(units))

    def reading(self, tenant: str) -> Reading:
        """What is known of an engine."""
        followed = self._followed.get(tenant)
        return followed.reading if followed is not None else NOTHING

    def has_answered(self, tenant: str) -> bool:
        """Whether an engine that runs answered when it was asked last."""
        followed = self._followed.get(tenant)
        return followed is not None and followed.api is not NOT_ASKED and not followed.failures

    async def close(self) -> None:
        """End every question that is under way."""
        tasks = [each.task for each in self._followed.values() if each.task is not None]
        for followed in self._followed.values():
            self._drop(followed)
        self._followed.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _follow(
        self, tenant: str, definition: TenantDefinition, presence: TenantPresence, server: ProcessIdentity | None
    ) -> None:
        followed = self._followed.setdefault(tenant, _Followed())
        unit = self._unit_of(definition, server)
        changed = followed.server != server or followed.unit != unit
        if followed.key != (server.key if server is not None else None) or followed.endpoint != presence.endpoint:
            self._start_anew(tenant, definition.engine, followed, presence, server)
            changed = True
        followed.server, followed.unit = server, unit
        followed.endpoint, followed.headers, followed.peer = presence.endpoint, presence.headers, presence.peer
        if changed:
            followed.reading = read(TABLES[definition.engine], server, unit, followed.api)
        asks = server is not None and bool(TABLES[definition.engine].calls) and is_local(presence.endpoint)
        if asks and followed.task is None and self._clock.now() >= followed.due_at:
            followed.task = asyncio.create_task(self._ask(followed, definition.engine), name=f"ask {tenant}")

    def _start_anew(
        self, tenant: str, engine: str, followed: _Followed, presence: TenantPresence, server: ProcessIdentity | None
    ) -> None:
        """Another process, or the same one elsewhere: what it said before counts no more."""
        self._drop(followed)
        followed.task, followed.api, followed.due_at, followed.failures = None, NOT_ASKED, 0, 0
        if server is not None:
            where = presence.endpoint or "an unknown address"
            write(EngineFound(tenant, engine, server.key.pid, where))
        elif followed.server is not None:
            write(EngineGone(tenant, engine, followed.server.key.pid))

    def _unit_of(self, definition: TenantDefinition, server: ProcessIdentity | None) -> Unit | None:
        """The unit that runs the server, else the one by the definition's very name that could."""
        units = self._units.units
        if server is not None or "@" in definition.id:
            return units.get(_unit_name(server))
        return next((units[name] for name in definition.match.units if name in units and not units[name].active), None)

    async def _ask(self, followed: _Followed, engine: str) -> None:
        """Ask the engine itself; what it said before stands when it does not answer."""
        api = await ask(TABLES[engine], followed.endpoint, self._http, followed.headers, followed.peer)
        now = self._clock.now()
        if api is None:
            followed.due_at = now + min(FIRST_RETRY << min(followed.failures, 16), ASKED_EVERY)
            followed.failures += 1
        else:
            followed.due_at, followed.failures, followed.api = now + ASKED_EVERY, 0, api
            followed.reading = read(TABLES[engine], followed.server, followed.unit, api)
        followed.task = None

    def _drop(self, followed: _Followed) -> None:
        if followed.task is not None:
            followed.task.cancel()


def _unit_name(server: ProcessIdentity | None) -> str:
    return server.unit if server is not None and not server.user_unit else ""


def _told(identity: ProcessIdentity, unit: Unit, variables: frozenset[str]) -> ProcessIdentity:
    """The identity with the addresses that its unit gives it."""
    given = {name: each.value for name, each in unit.environment.items() if name in variables}
    return replace(identity, environment=tuple(sorted(given.items())))


def _root(
    presence: TenantPresence, identities: Mapping[int, ProcessIdentity], recognize: Recognize
) -> ProcessIdentity | None:
    """The outermost process of the tenant: its holder, or the server above that."""
    for holder in presence.holders:
        if holder.identity is not None and not holder.orphan:
            for ancestor in _above(holder.identity, identities):
                found = recognize(ancestor)
                if found and found.definition_id == presence.definition_id and not is_launcher(ancestor):
                    return ancestor
            return holder.identity
    return None


def _above(identity: ProcessIdentity, identities: Mapping[int, ProcessIdentity]) -> Iterator[ProcessIdentity]:
    """Its ancestors, the outermost first."""
    for key in reversed(identity.ancestors):
        ancestor = identities.get(key.pid)
        if ancestor is not None and ancestor.key == key:
            yield ancestor
