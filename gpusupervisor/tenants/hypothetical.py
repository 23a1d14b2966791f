"""Which tenant a process would be that does not run, or holds no VRAM: a unit that is installed, for example (pure)."""

from dataclasses import dataclass

from gpusupervisor.gpu.sample import ProcessKind
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.tenants.listening import Address, with_address
from gpusupervisor.tenants.matching import match_process

_KINDS: frozenset[ProcessKind] = frozenset({"compute"})


@dataclass(frozen=True, slots=True)
class Recognised:
    """What it would be."""

    tenant: str
    why: str
    """What it is recognised by, e.g. "unit ollama.service"."""
    endpoint: str
    """Where it would listen, by its file, its command line or its environment; empty when it has no API."""


def recognise(catalog: Catalog, identity: ProcessIdentity) -> Recognised | None:
    """The tenant of a process that computes and that nobody else started; None when it would be nobody's."""
    found = match_process(identity, _KINDS, catalog.definitions.values(), ())
    if found is None:
        return None
    endpoint = catalog.resolve(found.tenant).endpoint
    where = with_address(endpoint.url, Address(found.host, found.port)) if endpoint else ""
    return Recognised(found.tenant, found.why, where)
