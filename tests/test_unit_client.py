"""What system units declare is asked of systemd, of nobody else, and again when systemd reloads."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.unit_client import MANAGER, SYSTEMD_NAME, SYSTEMD_PATH, UnitClient
from tests.bus.conftest import PrivateBus, mortal_bus  # noqa: F401
from tests.helper.conftest import eventually

APP = frozenset({"app.service"})


class Systemd:
    """Answers as systemd does, on a bus of its own."""

    def __init__(self, bus: MessageBus) -> None:
        self.bus = bus
        self.units: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.silent = False
        bus.add_message_handler(self._take)

    def _take(self, message: Message) -> bool:
        if message.message_type is not MessageType.METHOD_CALL or self.silent:
            return self.silent
        answer = self._answer(message)
        if answer is not None:
            self.bus.send(answer)
        return answer is not None

    def _answer(self, message: Message) -> Message | None:
        if message.member == "Subscribe":
            return Message.new_method_return(message)
        if message.member == "GetUnit":
            self.asked.append(message.body[0])
            if message.body[0] not in self.units:
                return Message.new_error(message, f"{SYSTEMD_NAME}.NoSuchUnit", "not loaded")
            return Message.new_method_return(message, "o", [f"/unit/{message.body[0].partition('.')[0]}"])
        if message.member == "Get":
            assert message.body == [f"{SYSTEMD_NAME}.Service", "Environment"]
            name = f"{(message.path or '').rpartition('/')[2]}.service"
            return Message.new_method_return(message, "v", [Variant("as", self.units[name])])
        return None

    def reloads(self, bus: MessageBus | None = None) -> None:
        (bus or self.bus).send(Message.new_signal(SYSTEMD_PATH, MANAGER, "Reloading", "b", [False]))


async def connect(bus: PrivateBus) -> MessageBus:
    return await MessageBus(bus.address).connect()


async def leave(bus: MessageBus) -> None:
    bus.disconnect()
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


@pytest.fixture
async def systemd(mortal_bus: PrivateBus) -> AsyncIterator[Systemd]:  # noqa: F811
    bus = await connect(mortal_bus)
    await bus.request_name(SYSTEMD_NAME)
    yield Systemd(bus)
    await leave(bus)


@pytest.fixture
async def client(mortal_bus: PrivateBus, systemd: Systemd) -> AsyncIterator[UnitClient]:  # noqa: F811
    bus = await connect(mortal_bus)
    client = UnitClient()
    task = asyncio.ensure_future(client.follow_for_ever(bus))
    yield client
    task.cancel()
    await asyncio.wait({task})
    await leave(bus)


async def known(client: UnitClient, expected: Mapping[str, Mapping[str, str]], present: frozenset[str] = APP) -> None:
    await eventually(lambda: client.declared(present) == expected, f"{expected} is known")


async def test_only_what_a_unit_declares_is_kept(client: UnitClient, systemd: Systemd) -> None:
    systemd.units["app.service"] = ["PATH=/bin", "GPUSUPERVISOR_TENANT=a=b", "API_KEY=secret", "GPUSUPERVISOR_X"]
    assert client.declared(APP) == {}, "nothing waits for it"
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "a=b", "GPUSUPERVISOR_X": ""}})


async def test_a_unit_is_asked_about_once_and_the_answer_stays_the_same_object(
    client: UnitClient, systemd: Systemd
) -> None:
    systemd.units = {"app.service": ["GPUSUPERVISOR_TENANT=a"], "plain.service": []}
    present = frozenset(systemd.units)
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "a"}}, present)
    await eventually(lambda: len(systemd.asked) == 2, "both were asked about")
    before = client.declared(present)
    for _ in range(5):
        assert client.declared(present) is before
    assert sorted(systemd.asked) == ["app.service", "plain.service"]


async def test_what_has_gone_stays_declared_and_is_asked_about_when_it_comes_back(
    client: UnitClient, systemd: Systemd
) -> None:
    systemd.units["app.service"] = ["GPUSUPERVISOR_TENANT=a"]
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "a"}})
    assert client.declared(frozenset()) == {"app.service": {"GPUSUPERVISOR_TENANT": "a"}}
    systemd.units["app.service"] = ["GPUSUPERVISOR_TENANT=b"]
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "b"}})


async def test_a_reload_of_systemd_is_noticed(client: UnitClient, systemd: Systemd) -> None:
    systemd.units["app.service"] = ["GPUSUPERVISOR_TENANT=a"]
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "a"}})
    systemd.units["app.service"] = ["GPUSUPERVISOR_TENANT=a", "GPUSUPERVISOR_PRIORITY=9"]
    systemd.reloads()
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "a", "GPUSUPERVISOR_PRIORITY": "9"}})
    systemd.units["app.service"] = []
    systemd.reloads()
    await known(client, {})
    systemd.units["app.service"] = ["GPUSUPERVISOR_TENANT=late"]
    systemd.reloads()
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "late"}})


async def test_a_signal_of_somebody_else_is_not_believed(
    client: UnitClient,
    systemd: Systemd,
    mortal_bus: PrivateBus,  # noqa: F811
) -> None:
    systemd.units["app.service"] = ["GPUSUPERVISOR_TENANT=a"]
    await known(client, {"app.service": {"GPUSUPERVISOR_TENANT": "a"}})
    stranger = await connect(mortal_bus)
    systemd.reloads(stranger)
    await stranger.call(Message("org.freedesktop.DBus", "/", "org.freedesktop.DBus", "GetId"))
    client.declared(APP | {"other.service"})
    await eventually(lambda: "other.service" in systemd.asked, "the next question has come")
    assert systemd.asked == ["app.service", "other.service"]
    await leave(stranger)


async def test_without_systemd_nothing_is_declared_and_nothing_breaks(mortal_bus: PrivateBus) -> None:  # noqa: F811
    bus = await connect(mortal_bus)
    client = UnitClient()
    task = asyncio.ensure_future(client.follow_for_ever(bus))
    assert client.declared(APP) == {}
    await eventually(lambda: not client._due, "it was tried")
    await asyncio.sleep(0)
    assert not task.done()
    assert client.declared(APP) == {}
    task.cancel()
    await asyncio.wait({task})
    await leave(bus)
