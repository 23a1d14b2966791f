"""The connection of a command to the service: one, over D-Bus, with the service's own words for errors."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from types import TracebackType
from typing import Any, NamedTuple

from dbus_fast import BusType, Message, MessageFlag, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, InvalidAddressError

from gpusupervisor.cli.exits import NOT_ALLOWED, NOT_RUNNING, CommandFailed
from gpusupervisor.cli.failures import BUS_LOST, AuthorizationNeeded, Place, failure, stopped

BUS_NAME = "org.gpusupervisor1"
ROOT = "/org/gpusupervisor1"
MANAGER = f"{BUS_NAME}.Manager"
TENANTS = f"{BUS_NAME}.Tenants"
OBJECT_MANAGER = "org.freedesktop.DBus.ObjectManager"
PROPERTIES = "org.freedesktop.DBus.Properties"

_DRIVER = "org.freedesktop.DBus"
_SYSTEMD = "org.freedesktop.systemd1"
_INTERACTIVE = MessageFlag.NO_AUTOSTART | MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION
Objects = dict[str, dict[str, dict[str, Any]]]
"""Path to interface to properties."""


class Signal(NamedTuple):
    """A signal of the service, or the bus's NameOwnerChanged when the service comes or goes."""

    path: str
    interface: str
    member: str
    body: list[Any]

    @property
    def service_left(self) -> bool:
        """Whether it tells that the service has stopped."""
        return self.member == "NameOwnerChanged" and not self.body[2]


