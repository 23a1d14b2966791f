"""A client of the daemon, as an applet is one."""

import asyncio
from collections.abc import Callable
from typing import Any

from dbus_fast import Message, MessageType
from dbus_fast.aio import MessageBus

from gpusupervisor.bus import names
from gpusupervisor.cli.client import plain
from tests.bus.conftest import Client

PATIENCE = 15.0
MANAGER = f"{names.BUS_NAME}.Manager"
TENANTS = f"{names.BUS_NAME}.Tenants"


class CallFailed(Exception):  # noqa: N818
    """An error reply."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name.removeprefix(names.ERROR_PREFIX)
        self.text = text


class Observer(Client):
    """Records signals; reads properties; calls."""

    async def ask(self, path: str, interface: str, member: str, signature: str = "", *body: object) -> Any:
        """The answer without variants. Raises CallFailed."""
        message = Message(names.BUS_NAME, path, interface, member, signature=signature, body=list(body))
        async with asyncio.timeout(PATIENCE):
            reply = await self.bus.call(message)
        assert reply is not None
        if reply.message_type is MessageType.ERROR:
            raise CallFailed(str(reply.error_name), str(reply.body[0]))
        return plain(reply.body[0]) if reply.body else None

    async def manager(self, member: str, signature: str = "", *body: object) -> Any:
        return await self.ask(names.ROOT, MANAGER, member, signature, *body)

    async def make_room(self, gpu: str = "", tenant: str = "", size: int = 0) -> Any:
        return await self.manager("MakeRoom", "sst", gpu, tenant, size)

    async def release(self, tenant: str) -> Any:
        return await self.ask(names.TENANTS_PATH, TENANTS, "Release", "s", tenant)

    async def properties(self, path: str, interface: str) -> dict[str, Any]:
        """All properties of an interface; empty while the object is not there."""
        full = f"{names.BUS_NAME}.{interface}"
        try:
            return dict(await self.ask(path, "org.freedesktop.DBus.Properties", "GetAll", "s", full))
        except CallFailed:
            return {}

    async def tenant(self, tenant: str) -> dict[str, Any]:
        return await self.properties(names.tenant_path(tenant), "Tenant")

    async def gpu(self, uuid: str) -> dict[str, Any]:
        return await self.properties(names.gpu_path(uuid), "Gpu")

    async def health(self) -> dict[str, Any]:
        return await self.properties(names.HEALTH_PATH, "Health")

    async def root(self) -> dict[str, Any]:
        return await self.properties(names.ROOT, "Manager")

    async def sees(self, path: str, interface: str, what: str, **wanted: Callable[[Any], bool]) -> dict[str, Any]:
        """Wait until properties are as wanted; returns all of them."""
        found: dict[str, Any] = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while not (found and all(test(found[name]) for name, test in wanted.items())):
                    await asyncio.sleep(0.02)
                    found = await self.properties(path, interface)
        except TimeoutError:
            shown = {name: found.get(name) for name in wanted}
            raise AssertionError(f"not within {PATIENCE:g} s: {what}; last seen: {shown}") from None
        return found

    async def sees_tenant(self, tenant: str, what: str, **wanted: Callable[[Any], bool]) -> dict[str, Any]:
        return await self.sees(names.tenant_path(tenant), "Tenant", what, **wanted)

    async def hears(self, member: str, what: str, test: Callable[[list[Any]], object] = bool) -> list[Any]:
        """Wait for a signal of the manager, one that came already included; returns its body."""
        found: list[list[Any]] = []

        def heard(messages: list[Message]) -> bool:
            bodies: list[Any] = [plain(message.body) for message in messages if message.member == member]
            found[:] = [body for body in bodies if test(body)]
            return bool(found)

        try:
            await self.wait_for(heard)
        except TimeoutError:
            raise AssertionError(f"no such signal: {what}") from None
        return found[0]

    def heard(self) -> list[str]:
        """Members of the manager's signals so far, in order."""
        return [str(signal.member) for signal in self.signals if signal.interface == MANAGER]


async def observer_of(address: str) -> Observer:
    """A connected one that hears everything below our root."""
    bus = await MessageBus(address).connect()
    rule = f"type='signal',path_namespace='{names.ROOT}'"
    await bus.call(
        Message(
            "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "AddMatch",
            signature="s", body=[rule],
        )
    )  # fmt: skip
    return Observer(bus)
