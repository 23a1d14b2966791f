"""Whom an engine's address must belong to before anything is sent there."""

import os
import pwd
import socket
from dataclasses import dataclass

from gpusupervisor.engine_http.answer import ForeignSocket, NotAllowed
from gpusupervisor.engine_http.sockets import OwnerUnknown, owners_of_peer

ALWAYS = frozenset({0, os.geteuid()})
"""Accounts whose sockets may speak for every tenant: root, and the service's own."""


@dataclass(frozen=True, slots=True)
class Peer:
    """What is demanded of the other end of a connection."""

    users: frozenset[int] = frozenset()
    """Accounts that may speak for the tenant on this machine, beside `ALWAYS`."""
    key_users: frozenset[int] = frozenset()
    """Those of them that a key may be sent to, beside `ALWAYS`: root has chosen them."""
    ca: str = ""
    """TLS: file of the authorities that may have signed the certificate; empty: the system's."""
    fingerprint: str = ""
    """TLS: SHA-256 of the certificate in lower-case hex; it alone counts then, whoever signed it."""

    def verify(self, connected: socket.socket, where: str, *, has_key: bool) -> None:
        """Check who is at the other end of a connection to this machine. Blocks.

        Raises ForeignSocket; for a key that may not be sent there, NotAllowed.
        """
        try:
            owners = owners_of_peer(connected)
        except OwnerUnknown as unknown:
            raise ForeignSocket(f"cannot be identified at {where}: {unknown}") from None
        foreign = owners - self.users - ALWAYS
        if foreign:
            raise ForeignSocket(
                f"is not what listens at {where}: that socket belongs to {_names(foreign)}, so nothing was sent"
            )
        unvouched = owners - self.key_users - ALWAYS
        if has_key and unvouched:
            name = _name(min(unvouched))
            raise NotAllowed(
                f"its key is sent only to root, to its system unit, or to the user that its tenant file names; "
                f'{where} belongs to {name}: set user = "{name}" under [endpoint] to allow that'
            )


NO_USERS = Peer()
"""Only root's sockets may speak."""


def _names(users: frozenset[int]) -> str:
    return "user " + " and ".join(_name(user) for user in sorted(users))


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
