"""Matching: which definition a process belongs to, decided from who it is and nothing else (pure).

What root has declared of a unit beats units beat containers beat executables beat command lines beat kernel task
names. Within a class the pattern with more literal characters wins, then the definition's id. A worker below its
server is its server's, whatever its own executable is called: Ollama and llama.cpp both ship a `llama-server`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from gpusupervisor.foreign_text import harmless
from gpusupervisor.gpu.sample import ProcessKind
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.names import INTERPRETERS
from gpusupervisor.tenants.definition import Endpoint, Match, TenantDefinition
from gpusupervisor.tenants.instances import instance_label, service_name, tenant_id
from gpusupervisor.tenants.listening import (
    Address,
    address_in_environment,
    address_on_command_line,
    port_it_listens_on,
    port_of_url,
)
from gpusupervisor.tenants.patterns import executable_of, joined, lines_of, longest

# Classes of evidence, strongest first.
_DECLARED, _UNIT, _CONTAINER, _WORKER, _EXECUTABLE, _BELOW, _COMMAND_LINE, _COMM = range(8)


@dataclass(frozen=True, slots=True)
class Recognition:
    """What a process was recognised as."""

    definition_id: str
    instance: str
    """The instance's label; empty for the plain tenant."""
    tenant: str
    """Tenant id, e.g. "comfyui" or "comfyui@8189"."""
    why: str
    """For a person, e.g. "unit ollama.service"."""
    port: int | None = None
    """Where its server listens, as far as that is known: by its command line, its environment, or its socket."""
    address: Address = field(default_factory=Address)
    """The same, with all that is known of it."""
    host: str = ""
    """The address that it listens on, where its command line or its environment name one."""
    orphan: bool = False
    """A worker whose server is gone."""


@dataclass(frozen=True, slots=True)
class _Hit:
    rank: int
    literal: int
    why: str
    depth: int = 0
    """How far above itself it was found: of those who started it, the first one counts."""


def match_process(
    identity: ProcessIdentity,
    kinds: Set[ProcessKind],
    definitions: Iterable[TenantDefinition],
    ancestors: Sequence[ProcessIdentity],
) -> Recognition | None:
    """The definition and instance of a process; None when it matches nothing.

    ancestors: parent first; the ones that are gone or unreadable left out.
    """
    best: tuple[tuple[int, int, int, str], TenantDefinition, str] | None = None
    for definition in definitions:
        if definition.match.graphics_only and "graphics" not in kinds:
            continue
        for hit in _hits(definition.match, identity, ancestors):
            order = (hit.rank, -hit.depth, -hit.literal, definition.id)
            if best is None or order < best[0]:
                best = (order, definition, hit.why)
    if best is None:
        return None
    _, definition, why = best
    address = _server_address(definition, identity, ancestors)
    if identity.is_elsewhere:
        address = _from_outside(definition, identity, address)
    label = instance_label(definition, identity, address.port)
    return Recognition(
        definition.id,
        label,
        tenant_id(definition, label),
        why,
        address.port,
        address,
        address.host,
        orphan=_is_orphan(definition, identity, ancestors),
    )


def _hits(match: Match, identity: ProcessIdentity, ancestors: Sequence[ProcessIdentity]) -> Iterator[_Hit]:
    """Every way in which the process matches, at most one of each class."""
    own = executable_of(identity)
    if identity.unit and identity.unit in match.declared:
        yield _Hit(_DECLARED, 0, f"unit {harmless(identity.unit)}, which declares it")
    yield from _hit(_UNIT, match.units, identity.unit, "unit ")
    yield from _hit(_UNIT, match.user_units, identity.user_unit, "user unit ")
    if identity.container:
        yield from _hit(_CONTAINER, match.containers, identity.container, "container ")
        yield from _hit(_CONTAINER, match.containers, identity.cgroup, "container ")
        yield from _hit(_CONTAINER, match.containers, identity.container_name, "container ")
    yield from _hit(_EXECUTABLE, match.executables, own, "executable ")
    for line in lines_of(identity):
        yield from _hit(_COMMAND_LINE, match.command_lines, line, "command line ")
    yield from _hit(_COMM, match.comms, identity.comm, "process name ")
    if not match.graphics_only:
        yield from _hits_above(match, identity, ancestors)


