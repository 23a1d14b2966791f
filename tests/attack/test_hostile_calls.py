"""What anybody may send to the service, made to take for ever: it is bounded, parsed elsewhere, and ends."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from dbus_fast import Message, MessageType, Variant

from gpusupervisor.bus import interfaces, names
from gpusupervisor.bus.admission import GUARDED
from gpusupervisor.bus.allowance import COSTS, HEAVY
from gpusupervisor.bus.authority import Authority
from gpusupervisor.bus.declare import Interface
from tests.attack.conftest import Enter
from tests.attack.raw import ATTACKER, HONEST, RawPeer, Watch, call_of
from tests.bus.conftest import Starter, as_nobody
from tests.bus.fakes import FixedAuthority
from tests.daemon.station import Daemon, Station

DENIED = "org.freedesktop.DBus.Error.AccessDenied"
LIMITS_EXCEEDED = "org.freedesktop.DBus.Error.LimitsExceeded"
BEARABLE = 5.0
"""Seconds; without limits it is minutes, or for ever."""
MANAGER, TENANTS = f"{names.BUS_NAME}.Manager", f"{names.BUS_NAME}.Tenants"
MAIN: list[Daemon] = []
"""The daemon of the station."""
SLOW = {
    "dotted.toml": "a." * 30_000 + "a = 1",
    "tables.toml": "".join(f"[{'a.' * 40}a{number}]\n" for number in range(700)),
    "nested.toml": "a = " + "[" * 60_000,
    "twice.json": "{" + ",".join(f'"k{number}": 1' for number in range(5_000)) + ',"k4999": 2}',
    "deep.json": "[" * 60_000,
    "inline.toml": "a = " + "{a = " * 10_000,
}
"""Inputs on which parsers take time that grows with the square of their length, or worse."""


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    station = Station()
    MAIN.append(station.daemon().wait_ready())
    yield station
    station.close()


@pytest.fixture
async def attacker(station: Station) -> AsyncIterator[RawPeer]:
    peer = await RawPeer.connect(station.bus.address, ATTACKER)
    yield peer
    peer.die()


@pytest.fixture
async def bystander(station: Station) -> AsyncIterator[Watch]:
    peer, watch = await RawPeer.connect(station.bus.address, HONEST), Watch()
    asking = asyncio.create_task(watch.ask_for_ever(peer, 0.02))
    yield watch
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    peer.die()


@pytest.mark.parametrize("name", SLOW)
async def test_a_definition_that_takes_long_to_parse_ends_and_delays_nobody(
    attacker: RawPeer, bystander: Watch, name: str
) -> None:
    asked = call_of(names.ROOT, MANAGER, "CheckDefinition", "ss", name, SLOW[name])
    async with asyncio.timeout(60):
        answer = await attacker.ask(asked)
        while answer.error_name == LIMITS_EXCEEDED:  # an earlier test has spent the points
            await asyncio.sleep(0.5)
            answer = await attacker.ask(asked)
    assert answer.error_name == f"{names.BUS_NAME}.Error.InvalidArgument" or answer.body[0], answer.body
    assert bystander.failures == []
    assert bystander.slowest < BEARABLE


@as_nobody
async def test_many_definitions_at_once_are_checked_one_at_a_time_or_refused(
    attacker: RawPeer, bystander: Watch
) -> None:
    asked = [call_of(names.ROOT, MANAGER, "CheckDefinition", "ss", "a.toml", "title = 3") for _ in range(100)]
    async with asyncio.timeout(60):
        await attacker.send(*asked)
        answers = await attacker.answers(100)
    assert {answer.error_name for answer in answers} <= {None, LIMITS_EXCEEDED}
    assert sum(answer.error_name == LIMITS_EXCEEDED for answer in answers) > 80
    assert bystander.failures == []
    assert bystander.slowest < BEARABLE


async def test_processes_that_take_long_to_recognise_delay_nobody(attacker: RawPeer, bystander: Watch) -> None:
    process = {"command_line": Variant("as", ["a/" * 1000] * 30), "executable": Variant("s", "/a" * 1000)}
    async with asyncio.timeout(60):
        for _ in range(5):
            answer = await attacker.ask(call_of(names.TENANTS_PATH, TENANTS, "Recognise", "aa{sv}", [process] * 7))
            assert answer.error_name in (None, LIMITS_EXCEEDED), answer.body
    assert bystander.failures == []
    assert bystander.slowest < BEARABLE


async def test_a_process_of_more_text_than_any_has_is_refused(attacker: RawPeer) -> None:
    process = {"command_line": Variant("as", ["a" * 4000] * 20)}
    asked = call_of(names.TENANTS_PATH, TENANTS, "Recognise", "aa{sv}", [process])
    async with asyncio.timeout(60):
        answer = await attacker.ask(asked)
        while answer.error_name == LIMITS_EXCEEDED:
            await asyncio.sleep(0.5)
            answer = await attacker.ask(asked)
    assert answer.error_name == f"{names.BUS_NAME}.Error.InvalidArgument"


@as_nobody
async def test_what_honest_commands_ask_meets_no_limit(station: Station) -> None:
    """A `status` asks for everything once, `top` once a second, and Tab for a list at every press."""
    peer = await RawPeer.connect(station.bus.address, HONEST)
    for _ in range(60):
        for path, interface, member in (
            (names.ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects"),
            (names.TENANTS_PATH, TENANTS, "List"),
            (names.ENGINES_PATH, f"{names.BUS_NAME}.Engines", "List"),
            (names.JOBS_PATH, f"{names.BUS_NAME}.Jobs", "List"),
        ):
            answer = await peer.ask(call_of(path, interface, member))
            assert answer.message_type is MessageType.METHOD_RETURN, answer.body
    peer.die()


async def test_huge_calls_leave_no_memory_behind(station: Station, attacker: RawPeer) -> None:
    def resident() -> int:
        """KiB."""
        text = Path(f"/proc/{MAIN[-1].process.pid}/status").read_text()
        return int(next(line for line in text.splitlines() if line.startswith("VmRSS")).split()[1])

    before = await asyncio.to_thread(resident)
    for size in (16 << 20, 1 << 20, 30 << 20, 600 << 10):
        answer = await attacker.ask(call_of(names.ROOT, MANAGER, "CheckDefinition", "ss", "a.toml", "#" * size))
        assert answer.error_name == LIMITS_EXCEEDED
    assert await asyncio.to_thread(resident) - before < 8 << 10


# Which methods are open


OPEN = {
    "Manager": {"PlanRelease", "CheckDefinition"},
    "Tenants": {"List", "Get", "Explain", "Recognise"},
    "Engines": {"List", "Get", "Models", "WarmPlan"},
    "Health": {"Check"},
    "Telemetry": {"Query", "Series", "Events", "Learned"},
    "Jobs": {"List", "Get"},
}
"""The methods of ours that anybody may call: one that is added has to be thought about, and to get its price."""
CHEAP = {"List", "Get", "Models"}
"""Of those: what only reads what is there already."""
DECLARED: tuple[Interface, ...] = (
    interfaces.MANAGER, interfaces.TENANTS, interfaces.TENANT, interfaces.ENGINES, interfaces.ENGINE, interfaces.GPU,
    interfaces.FANS, interfaces.PROFILE, interfaces.HEALTH, interfaces.TELEMETRY, interfaces.JOBS, interfaces.JOB,
)  # fmt: skip


def test_every_method_is_guarded_or_open_with_a_price() -> None:
    for interface in DECLARED:
        open_ones = {method.name for method in interface.methods} - GUARDED
        assert open_ones == OPEN.get(interface.name.rpartition(".")[2], set()), interface.name
        assert open_ones <= COSTS.keys() | CHEAP
    assert COSTS.keys() >= HEAVY


async def test_what_is_called_guarded_is(start: Starter, enter: Enter) -> None:
    """Without leave nothing that is said to be guarded is done."""

    def nobody_may(_bus: object) -> Authority:
        return FixedAuthority(allow=False)

    await start(nobody_may)
    peer = await enter(ATTACKER)
    for interface, path, member, signature, body in (
        ("Manager", names.ROOT, "Reload", "", ()),
        ("Manager", names.ROOT, "SetAutomatic", "b", (True,)),
        ("Manager", names.ROOT, "MakeRoom", "sst", ("", "", 1)),
        ("Manager", names.ROOT, "InspectProcess", "u", (1,)),
        ("Tenants", names.TENANTS_PATH, "Release", "s", ("x",)),
        ("Engines", names.ENGINES_PATH, "LoadModel", "ss", ("x", "y")),
        ("Engines", names.ENGINES_PATH, "UnloadModel", "ss", ("x", "y")),
        ("Engines", names.ENGINES_PATH, "WarmModel", "ss", ("x", "y")),
        ("Telemetry", names.TELEMETRY_PATH, "Forget", "ss", ("x", "need")),
    ):
        call: Message = call_of(path, f"{names.BUS_NAME}.{interface}", member, signature, *body)
        assert (await peer.ask(call)).error_name == DENIED, member
