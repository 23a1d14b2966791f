"""The witness: sees over D-Bus, and over nothing else, whether what the story tells really happens."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.cli.client import BUS_NAME, MANAGER, ROOT, plain

PATIENCE = 30.0
"""Seconds until something that does not happen ends the story."""
LOOK_AGAIN = 0.1


class DidNotHappenError(Exception):
    """A step of the story did not happen."""


@dataclass(frozen=True, slots=True)
class Signal:
    """A signal of the manager."""

    member: str
    body: list[Any]


class Witness:
    """A client like any other."""

    def __init__(self, address: str, tell: Callable[[Signal], None]) -> None:
        self._bus = MessageBus(address)
        self._tell = tell
        self._seen: list[Signal] = []
        self._news = asyncio.Event()

    async def connect(self) -> None:
        """Come in and wait until the service is there."""
        await self._bus.connect()
        self._bus.add_message_handler(self._note)
        rule = f"type='signal',interface='{MANAGER}'"
        await self._call("AddMatch", "s", [rule], "org.freedesktop.DBus", "/org/freedesktop/DBus")
        await self._until(self._is_there, "the service owns its name")

    def leave(self) -> None:
        """Hang up."""
        self._bus.disconnect()

    async def properties(self, path: str, interface: str) -> dict[str, Any]:
        """All properties of one interface of an object below the root; empty when there is none."""
        try:
            found = await self._call(
                "GetAll", "s", [f"{BUS_NAME}.{interface}"], "org.freedesktop.DBus.Properties", ROOT + path
            )
        except DidNotHappenError:
            return {}
        return dict(found)

    async def manager(self, member: str, signature: str = "", *body: object) -> Any:  # noqa: ANN401
        """Call a method of the manager. An error that it answers is raised as DidNotHappenError with its words."""
        return await self._call(member, signature, list(body), MANAGER, ROOT)

    async def tenant_release(self, tenant: str) -> None:
        """Ask a tenant for its memory, as any client may."""
        interface = f"{BUS_NAME}.Tenants"
        await self._call("Release", "s", [tenant], interface, f"{ROOT}/tenants")

    async def sees(
        self, path: str, interface: str, what: str, patience: float = PATIENCE, **wanted: Callable[[Any], bool]
    ) -> dict[str, Any]:
        """Wait until properties are as wanted; returns all of them."""
        found: dict[str, Any] = {}

        async def is_so() -> bool:
            nonlocal found
            found = await self.properties(path, interface)
            return bool(found) and all(test(found[name]) for name, test in wanted.items())

        await self._until(is_so, what, patience)
        return found

    async def hears(self, member: str, what: str, test: Callable[[list[Any]], bool]) -> list[Any]:
        """Wait for a signal, one that came already included, and take it; returns its body."""
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    for signal in self._seen:
                        if signal.member == member and test(signal.body):
                            self._seen.remove(signal)
                            return signal.body
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise DidNotHappenError(f"{what}: no such signal within {PATIENCE:.0f} s") from None

    async def _is_there(self) -> bool:
        return bool(await self._call("NameHasOwner", "s", [BUS_NAME], "org.freedesktop.DBus", "/org/freedesktop/DBus"))

    async def _until(self, test: Callable[[], Any], what: str, patience: float = PATIENCE) -> None:
        try:
            async with asyncio.timeout(patience):
                while not await test():  # noqa: ASYNC110  (properties whose changes are not signalled are awaited too)
                    await asyncio.sleep(LOOK_AGAIN)
        except TimeoutError:
            raise DidNotHappenError(f"{what}: not within {patience:.0f} s") from None

    async def _call(self, member: str, signature: str, body: list[object], interface: str, path: str) -> Any:  # noqa: ANN401
        destination = interface if interface == "org.freedesktop.DBus" else BUS_NAME
        reply = await self._bus.call(
            Message(
                destination=destination, path=path, interface=interface, member=member, signature=signature, body=body
            )
        )
        if reply is None or reply.message_type is MessageType.ERROR:
            raise DidNotHappenError(f"{member}: {plain(reply.body[0]) if reply and reply.body else 'no answer'}")
        return plain(reply.body[0]) if reply.body else None

    def _note(self, message: Message) -> None:
        if message.message_type is MessageType.SIGNAL and message.interface == MANAGER:
            body: Any = plain(message.body)
            signal = Signal(message.member or "", body)
            self._seen.append(signal)
            self._news.set()
            self._tell(signal)
