"""Census: every process that holds VRAM attributed to a tenant, the desktop's or nobody's."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusupervisor.engine_http import NO_USERS, Header, Peer
from gpusupervisor.processes.identity import ProcessIdentity


@dataclass(frozen=True, slots=True)
class Holder:
    """A process on one GPU."""

    gpu: str
    pid: int
    used: int | None
    """Bytes; None when the driver does not say."""
    identity: ProcessIdentity | None
    """None for a PID that is gone, a zombie, or of another PID namespace: its bytes are unattributed."""
    tenant: str = ""
    """Tenant id; empty for unmanaged and unattributed holders."""
    why: str = ""
    """What it was recognised by, e.g. "unit ollama.service"."""
    sm_utilization: int | None = None
    orphan: bool = False
    """Its engine's server is gone: nobody can be asked for this memory."""


@dataclass(frozen=True, slots=True)
class TenantPresence:
    """A tenant that is on the machine: its instance, endpoint, processes and holdings."""

    id: str
    definition_id: str
    endpoint: str
    """URL; empty when it has none, when another tenant is at the address that would be taken for granted, and while
    nothing of it is there that could be at an address that others use too."""
    holders: tuple[Holder, ...] = ()
    holdings: Mapping[str, int] = field(default_factory=dict)
    """GPU UUID to known bytes."""
    unknown_on: frozenset[str] = frozenset()
    """GPUs on which a process of unknown size holds memory: holdings are a lower bound there."""
    servers: tuple[ProcessIdentity, ...] = ()
    """Its servers that are known, whether or not they hold VRAM."""
    endpoint_is_written: bool = True
    """The address is the one of its file, not one that a process has named: keys may be sent there."""
    is_elsewhere: bool = False
    """It listens in a network of its own, to which no port of this machine is known to lead: it cannot be asked."""
    headers: tuple[Header, ...] = ()
    """What goes with every request to the endpoint; keys only when `endpoint_is_written`."""
    peer: Peer = NO_USERS
    """What must be at the other end of the endpoint."""

    @property
    def absence(self) -> str:
        """What is known of it while it has no holders."""
        return "it holds no VRAM" if self.servers else "it does not run, or holds no VRAM"


@dataclass(frozen=True, slots=True)
class GpuAccount:
    """Where the memory of one GPU is. used = tenants + unmanaged + unattributed (reserved is apart)."""

    gpu: str
    tenants: Mapping[str, int]
    unmanaged: tuple[Holder, ...]
    unattributed: int
    """used - known holdings; 0 when holdings exceed used (they are sampled at different moments)."""
    unattributed_holders: tuple[Holder, ...] = ()
    """PIDs that the driver lists and nobody is behind any more; their bytes are within `unattributed`."""
    is_read: bool = True
    """False while its memory cannot be read: that nobody is seen to hold any says nothing then."""


@dataclass(frozen=True, slots=True)
class Census:
    """All of it at one moment."""

    tenants: Mapping[str, TenantPresence]
    """By tenant id: every definition, present or not, and every instance seen."""
    gpus: Mapping[str, GpuAccount]

    @property
    def unread(self) -> frozenset[str]:
        """The GPUs whose memory could not be read."""
        return frozenset(uuid for uuid, account in self.gpus.items() if not account.is_read)
