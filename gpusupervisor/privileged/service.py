"""A privileged service on the bus: admits callers, answers them, and gives its name up when it is idle."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dbus_fast.aio import MessageBus

from gpusupervisor.bus.declare import Interface
from gpusupervisor.bus.log_control import LogControl
from gpusupervisor.bus.objects import Call, Handlers, ObjectServer
from gpusupervisor.bus.presence import Presence
from gpusupervisor.errors import Busy
from gpusupervisor.privileged.callers import Callers


@dataclass(frozen=True, slots=True)
class Face:
    """A privileged service as the bus and the journal see it."""

    name: str
    path: str
    interface: Interface
    identifier: str
    """SYSLOG_IDENTIFIER of its journal entries."""


class PrivilegedService:
    """Made by `start`."""

    def __init__(
        self, presence: Presence, face: Face, handlers: Callable[[MessageBus], Handlers], allowed: frozenset[int]
    ) -> None:
        self._presence = presence
        self._face = face
        self._callers = Callers(presence.bus, allowed)
        self._server = ObjectServer(presence.bus, face.path, self._admit)
        self._leaving = False
        self.last_call = asyncio.get_running_loop().time()
        """Time of the last admitted call, or of the start: seconds of the event loop's clock."""
        self._server.export(face.path, face.interface, handlers(presence.bus))
        LogControl(self._server, presence.bus, face.identifier)

    @classmethod
    async def start(
        cls,
        bus_address: str | None,
        face: Face,
        handlers: Callable[[MessageBus], Handlers],
        allowed: frozenset[int],
    ) -> "PrivilegedService":
        """Connect (None: the system bus), export, then own the name. Raises `BusUnavailable`.

        handlers: makes the methods for a connection. allowed: uids that may call.
        """
        presence = await Presence.connect(bus_address, face.name)
        service = cls(presence, face, handlers, allowed)
        try:
            await presence.own_name()
        except BaseException:
            await service.stop()
            raise
        return service

    async def wait_lost(self) -> str:
        """Wait until the connection or the name is lost; return which."""
        return await self._presence.wait_lost()

    def emit(self, member: str, body: Sequence[object]) -> None:
        """Send a signal of the interface."""
        self._server.emit(self._face.path, self._face.interface, member, body)

    async def leave(self) -> None:
        """Give the name up: later calls activate a new process. Calls received before that are refused with Busy.

        STOPPING=1 must have been sent before, or systemd believes that the service still runs and starts no other.
        """
        self._leaving = True
        await self._presence.give_name_up()
        await self._server.served()

    async def stop(self) -> None:
        """Answer calls in progress with an error and leave the bus."""
        await self._server.close()
        await self._presence.leave()

    async def _admit(self, call: Call) -> None:
        await self._callers.admit(call)
        if self._leaving:
            raise Busy("The service was just about to exit because it was idle: call again.")
        self.last_call = asyncio.get_running_loop().time()
