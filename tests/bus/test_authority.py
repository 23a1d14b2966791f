"""polkit is asked in the right words, and everything that is not a yes is a no."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from dbus_fast import DBusError, Variant
from dbus_fast.aio import MessageBus

from gpusupervisor.bus import authority as authority_module
from gpusupervisor.bus import names
from gpusupervisor.bus.authority import PolkitAuthority
from gpusupervisor.bus.objects import Call
from gpusupervisor.bus.transport import BusConnection
from tests.bus.conftest import NOBODY, PrivateBus, Result, Starter, need
from tests.bus.fakes import FakeController, FakePolkit, Mood

PolkitStarter = Callable[[Mood], Awaitable[FakePolkit]]


@pytest.fixture
async def polkit(shared_bus: PrivateBus, start: Starter) -> AsyncIterator[PolkitStarter]:
    """Starts a fake polkit and the service that asks it."""
    need("gdbus")
    fakes: list[FakePolkit] = []

    async def start_polkit(mood: Mood) -> FakePolkit:
        fakes.append(await FakePolkit.start(shared_bus.address, mood))
        await start(PolkitAuthority)
        return fakes[-1]

    yield start_polkit
    for fake in fakes:
        await fake.stop()


async def release(bus: PrivateBus, *, interactive: bool, uid: int = NOBODY) -> Result:
    """Call Release with gdbus, which prints an error's name and text as they came."""
    allow = ("--interactive",) if interactive else ()
    return await bus.run(
        "gdbus", "call", "--address", bus.address, "--dest", names.BUS_NAME, "--object-path", names.TENANTS_PATH,
        *allow, "--method", "org.gpusupervisor1.Tenants.Release", "comfyui", uid=uid,
    )  # fmt: skip


not_as_root_alone = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs the superuser as caller; other tests show that others must ask polkit"
)


@pytest.mark.parametrize("interactive", [False, True])
async def test_polkit_is_asked_for_the_callers_bus_name(
    polkit: PolkitStarter, shared_bus: PrivateBus, controller: FakeController, interactive: bool
) -> None:
    fake = await polkit("allow")
    result = await release(shared_bus, interactive=interactive)
    assert result.status == 0, result.errors
    assert controller.calls == [("release", "comfyui")]
    [question] = fake.received
    assert question.signature == "(sa{sv})sa{ss}us"
    (kind, subject), action, details, flags, cancellation = question.body
    assert kind == "system-bus-name"
    assert list(subject) == ["name"]
    assert isinstance(subject["name"], Variant)
    assert subject["name"].signature == "s"
    assert subject["name"].value.startswith(":1.")
    assert subject["name"].value != question.sender
    assert (action, details) == ("org.gpusupervisor1.release", {"tenant": "comfyui"})
    assert flags == int(interactive)
    assert len(cancellation) == 32


@pytest.mark.parametrize(
    ("mood", "interactive", "says"),
    [
        ("deny", False, "does not let you"),
        ("deny", True, "does not let you"),
        ("challenge", False, "needs a password"),
        ("challenge", True, "does not let you"),
        ("error", False, "Only trusted callers"),
        ("odd", False, "no answer"),
    ],
)
async def test_everything_that_is_not_a_yes_is_a_no(
    polkit: PolkitStarter, shared_bus: PrivateBus, controller: FakeController, mood: Mood, interactive: bool, says: str
) -> None:
    await polkit(mood)
    result = await release(shared_bus, interactive=interactive)
    assert result.status != 0
    assert says in result.errors
    assert controller.calls == []


@pytest.mark.parametrize(
    ("mood", "error"),
    [
        ("deny", "org.freedesktop.DBus.Error.AccessDenied"),
        ("error", "org.freedesktop.DBus.Error.AccessDenied"),
        ("challenge", "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired"),
    ],
)
async def test_refusals_have_the_standard_names(
    polkit: PolkitStarter, shared_bus: PrivateBus, mood: Mood, error: str
) -> None:
    await polkit(mood)
    result = await release(shared_bus, interactive=False)
    assert error in result.errors


