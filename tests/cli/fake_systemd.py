"""Services as systemd tells of them, on a private bus."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.cli.setup.systemd import NAME

_PREFIX = "/org/freedesktop/systemd1/unit/number_"


@dataclass(frozen=True)
class Unit:
    """One service."""

    name: str
    state: str = "active"
    """ActiveState, or "stopped" for one that is only installed."""
    command: Sequence[str] = ()
    environment: Sequence[str] = field(default=())
    environment_files: Sequence[str] = field(default=())
    unset: Sequence[str] = field(default=())
    prefixes: Sequence[str] = field(default=())
    triggers: Sequence[str] = field(default=())


class FakeSystemd:
    """Answers on a connection as systemd does."""

    def __init__(self, bus: MessageBus, units: Sequence[Unit] = ()) -> None:
        self.units = list(units)
        self._bus = bus
        bus.add_message_handler(self._take)

    @classmethod
    async def on(cls, address: str, units: Sequence[Unit] = ()) -> "FakeSystemd":
        """One on a bus of this address."""
        bus = await cls.connection(address)
        one = cls(bus, units)
        await bus.request_name(NAME)
        return one

    @staticmethod
    async def connection(address: str) -> MessageBus:
        """A connection to the bus of this address."""
        return await MessageBus(address).connect()

    async def leave(self) -> None:
        """Leave the bus."""
        self._bus.disconnect()
        await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]

    def _take(self, message: Message) -> bool:
        if message.message_type is not MessageType.METHOD_CALL:
            return False
        answer = self._answer(message)
        if answer is not None:
            self._bus.send(answer)
        return answer is not None

    def _answer(self, message: Message) -> Message | None:
        match message.member:
            case "ListUnitsByPatterns":
                shown = [
                    [each.name, "", "loaded", each.state, "", "", f"{_PREFIX}{number}", 0, "", "/"]
                    for number, each in enumerate(self.units)
                    if each.state != "stopped"
                ]
                return Message.new_method_return(message, "a(ssssssouso)", [shown])
            case "ListUnitFilesByPatterns":
                files = [[f"/usr/lib/systemd/system/{each.name}", "enabled"] for each in self.units]
                return Message.new_method_return(message, "a(ss)", [files])
            case "Get" if (message.path or "").startswith(_PREFIX):
                unit = self.units[int((message.path or "").removeprefix(_PREFIX))]
                return Message.new_method_return(message, "v", [_property(unit, message.body[1])])
        return None


def _property(unit: Unit, name: str) -> Variant:
    match name:
        case "ExecStart":
            command = list(unit.command)
            entry = [[command[0], command, False, 0, 0, 0, 0, 0, 0, 0]] if command else []
            return Variant("a(sasbttttuii)", entry)
        case "ExecStartEx":
            command = list(unit.command)
            with_flags = [[command[0], command, list(unit.prefixes), 0, 0, 0, 0, 0, 0, 0]] if command else []
            return Variant("a(sasasttttuii)", with_flags)
        case "TriggeredBy":
            return Variant("as", list(unit.triggers))
        case "Environment":
            return Variant("as", list(unit.environment))
        case "UnsetEnvironment":
            return Variant("as", list(unit.unset))
    return Variant("a(sb)", [[file, False] for file in unit.environment_files])
