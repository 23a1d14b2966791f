"""Taking the census: every byte of VRAM is a tenant's, an unmanaged process's, or unattributed (pure)."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpusupervisor.engine_http import without_keys
from gpusupervisor.gpu.sample import GpuProcess, GpuSample, Sample
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.tenants.census import Census, GpuAccount, Holder, TenantPresence
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.listening import Address, with_address
from gpusupervisor.tenants.matching import Recognition
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.speakers import peer_of


@dataclass(slots=True)
class _Found:
    """What is gathered of one tenant while the processes are gone through."""

    definition: TenantDefinition
    definition_id: str
    address: Address = field(default_factory=Address)
    holders: list[Holder] = field(default_factory=list)
    servers: list[ProcessIdentity] = field(default_factory=list)

    def presence(self, tenant: str) -> TenantPresence:
        holdings: dict[str, int] = {}
        for holder in self.holders:
            if holder.used is not None:
                holdings[holder.gpu] = holdings.get(holder.gpu, 0) + holder.used
        endpoint = self.definition.endpoint
        where = self._address()
        is_written = endpoint is not None and where == endpoint.url and not self.definition.is_implied
        headers = endpoint.headers if endpoint else ()
        return TenantPresence(
            id=tenant,
            definition_id=self.definition_id,
            endpoint=where,
            endpoint_is_written=is_written,
            headers=headers if is_written else without_keys(headers),
            holders=tuple(self.holders),
            holdings=holdings,
            unknown_on=frozenset(holder.gpu for holder in self.holders if holder.used is None),
            servers=tuple(self.servers),
            is_elsewhere=self.address.is_elsewhere,
            peer=peer_of(endpoint, self._processes()),
        )

    def _processes(self) -> Iterator[ProcessIdentity]:
        """Those that may speak for it."""
        yield from self.servers
        for holder in self.holders:
            if holder.identity is not None and not holder.orphan:
                yield holder.identity

    def _address(self) -> str:
        """Where it is asked; nowhere while nothing of it is there that could be at an address that others use too."""
        definition, endpoint = self.definition, self.definition.endpoint
        if endpoint is None:
            return ""
        is_its_own = not definition.is_implied and (endpoint.own_port or not definition.endpoint_is_usual)
        if not self.holders and not self.servers and not is_its_own:
            return ""
        if self.address.is_elsewhere:
            return ""
        return with_address(endpoint.url, self.address) if self.address != Address() else endpoint.url


def take_census(
    sample: Sample,
    identities: Mapping[int, ProcessIdentity],
    catalog: Catalog,
    recognizer: Recognizer,
    servers: Iterable[int] = (),
) -> Census:
    """Attribute every process of the sample.

    identities: by PID, of the sample's processes and of their ancestors (`ProcessReader.identify` gives both).
    A PID that is not in it is dead, a zombie, or of another PID namespace.
    servers: PIDs of engines' servers, which are noted even while they hold no VRAM; of each tenant the first is asked.
    """
    found: dict[str, _Found] = {
        each.id: _Found(each, each.id.partition("@")[0])
        for each in (*catalog.definitions.values(), *catalog.instances.values())
    }
    accounts = {
        gpu.identity.uuid: _account(gpu, _holders(gpu, identities, catalog, recognizer, found)) for gpu in sample.gpus
    }
    for pid in servers:
        if pid in identities:
            _note_server(identities[pid], identities, catalog, recognizer, found)
    presences = {tenant: each.presence(tenant) for tenant, each in found.items()}
    return Census(_with_own_endpoints(presences, found), accounts)


def _with_own_endpoints(presences: dict[str, TenantPresence], found: Mapping[str, _Found]) -> dict[str, TenantPresence]:
    """Nobody is asked in another's place: of those at one address, only who is known to be there keeps it."""
    here = {tenant: each for tenant, each in presences.items() if each.holders or each.servers}
    taken = {each.endpoint for each in here.values()}
    sharing = Counter(each.endpoint for each in here.values())
    kinds = Counter(where for where, _ in {(each.endpoint, each.definition_id) for each in here.values()})
    unsure = {
        tenant
        for tenant, each in here.items()
        if found[tenant].address.port is None
        and (
            ("@" in tenant and sharing[each.endpoint] > 1)
            or (found[tenant].definition.endpoint_is_usual and kinds[each.endpoint] > 1)
        )
    }
    unsure |= {tenant for tenant, each in presences.items() if tenant not in here and each.endpoint in taken}
    return {
        tenant: replace(each, endpoint="", headers=()) if tenant in unsure else each
        for tenant, each in presences.items()
    }