async def test_a_silent_polkit_is_a_no_and_the_question_is_withdrawn(
    polkit: PolkitStarter, shared_bus: PrivateBus, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority_module, "PATIENCE", 0.2)
    fake = await polkit("hang")
    result = await release(shared_bus, interactive=False)
    assert "did not answer" in result.errors
    async with asyncio.timeout(5):
        while len(fake.received) < 2:
            fake.arrived.clear()
            await fake.arrived.wait()
    question, withdrawal = fake.received
    assert withdrawal.member == "CancelCheckAuthorization"
    assert withdrawal.body == [question.body[4]]
    assert controller.calls == []


def test_a_person_has_time_to_type_a_password_and_nobody_else_waits_long() -> None:
    assert (authority_module.PATIENCE, authority_module.PATIENCE_WITH_A_PERSON) == (5, 120)


async def test_the_question_is_withdrawn_when_the_caller_leaves(
    polkit: PolkitStarter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    fake = await polkit("hang")
    caller = await shared_bus.spawn(
        "busctl", f"--address={shared_bus.address}", "call", names.BUS_NAME, names.TENANTS_PATH,
        "org.gpusupervisor1.Tenants", "Release", "s", "comfyui", uid=NOBODY,
    )  # fmt: skip
    async with asyncio.timeout(5):
        await fake.arrived.wait()
        caller.kill()
        await caller.communicate()
        while len(fake.received) < 2:
            fake.arrived.clear()
            await fake.arrived.wait()
    assert fake.received[1].member == "CancelCheckAuthorization"
    assert fake.received[1].body == [fake.received[0].body[4]]
    assert controller.calls == []


async def test_a_polkit_that_crashes_is_a_no(
    polkit: PolkitStarter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    fake = await polkit("hang")
    asked = asyncio.create_task(release(shared_bus, interactive=True))
    async with asyncio.timeout(5):
        await fake.arrived.wait()
    await fake.stop()
    result = await asked
    assert "no answer" in result.errors
    assert controller.calls == []


async def test_a_missing_polkit_is_a_no(start: Starter, shared_bus: PrivateBus, controller: FakeController) -> None:
    await start(PolkitAuthority)
    result = await release(shared_bus, interactive=True)
    assert "no answer" in result.errors
    assert "systemctl status polkit" in result.errors
    assert controller.calls == []


@not_as_root_alone
async def test_the_superuser_may_where_no_polkit_runs(
    start: Starter, shared_bus: PrivateBus, controller: FakeController
) -> None:
    await start(PolkitAuthority)
    result = await release(shared_bus, interactive=False, uid=0)
    assert result.status == 0, result.errors
    assert controller.calls == [("release", "comfyui")]


async def test_a_caller_whom_the_bus_does_not_know_is_refused(shared_bus: PrivateBus) -> None:
    bus = await BusConnection(shared_bus.address, patience=10).connect()
    with pytest.raises(DBusError, match="cannot tell who is calling") as caught:
        await PolkitAuthority(bus).require(Call(":1.99999", "/", interactive=False), "org.gpusupervisor1.release", {})
    assert caught.value.type == "org.freedesktop.DBus.Error.AccessDenied"
    bus.disconnect()
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]


async def test_a_bus_that_dies_meanwhile_is_a_no(mortal_bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = await BusConnection(mortal_bus.address, patience=10).connect()
    fake = await FakePolkit.start(mortal_bus.address, "hang")
    authority = PolkitAuthority(bus)
    monkeypatch.setattr(authority_module, "known_user", _somebody)
    asked = asyncio.create_task(authority.require(Call(bus.unique_name or "", "/", True), "org.gpusupervisor1.x", {}))
    async with asyncio.timeout(5):
        await fake.arrived.wait()
        mortal_bus.process.kill()
        with pytest.raises(DBusError, match="no answer"):
            await asked


async def _somebody(_bus: MessageBus, _name: str) -> int:
    return 1000
