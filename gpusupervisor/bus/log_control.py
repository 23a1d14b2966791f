"""org.freedesktop.LogControl1: `systemctl service-log-level` on either of our services."""

import os

from dbus_fast import DBusError, ErrorType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus.connection import user_of
from gpusupervisor.bus.interfaces import LOG_CONTROL
from gpusupervisor.bus.names import LOG_CONTROL_PATH
from gpusupervisor.bus.objects import Call, ObjectServer
from gpusupervisor.bus.published import Values
from gpusupervisor.journal.setup import LEVELS, level, set_level, target

PATIENCE = 5.0
"""Seconds in which the bus must have said who calls."""


class LogControl:
    """The object, on a server. Anybody may read; root may set, and the service's own user, as with systemd's own."""

    def __init__(self, server: ObjectServer, bus: MessageBus, identifier: str) -> None:
        """identifier: the program, as the journal names it."""
        self._server = server
        self._bus = bus
        self._identifier = identifier
        server.export(LOG_CONTROL_PATH, LOG_CONTROL, values=self._values(), setters={"LogLevel": self._set_level})

    def _values(self) -> Values:
        return {"LogLevel": level(), "LogTarget": target(), "SyslogIdentifier": self._identifier}

    async def _set_level(self, call: Call, value: object) -> None:
        uid = await user_of(self._bus, call.sender, PATIENCE)
        if uid not in {0, os.geteuid()}:
            raise DBusError(ErrorType.ACCESS_DENIED, "Only root may set the log level")
        if not isinstance(value, str) or value not in LEVELS:
            raise DBusError(ErrorType.INVALID_ARGS, f"A log level is one of: {', '.join(LEVELS)}")
        set_level(value)
        self._server.update(LOG_CONTROL_PATH, LOG_CONTROL, self._values())
