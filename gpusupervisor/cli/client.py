"""The connection of a command to the service: one, over D-Bus, with the service's own words for errors."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from dbus_fast import BusType, Message, MessageFlag, MessageType, Variant
from dbus_fast.aio import MessageBus
from dbus_fast.errors import AuthError, InvalidAddressError

BUS_NAME = "org.gpusupervisor1"
ROOT = "/org/gpusupervisor1"
MANAGER = f"{BUS_NAME}.Manager"
TENANTS = f"{BUS_NAME}.Tenants"

BUS_LOST = "The connection to the system bus is lost."
EXIT_FAILED = 1
EXIT_NOT_RUNNING = 3
EXIT_NOT_ALLOWED = 4

_NOT_RUNNING = (
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.TimedOut",
    "org.freedesktop.DBus.Error.Spawn.",  # activation failed
    "org.freedesktop.systemd1.",  # activation through systemd did, e.g. of a masked unit
)
"""Beginnings of error names."""
_NOT_ALLOWED = {
    "org.freedesktop.DBus.Error.AccessDenied",
    "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired",
}


class CommandFailed(Exception):  # noqa: N818  (the name says what happened)
    """What a command tells before it ends with an exit code."""

    def __init__(self, text: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class Client:
    """Calls the service."""

    def __init__(self) -> None:
        self._bus = MessageBus(bus_type=BusType.SYSTEM)

    async def __aenter__(self) -> "Client":
        """Connect to the system bus ($DBUS_SYSTEM_BUS_ADDRESS where it is set)."""
        try:
            await self._bus.connect()
        except (OSError, AuthError, InvalidAddressError) as error:
            raise CommandFailed(f"No system bus to talk to ({error}).", EXIT_NOT_RUNNING) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hang up."""
        self._bus.disconnect()

    async def call(
        self,
        member: str,
        signature: str = "",
        body: Sequence[object] = (),
        *,
        path: str = ROOT,
        interface: str = MANAGER,
    ) -> Any:  # noqa: ANN401  (a D-Bus value)
        """Call a method and return its only out argument without variants; the user may be asked for a password."""
        reply = await self._ask(
            Message(
                destination=BUS_NAME,
                path=path,
                interface=interface,
                member=member,
                signature=signature,
                body=list(body),
                flags=MessageFlag.ALLOW_INTERACTIVE_AUTHORIZATION,
            )
        )
        return plain(reply.body[0]) if reply.body else None

    async def objects(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Everything the service shows: path to interface to properties."""
        found = await self.call("GetManagedObjects", interface="org.freedesktop.DBus.ObjectManager")
        return dict(found)

    async def properties(self, path: str, interface: str) -> dict[str, Any]:
        """All properties of one interface (the ObjectManager does not list the object it is on)."""
        found = await self.call("GetAll", "s", [interface], path=path, interface="org.freedesktop.DBus.Properties")
        return dict(found)

    @asynccontextmanager
    async def signals(self) -> AsyncIterator["AsyncIterator[Message]"]:
        """The service's signals as they come, for as long as the context lasts."""
        queue: asyncio.Queue[Message | None] = asyncio.Queue()

        def collect(message: Message) -> None:
            if message.message_type is MessageType.SIGNAL and (message.path or "").startswith(ROOT):
                queue.put_nowait(message)

        def end(lost: "asyncio.Future[None]") -> None:
            if not lost.cancelled():
                lost.exception()
                queue.put_nowait(None)

        self._bus.add_message_handler(collect)
        rule = f"type='signal',sender='{BUS_NAME}',path_namespace='{ROOT}'"
        await self._ask(
            Message(
                destination="org.freedesktop.DBus",
                path="/org/freedesktop/DBus",
                interface="org.freedesktop.DBus",
                member="AddMatch",
                signature="s",
                body=[rule],
            )
        )

        async def stream() -> AsyncIterator[Message]:
            while message := await queue.get():
                yield message
            raise CommandFailed(BUS_LOST, EXIT_NOT_RUNNING)

        lost = asyncio.ensure_future(self._bus.wait_for_disconnect())  # type: ignore[no-untyped-call]
        lost.add_done_callback(end)
        try:
            yield stream()
        finally:
            lost.cancel()
            self._bus.remove_message_handler(collect)

    async def _ask(self, message: Message) -> Message:
        """The reply to a call. Raises CommandFailed when it is an error, or when none can come."""
        try:
            reply = await self._bus.call(message)
        except (OSError, EOFError):
            reply = None
        if reply is None:
            raise CommandFailed(BUS_LOST, EXIT_NOT_RUNNING)
        if reply.message_type is MessageType.ERROR:
            raise _failure(reply)
        return reply


def _failure(reply: Message) -> CommandFailed:
    text = str(reply.body[0]) if reply.body else str(reply.error_name)
    if (reply.error_name or "").startswith(_NOT_RUNNING):
        return CommandFailed(
            "gpusupervisor is not running.\n"
            "See why with: systemctl status gpusupervisor\n"
            "Start it with: systemctl enable --now gpusupervisor",
            EXIT_NOT_RUNNING,
        )
    return CommandFailed(text, EXIT_NOT_ALLOWED if reply.error_name in _NOT_ALLOWED else EXIT_FAILED)


def plain(value: object) -> object:
    """A D-Bus value without its variants."""
    if isinstance(value, Variant):
        return plain(value.value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
