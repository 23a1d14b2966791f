"""A systemd on a bus that has the units a test wants, and answers as wrongly as a test wants."""

from dataclasses import dataclass, field
from typing import Any

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.peers.unit_client import MANAGER, NAME, PATH, PROPERTIES, SERVICE, UNIT

EMPTY = {
    "ActiveState": Variant("s", "active"),
    "FragmentPath": Variant("s", ""),
    "DropInPaths": Variant("as", []),
    "NeedDaemonReload": Variant("b", False),
    "MainPID": Variant("u", 0),
    "ControlGroup": Variant("s", ""),
    "ExecStart": Variant("a(sasbttttuii)", []),
    "ExecStartEx": Variant("a(sasasttttuii)", []),
    "Environment": Variant("as", []),
    "EnvironmentFiles": Variant("a(sb)", []),
    "PassEnvironment": Variant("as", []),
    "UnsetEnvironment": Variant("as", []),
}


def command(*argv: str) -> Variant:
    """An ExecStart."""
    return Variant("a(sasbttttuii)", [[argv[0], list(argv), False, 0, 0, 0, 0, 0, 0, 0]])


@dataclass
class FakeSystemd:
    """Made by `start`."""

    bus: MessageBus
    units: dict[str, dict[str, Variant]] = field(default_factory=dict)
    """Name to properties."""
    asked: list[str] = field(default_factory=list)
    """Members that were called."""
    refused: set[str] = field(default_factory=set)
    """Members that are answered with an error."""
    files: dict[str, dict[str, Variant]] = field(default_factory=dict)
    """Units that it has not loaded and could."""
    load_state: str = "loaded"

    @classmethod
    async def start(cls, address: str) -> "FakeSystemd":
        bus = await MessageBus(address).connect()
        one = cls(bus)
        bus.add_message_handler(one._answer)
        await bus.request_name(NAME)
        return one

    async def stop(self) -> None:
        self.bus.disconnect()
        await self.bus.wait_for_disconnect()  # type: ignore[no-untyped-call]

    def has(self, name: str, **properties: Variant) -> None:
        self.units[name] = {**EMPTY, **properties}

    def path(self, name: str) -> str:
        return f"{PATH}/unit/{''.join(c if c.isalnum() else f'_{ord(c):02x}' for c in name)}"

    async def signal(self, path: str, interface: str, member: str, signature: str, *body: object) -> None:
        message = Message.new_signal(path, interface, member, signature, list(body))
        await self.bus.send(message)

    async def reloads(self) -> None:
        """What systemctl daemon-reload makes it say."""
        await self.signal(PATH, MANAGER, "Reloading", "b", True)
        await self.signal(PATH, MANAGER, "Reloading", "b", False)

    async def changes(self, name: str) -> None:
        changed = {"MainPID": self.units[name]["MainPID"]}
        await self.signal(self.path(name), PROPERTIES, "PropertiesChanged", "sa{sv}as", SERVICE, changed, [])

    async def loads(self, name: str) -> None:
        await self.signal(PATH, MANAGER, "UnitNew", "so", name, self.path(name))

    def _answer(self, message: Message) -> Message | bool | None:
        if message.message_type is not MessageType.METHOD_CALL or message.destination not in (
            NAME,
            self.bus.unique_name,
        ):
            return None
        member = message.member or ""
        self.asked.append(member)
        if member in self.refused:
            return Message.new_error(message, "org.freedesktop.DBus.Error.AccessDenied", "no")
        if member == "Subscribe":
            return Message.new_method_return(message)
        if member == "ListUnitsByPatterns":
            return self._list(message)
        if member == "LoadUnit":
            return Message.new_method_return(message, "o", [self.path(message.body[0])])
        if member == "Get":
            return self._get(message)
        return Message.new_error(message, "org.freedesktop.DBus.Error.UnknownMethod", member)

    def _list(self, message: Message) -> Message:
        rows = [
            [name, "", self.load_state, "active", "running", "", self.path(name), 0, "", "/"] for name in self.units
        ]
        return Message.new_method_return(message, "a(ssssssouso)", [rows])

    def _get(self, message: Message) -> Message:
        interface, member = message.body
        assert interface in (UNIT, SERVICE)
        unit = next((each for name, each in (self.units | self.files).items() if self.path(name) == message.path), {})
        value: Any = unit.get(member)
        if member == "LoadState":
            value = Variant("s", "loaded" if unit else "not-found")
        if value is None:
            return Message.new_error(message, "org.freedesktop.DBus.Error.UnknownProperty", member)
        return Message.new_method_return(message, "v", [value])