def _holders(
    gpu: GpuSample,
    identities: Mapping[int, ProcessIdentity],
    catalog: Catalog,
    recognizer: Recognizer,
    found: dict[str, _Found],
) -> list[Holder]:
    """The processes of one GPU; those of tenants are also noted in `found`. None when the list is not believed."""
    if gpu.attribution_problem:
        return []
    return [
        _holder(gpu.identity.uuid, process, identities, catalog, recognizer, found)
        for process in gpu.processes
        if process.used or not _is_kernels(identities.get(process.pid))
    ]


def _is_kernels(identity: ProcessIdentity | None) -> bool:
    """Drivers list threads of the kernel at times, which hold nothing."""
    return identity is not None and identity.is_kernel_thread


def _holder(
    gpu: str,
    process: GpuProcess,
    identities: Mapping[int, ProcessIdentity],
    catalog: Catalog,
    recognizer: Recognizer,
    found: dict[str, _Found],
) -> Holder:
    identity = identities.get(process.pid)
    if identity is None:
        return Holder(gpu, process.pid, process.used, None)
    recognition = recognizer.recognize(catalog, identity, process.kinds, identities)
    if recognition is None:
        return Holder(gpu, process.pid, process.used, identity, sm_utilization=process.sm_utilization)
    holder = Holder(
        gpu=gpu,
        pid=process.pid,
        used=process.used,
        identity=identity,
        tenant=recognition.tenant,
        why=recognition.why,
        sm_utilization=process.sm_utilization,
        orphan=recognition.orphan,
    )
    tenant = _tenant(recognition, catalog, found)
    tenant.holders.append(holder)
    if _says_where(recognition) and not recognition.orphan:
        tenant.address = recognition.address
    return holder


def _note_server(
    identity: ProcessIdentity,
    identities: Mapping[int, ProcessIdentity],
    catalog: Catalog,
    recognizer: Recognizer,
    found: dict[str, _Found],
) -> None:
    """Where a server listens says where its tenant is asked, and better than what its workers say."""
    recognition = recognizer.recognize(catalog, identity, frozenset(), identities)
    if recognition is not None:
        tenant = _tenant(recognition, catalog, found)
        if not tenant.servers and _says_where(recognition):
            tenant.address = recognition.address
        tenant.servers.append(identity)


def _says_where(recognition: Recognition) -> bool:
    return recognition.address != Address()


def _tenant(recognition: Recognition, catalog: Catalog, found: dict[str, _Found]) -> _Found:
    """The tenant that was recognised; an instance may be seen for the first time."""
    if recognition.tenant not in found:
        found[recognition.tenant] = _Found(catalog.resolve(recognition.tenant), recognition.definition_id)
    return found[recognition.tenant]


def _account(gpu: GpuSample, holders: list[Holder]) -> GpuAccount:
    tenants: dict[str, int] = {}
    known = 0
    for holder in holders:
        size = holder.used or 0
        if holder.tenant:
            tenants[holder.tenant] = tenants.get(holder.tenant, 0) + size
        if holder.identity is not None:
            known += size
    return GpuAccount(
        gpu=gpu.identity.uuid,
        tenants=tenants,
        unmanaged=tuple(holder for holder in holders if holder.identity is not None and not holder.tenant),
        unattributed=max(0, gpu.memory.used - known) if gpu.memory else 0,
        unattributed_holders=tuple(holder for holder in holders if holder.identity is None),
        is_read=gpu.memory is not None,
    )
