"""The bus service: connects, shows the published state, owns the name, and notices when it is lost."""

import asyncio
from collections.abc import Callable

from dbus_fast import BusType, DBusError, Message, NameFlag, RequestNameReply
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, InvalidAddressError

from gpusupervisor.arbitration.events import Event
from gpusupervisor.bus import interfaces, names
from gpusupervisor.bus.authority import Authority, PolkitAuthority
from gpusupervisor.bus.connection import DRIVER_NAME, disconnection
from gpusupervisor.bus.declare import Interface
from gpusupervisor.bus.methods import Methods
from gpusupervisor.bus.objects import Handlers, ObjectServer
from gpusupervisor.bus.plans import signal_of
from gpusupervisor.bus.realtime import SteadyRealtime
from gpusupervisor.bus.views import (
    Values,
    dead_band,
    engine_view,
    gpu_view,
    health_view,
    manager_view,
    starting,
    tenant_view,
)
from gpusupervisor.clock import Clock
from gpusupervisor.state import Controller, State

CONNECT_TIMEOUT = 10.0
"""Seconds until the bus must have let us in."""
AuthorityFactory = Callable[[MessageBus], Authority]


class BusUnavailable(Exception):  # noqa: N818  (it names a state, not a defect)
    """The bus cannot be reached, or the name cannot be had; the text says what to do."""


class BusService:
    """The daemon's whole face. Made by `start`."""

    def __init__(
        self, bus: MessageBus, controller: Controller, version: str, clock: Clock, authority: Authority
    ) -> None:
        self._bus = bus
        self._version = version
        self._state = starting()
        self._realtime = SteadyRealtime(clock)
        self._methods = Methods(controller, authority, self._realtime, lambda: self._state)
        self._server = ObjectServer(bus, names.ROOT)
        self._name_lost = asyncio.Event()
        self._disconnected = asyncio.ensure_future(disconnection(bus))
        bus.add_message_handler(self._watch_name)
        self._export_fixed_objects()

    @classmethod
    async def start(
        cls,
        bus_address: str | None,
        controller: Controller,
        version: str,
        clock: Clock,
        authority: AuthorityFactory = PolkitAuthority,
    ) -> "BusService":
        """Connect (None: the system bus), export, then own the name. Raises `BusUnavailable`."""
        bus = await _connect(bus_address)
        service = cls(bus, controller, version, clock, authority(bus))
        try:
            await _own_name(bus)
        except BaseException:
            await service.stop()
            raise
        return service

    def publish(self, state: State) -> None:
        """Show a new state; listeners are told of what changed."""
        self._state = state
        self._realtime.refresh()
        server = self._server
        server.update(names.ROOT, interfaces.MANAGER, manager_view(state, self._version))
        server.update(names.HEALTH_PATH, interfaces.HEALTH, health_view(state))
        tenants = {names.tenant_path(id_): id_ for id_ in state.definitions}
        self._show(
            names.TENANTS_PATH,
            interfaces.TENANT,
            {path: tenant_view(state, id_, self._realtime) for path, id_ in tenants.items()},
            lambda path: self._methods.tenant(tenants[path]),
        )
        engines = {names.engine_path(id_): engine_view(state, id_) for id_ in state.engines}
        self._show(names.ENGINES_PATH, interfaces.ENGINE, engines)
        gpus = {names.gpu_path(gpu.identity.uuid): gpu_view(state, gpu, self._realtime) for gpu in state.sample.gpus}
        self._show(names.GPUS_PATH, interfaces.GPU, gpus)
        server.flush(dead_band(state))

    def emit(self, event: Event) -> None:
        """Tell listeners of an event."""
        member, body = signal_of(event, self._realtime)
        self._server.emit(names.ROOT, interfaces.MANAGER, member, body)

    async def wait_lost(self) -> str:
        """Waits until the connection or the name is lost, and says which: there is no way on but to exit."""
        name_lost = asyncio.ensure_future(self._name_lost.wait())
        try:
            await asyncio.wait({self._disconnected, name_lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            name_lost.cancel()
        if self._name_lost.is_set():
            return f"the bus took the name {names.BUS_NAME} away"
        return "the connection to the bus is lost"

    async def stop(self) -> None:
        """Answer what is being served with an error and leave the bus."""
        await self._server.close()
        self._bus.disconnect()
        await asyncio.wait({self._disconnected})
        self._disconnected.exception()  # a connection that broke before is no news here

    def _export_fixed_objects(self) -> None:
        export = self._server.export
        export(names.ROOT, interfaces.MANAGER, self._methods.manager(), manager_view(self._state, self._version))
        export(names.TENANTS_PATH, interfaces.TENANTS, self._methods.tenants())
        export(names.ENGINES_PATH, interfaces.ENGINES, self._methods.engines())
        export(names.HEALTH_PATH, interfaces.HEALTH, values=health_view(self._state))

    def _show(
        self,
        prefix: str,
        interface: Interface,
        views: dict[str, Values],
        handlers: Callable[[str], Handlers] = lambda _path: {},
    ) -> None:
        """Make the objects below a path exactly those of `views`."""
        there = self._server.paths(prefix)
        for path in there - views.keys():
            self._server.unexport(path)
        for path, values in views.items():
            if path in there:
                self._server.update(path, interface, values)
            else:
                self._server.export(path, interface, handlers(path), values)

    def _watch_name(self, message: Message) -> None:
        """The bus itself tells, to us alone, when we lose a name."""
        if message.sender == DRIVER_NAME and message.member == "NameLost" and message.body == [names.BUS_NAME]:
            self._name_lost.set()


async def _connect(address: str | None) -> MessageBus:
    """A connection that takes no file descriptors: none of our methods does, so the bus keeps them from us."""
    bus = MessageBus(address, BusType.SYSTEM, auth_timeout=CONNECT_TIMEOUT)
    try:
        await asyncio.wait_for(bus.connect(), CONNECT_TIMEOUT)
    except (OSError, EOFError, AuthError, InvalidAddressError) as error:
        where = address or "the system bus"
        raise BusUnavailable(
            f"Cannot connect to {where} ({error or type(error).__name__}): is dbus running?"
        ) from error
    return bus


async def _own_name(bus: MessageBus) -> None:
    try:
        reply = await asyncio.wait_for(bus.request_name(names.BUS_NAME, NameFlag.DO_NOT_QUEUE), CONNECT_TIMEOUT)
    except DBusError as error:
        raise BusUnavailable(
            f"The bus does not let this user own {names.BUS_NAME} ({error.text}): "
            f"is its bus policy {names.BUS_NAME}.conf installed (make install does), and was dbus reloaded since?"
        ) from error
    except (OSError, EOFError) as error:
        raise BusUnavailable(f"The bus went away while {names.BUS_NAME} was requested ({error})") from error
    if reply is not RequestNameReply.PRIMARY_OWNER:
        raise BusUnavailable(
            f"{names.BUS_NAME} is taken by another process: `busctl status {names.BUS_NAME}` shows which; "
            "only one supervisor can run on a bus"
        )