def _hits_above(match: Match, identity: ProcessIdentity, ancestors: Sequence[ProcessIdentity]) -> Iterator[_Hit]:
    """The ways in which what started the process matches."""
    worker = match.all_below or longest(match.runners, joined(identity)) >= 0
    for depth, ancestor in enumerate(ancestors, 1):
        rank, above = (_WORKER, depth) if worker else (_BELOW, 0)
        yield from _hit(rank, match.executables, executable_of(ancestor), "below ", above)
        for line in lines_of(ancestor) if match.all_below else ():
            yield from _hit(rank, match.command_lines, line, "below ", above)


def _hit(rank: int, patterns: Sequence[str], text: str, label: str, depth: int = 0) -> Iterator[_Hit]:
    literal = longest(patterns, text)
    if literal >= 0:
        yield _Hit(rank, literal, label + harmless(text), depth)


def _server_address(
    definition: TenantDefinition, identity: ProcessIdentity, ancestors: Sequence[ProcessIdentity]
) -> Address:
    """Where the outermost process of the same tenant listens: a worker's own port is not the tenant's."""
    endpoint = definition.endpoint
    if endpoint is None:
        return Address()
    below_server = is_worker = False
    host = ""
    for ancestor in reversed(ancestors):
        is_server = longest(definition.match.executables, executable_of(ancestor)) >= 0
        says = any(longest(definition.match.command_lines, line) >= 0 for line in lines_of(ancestor))
        if is_server or says or (service_name(identity) and ancestor.cgroup == identity.cgroup):
            named = address_on_command_line(endpoint, ancestor.command_line)
            if named.port is not None or named.unix:
                return named
            host, is_worker = host or named.host, True
        below_server = below_server or is_server or (says and definition.match.all_below)
    is_worker = is_worker or longest(definition.match.runners, joined(identity)) >= 0
    listens = not is_worker and definition.endpoint_is_usual
    own = _own_address(endpoint, identity, below_server=below_server, listens=listens)
    return replace(own, host=host or own.host)


def _from_outside(definition: TenantDefinition, identity: ProcessIdentity, inner: Address) -> Address:
    """Where this machine reaches what listens at `inner` in a network of its own: at a published port. A URL that a
    file of this machine names counts instead."""
    endpoint = definition.endpoint
    if endpoint is None or not definition.endpoint_is_usual:
        return Address()
    port = inner.port or port_of_url(endpoint.url)
    for published in identity.published:
        if published.inner in (port, 0):
            return replace(inner, host=published.host, port=published.port)
    return Address(is_elsewhere=True)


def _own_address(endpoint: Endpoint, identity: ProcessIdentity, *, below_server: bool, listens: bool) -> Address:
    """What the process itself knows of it: its flags unless it is below its server, what it inherited, its sockets."""
    flags = Address() if below_server else address_on_command_line(endpoint, identity.command_line)
    inherited = address_in_environment(endpoint, identity.environment)
    host, port = flags.host or inherited.host, flags.port or inherited.port
    if port is None and listens:
        port = port_it_listens_on(endpoint, identity.listening_ports)
    return replace(flags, host=host, port=port, tls=flags.tls or inherited.tls, prefix=flags.prefix or inherited.prefix)


def _is_orphan(definition: TenantDefinition, identity: ProcessIdentity, ancestors: Sequence[ProcessIdentity]) -> bool:
    """A worker whose server is gone, and that no unit or container still runs: what inherited it (init, a service
    manager, the shell or terminal that it was started from) is neither its engine nor a program that could use one."""
    if not definition.engine or longest(definition.match.runners, joined(identity)) < 0:
        return False
    if service_name(identity) or identity.container:
        return False
    parent = ancestors[0] if ancestors and ancestors[0].key.pid == identity.parent_pid else None
    return identity.parent_pid == 1 or (parent is not None and not _may_have_workers(definition.match, parent))


def _may_have_workers(match: Match, parent: ProcessIdentity) -> bool:
    program = executable_of(parent)
    if program.rsplit("/", 1)[-1].startswith(INTERPRETERS) or longest(match.executables, program) >= 0:
        return True
    return any(longest((*match.command_lines, *match.runners), line) >= 0 for line in lines_of(parent))


def ancestors_of(identity: ProcessIdentity, identities: Mapping[int, ProcessIdentity]) -> tuple[ProcessIdentity, ...]:
    """The identities of a process's ancestors, parent first; those that are not known left out."""
    found = (identities.get(key.pid) for key in identity.ancestors)
    return tuple(
        ancestor for ancestor, key in zip(found, identity.ancestors, strict=True) if ancestor and ancestor.key == key
    )
