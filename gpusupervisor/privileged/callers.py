"""Admits callers of the privileged services: root and the supervisor's user. The bus policy says the same."""

import logging
import pwd
from collections import OrderedDict

from dbus_fast import DBusError, ErrorType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import user_of
from gpusupervisor.bus.objects import Call
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.hardware import CallerRefused

SUPERVISOR_USER = "gpusupervisor"
PATIENCE = 5.0
"""Seconds in which the bus must have said who calls."""
REMEMBERED = 64

_LOG = logging.getLogger(__name__)


def allowed_users() -> frozenset[int]:
    """The uids of root and of the supervisor; only root's where that user does not exist. Blocks."""
    try:
        return frozenset({0, pwd.getpwnam(SUPERVISOR_USER).pw_uid})
    except KeyError:
        _LOG.warning("there is no user %s: only root may call (systemd-sysusers makes it)", SUPERVISOR_USER)
        return frozenset({0})


class Callers:
    """Admits callers by their uid, as the bus tells it for their unique name."""

    def __init__(self, bus: MessageBus, allowed: frozenset[int]) -> None:
        self._bus = bus
        self._allowed = allowed
        self._known: OrderedDict[str, bool] = OrderedDict()
        """By unique name: the bus never gives one out twice."""

    async def admit(self, call: Call) -> None:
        """Returns when the caller may call; raises `DBusError` (AccessDenied) otherwise, and when nobody can tell."""
        admitted = self._known.get(call.sender)
        if admitted is None:
            uid = await user_of(self._bus, call.sender, PATIENCE)
            if uid is None:
                raise DBusError(ErrorType.ACCESS_DENIED, "The bus cannot tell who is calling, so nothing was done")
            admitted = uid in self._allowed
            self._known[call.sender] = admitted
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            if not admitted:
                write(CallerRefused(uid))
        if not admitted:
            raise DBusError(
                ErrorType.ACCESS_DENIED,
                f"Only root and the user {SUPERVISOR_USER} may call this service: call org.gpusupervisor1, "
                "which asks polkit whether you may",
            )
