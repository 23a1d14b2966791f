"""Which accounts' sockets may speak for a tenant, from its processes and its file."""

import pwd
import re
from collections.abc import Iterable
from functools import lru_cache

from gpusupervisor.engine_http import Peer
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import Endpoint

_USER_MANAGER = re.compile(r"user@([0-9]{1,10})\.service")


def peer_of(endpoint: Endpoint | None, processes: Iterable[ProcessIdentity]) -> Peer:
    """Return what must be at the other end of the tenant's endpoint.

    Where root has started some of its processes (a system unit, a container of the system's), only their accounts
    count: a user's program that looks like the tenant does not become its voice. Keys are sent to these, and to the
    account that root's file names.
    """
    known = tuple(processes)
    vouched = frozenset(user for each in known if each.started_by_root for user in _accounts(each))
    account = uid_of(endpoint.user) if endpoint is not None and endpoint.user else None
    named = frozenset[int]() if account is None else frozenset({account})
    users = vouched or frozenset(user for each in known for user in _accounts(each))
    ca, fingerprint = (endpoint.tls_ca, endpoint.tls_fingerprint) if endpoint else ("", "")
    return Peer(users=users | named, key_users=vouched | named, ca=ca, fingerprint=fingerprint)


def why_unproven(presence: TenantPresence) -> str:
    """Return why no room is made automatically on the tenant's word, in a clause; empty when nothing is against it.

    Anybody can answer at a port, or start a program that looks like an engine. What counts is a process that root has
    started, or one that holds or has opened the GPU; that it owns the socket which speaks for it is checked where it is
    asked (`Peer`).
    """
    holders = [each.identity for each in presence.holders if each.identity is not None and not each.orphan]
    known = (*presence.servers, *holders)
    if not known:
        return "no process of it is known: no room is made on the word of an address"
    if holders or any(each.started_by_root or each.has_opened_gpu for each in known):
        return ""
    return "it has not opened the GPU: no room is made on its word alone"


def _accounts(identity: ProcessIdentity) -> Iterable[int]:
    """Its own and, of a rootless container, that of the user who runs the container's proxy."""
    yield identity.uid
    manager = _USER_MANAGER.fullmatch(identity.unit)
    if manager and identity.container:
        yield int(manager[1])


@lru_cache(maxsize=64)
def uid_of(name: str) -> int | None:
    """Return the number of an account, or None if there is none. Forgotten at a reload (`forget_accounts`)."""
    if name.isdecimal():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


def forget_accounts() -> None:
    """Look accounts up again from now on."""
    uid_of.cache_clear()