class Client:
    """Calls the service on this machine's system bus ($DBUS_SYSTEM_BUS_ADDRESS where it is set), or another's."""

    def __init__(self, host: str = "", *, unattended: bool = False) -> None:
        """unattended: nothing is asked for and nothing is written on the terminal."""
        self.place = Place(host)
        self._unattended = unattended
        self._bus: MessageBus
        self._closing = AsyncExitStack()

    @property
    def bus(self) -> MessageBus:
        """The bus that the service is on, for calls of others there."""
        return self._bus

    async def __aenter__(self) -> "Client":
        try:
            self._bus = await self._connect()
        except (OSError, EOFError, AuthError, InvalidAddressError) as error:
            await self._closing.aclose()
            raise CommandFailed(self.place.no_bus(error), NOT_RUNNING) from None
        return self

    async def _connect(self) -> MessageBus:
        if not self.place.host:
            return await MessageBus(bus_type=BusType.SYSTEM).connect()
        from gpusupervisor.cli.remote import remote_bus

        return await self._closing.enter_async_context(remote_bus(self.place, unattended=self._unattended))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        self._bus.disconnect()
        await self._closing.aclose()

    async def call(
        self,
        member: str,
        signature: str = "",
        body: Sequence[object] = (),
        *,
        path: str = ROOT,
        interface: str = MANAGER,
    ) -> Any:  # noqa: ANN401  (a D-Bus value)
        """Call a method and return its only out argument without variants; the user may be asked for a password.

        The service is not started for it: where it was stopped, it stays so.

        Only a second call allows polkit to ask: to the first it says that it would have to, which it does not say
        where it may ask but has no agent.
        """

        def message(flags: MessageFlag) -> Message:
            return Message(
                destination=BUS_NAME,
                path=path,
                interface=interface,
                member=member,
                signature=signature,
                body=list(body),
                flags=flags,
            )

        try:
            reply = await self._ask(message(MessageFlag.NO_AUTOSTART))
        except AuthorizationNeeded as needed:
            reply = await self._authorize(message(_INTERACTIVE), needed)
        return plain(reply.body[0]) if reply.body else None

    async def _authorize(self, message: Message, needed: AuthorizationNeeded) -> Message:
        """Ask again, through an agent of the session or one on this terminal. Raises `needed` if that fails."""
        from gpusupervisor.cli.agent import agent, is_possible

        own = agent() if is_possible() and not self.place.host and not self._unattended else nullcontext()
        try:
            async with own:
                return await self._ask(message)
        except CommandFailed as refused:
            if refused.exit_code == NOT_ALLOWED:
                raise needed from None
            raise

    async def objects(self) -> Objects:
        """Everything the service shows, but the root itself."""
        found = await self.call("GetManagedObjects", interface=OBJECT_MANAGER)
        return dict(found)

    async def properties(self, path: str, interface: str) -> dict[str, Any]:
        """All properties of one interface (the ObjectManager does not list the object it is on)."""
        found = await self.call("GetAll", "s", [interface], path=path, interface=PROPERTIES)
        return dict(found)

    async def everything(self) -> tuple[dict[str, Any], Objects]:
        """The manager's properties and all objects, asked for at once."""
        manager, objects = await asyncio.gather(self.properties(ROOT, MANAGER), self.objects())
        return manager, objects

    @asynccontextmanager
    async def signals(self, path: str = ROOT) -> AsyncIterator[AsyncIterator[Signal]]:
        """Signals of the objects at and below `path` as they come, for as long as the context lasts.

        The stream ends with CommandFailed when the connection is lost.
        """
        queue: asyncio.Queue[Signal | None] = asyncio.Queue()

        def collect(message: Message) -> None:
            if message.message_type is MessageType.SIGNAL and _concerns(message, path):
                body = [plain(value) for value in message.body]
                queue.put_nowait(Signal(message.path or "", message.interface or "", message.member or "", body))

        def end(lost: "asyncio.Future[None]") -> None:
            if not lost.cancelled():
                lost.exception()
                queue.put_nowait(None)

        async def stream() -> AsyncIterator[Signal]:
            while signal := await queue.get():
                yield signal
            raise CommandFailed(BUS_LOST, NOT_RUNNING)

        self._bus.add_message_handler(collect)
        await self._match(f"type='signal',sender='{BUS_NAME}',path_namespace='{path}'")
        await self._match(f"type='signal',sender='{_DRIVER}',member='NameOwnerChanged',arg0='{BUS_NAME}'")
        lost = asyncio.ensure_future(self._bus.wait_for_disconnect())  # type: ignore[no-untyped-call]
        lost.add_done_callback(end)
        try:
            yield stream()
        finally:
            lost.cancel()
            self._bus.remove_message_handler(collect)

    async def _match(self, rule: str) -> None:
        await self._ask(Message(_DRIVER, "/org/freedesktop/DBus", _DRIVER, "AddMatch", signature="s", body=[rule]))

    async def _ask(self, message: Message) -> Message:
        """The reply to a call. Raises CommandFailed when it is an error, or when none can come."""
        try:
            reply = await self._bus.call(message)
        except (OSError, EOFError):
            reply = None
        if reply is None:
            raise CommandFailed(BUS_LOST, NOT_RUNNING)
        if reply.message_type is MessageType.ERROR and reply.error_name == f"{_DRIVER}.Error.NameHasNoOwner":
            raise stopped(await self._unit_file_state(), self.place)
        if reply.message_type is MessageType.ERROR:
            raise failure(reply.error_name or "", str(reply.body[0]) if reply.body else "", self.place)
        return reply

    async def _unit_file_state(self) -> str:
        """The state of the service's unit file, as systemctl is-enabled prints it; empty if it is unknown."""
        call = Message(_SYSTEMD, "/org/freedesktop/systemd1", f"{_SYSTEMD}.Manager", "GetUnitFileState")
        call.signature, call.body = "s", ["gpusupervisor.service"]
        call.flags = MessageFlag.NO_AUTOSTART
        try:
            reply = await self._bus.call(call)
        except (OSError, EOFError):
            return ""
        return str(reply.body[0]) if reply is not None and reply.message_type is MessageType.METHOD_RETURN else ""


def _concerns(message: Message, path: str) -> bool:
    if message.member == "NameOwnerChanged":
        return message.sender == _DRIVER and message.body[0] == BUS_NAME
    return message.path == path or (message.path or "").startswith(f"{path}/")


def plain(value: object) -> object:
    """A D-Bus value without its variants."""
    if isinstance(value, Variant):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
