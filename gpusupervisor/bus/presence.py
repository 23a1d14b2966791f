"""Being on the bus under a name: the connection, the name, and that both are still ours."""

import asyncio
import contextlib

from dbus_fast import BusType, DBusError, Message, NameFlag, RequestNameReply
from dbus_fast.errors import AuthError, InvalidAddressError

from gpusupervisor.bus.connection import DRIVER_NAME, disconnection
from gpusupervisor.bus.transport import BusConnection

CONNECT_TIMEOUT = 10.0
"""Seconds until the bus must have let us in."""


class BusUnavailable(Exception):  # noqa: N818  (it names a state, not a defect)
    """The bus cannot be reached, or the name cannot be had; the text says what to do."""


class Presence:
    """A connection that is to own one name. Made by `connect`."""

    def __init__(self, bus: BusConnection, name: str) -> None:
        self.bus = bus
        self._name = name
        self._name_lost = asyncio.Event()
        self._disconnected = asyncio.ensure_future(disconnection(bus))
        bus.add_message_handler(self._watch_name)

    @classmethod
    async def connect(cls, address: str | None, name: str) -> "Presence":
        """Connect (None: the system bus), owning nothing yet. Raises `BusUnavailable`.

        The connection takes no file descriptors: none of our methods does, so the bus keeps them from us.
        """
        bus = BusConnection(address, BusType.SYSTEM, patience=CONNECT_TIMEOUT)
        try:
            await asyncio.wait_for(bus.connect(), CONNECT_TIMEOUT)
        except (OSError, EOFError, AuthError, InvalidAddressError) as error:
            where = address or "the system bus"
            raise BusUnavailable(
                f"Cannot connect to {where} ({error or type(error).__name__}): is dbus running?"
            ) from error
        return cls(bus, name)

    async def own_name(self) -> None:
        """Own the name, or raise `BusUnavailable`."""
        name = self._name
        try:
            reply = await asyncio.wait_for(self.bus.request_name(name, NameFlag.DO_NOT_QUEUE), CONNECT_TIMEOUT)
        except DBusError as error:
            raise BusUnavailable(
                f"The bus does not let this user own {name} ({error.text}): "
                f"is its bus policy {name}.conf installed (make install does), and was dbus reloaded since?"
            ) from error
        except (OSError, EOFError) as error:
            raise BusUnavailable(f"The bus went away while {name} was requested ({error})") from error
        if reply is not RequestNameReply.PRIMARY_OWNER:
            raise BusUnavailable(
                f"{name} is taken by another process: `busctl status {name}` shows which; only one can run on a bus"
            )

    async def give_name_up(self) -> None:
        """Own the name no longer. All calls that were sent to it before have arrived when this returns."""
        self.bus.remove_message_handler(self._watch_name)
        with contextlib.suppress(OSError, EOFError):  # with the connection the name is gone too
            await asyncio.wait_for(self.bus.release_name(self._name), CONNECT_TIMEOUT)

    async def wait_lost(self) -> str:
        """Waits until the connection or the name is lost, and says which: there is no way on but to exit."""
        name_lost = asyncio.ensure_future(self._name_lost.wait())
        try:
            await asyncio.wait({self._disconnected, name_lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            name_lost.cancel()
        if self._name_lost.is_set():
            return f"the bus took the name {self._name} away"
        return "the connection to the bus is lost"

    async def leave(self) -> None:
        """Leave the bus."""
        self.bus.disconnect()
        await asyncio.wait({self._disconnected})
        self._disconnected.exception()  # a connection that broke before is no news here

    def _watch_name(self, message: Message) -> None:
        """The bus itself tells, to us alone, when we lose a name."""
        if message.sender == DRIVER_NAME and message.member == "NameLost" and message.body == [self._name]:
            self._name_lost.set()
