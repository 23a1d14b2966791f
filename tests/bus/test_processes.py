"""What is told of processes: to everybody as little as possible, and which tenant one would be."""

from dataclasses import replace

import pytest
from dbus_fast import Variant

from gpusupervisor.bus import names
from gpusupervisor.bus.process_methods import LONGEST_TEXT, MOST
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.state import State
from tests.bus.builders import CARD, make_state
from tests.bus.conftest import Client, PrivateBus, Starter
from tests.bus.fakes import FakeController, FixedAuthority

MANAGER = f"{names.BUS_NAME}.Manager"
TENANTS = f"{names.BUS_NAME}.Tenants"
SECRET = "--password=hunter2"
TRAINING = ProcessIdentity(
    ProcessKey(4242, 1), 1, 1000, "python3", executable="/home/me/venv/bin/python3",
    command_line=("python3", "train.py", SECRET), working_directory="/home/me/project",
    unit="user@1000.service", user_unit="train.service", listening_ports=(6006,),
)  # fmt: skip


def training() -> State:
    """The usual machine, and its stranger is a training that was given a secret."""
    state = make_state()
    account = state.census.gpus[CARD]
    stranger = replace(account.unmanaged[0], identity=TRAINING)
    gpus = {CARD: replace(account, unmanaged=(stranger,))}
    return replace(state, census=replace(state.census, gpus=gpus))


async def test_everybody_sees_what_a_process_is_and_not_how_it_was_started(
    start: Starter, shared_bus: PrivateBus
) -> None:
    service = await start()
    service.publish(training())
    manager = "org.freedesktop.DBus.ObjectManager"
    shown = await shared_bus.busctl("--json=short", "call", names.BUS_NAME, names.ROOT, manager, "GetManagedObjects")
    assert "hunter2" not in shown.output
    assert "/home/me" not in shown.output
    gpu = names.gpu_path(CARD)
    [stranger] = shown.json[0][gpu][f"{names.BUS_NAME}.Gpu"]["Unmanaged"]["data"]
    assert {name: stranger[name]["data"] for name in ("name", "executable", "user_unit", "ports")} == {
        "name": "python3 train.py", "executable": "python3", "user_unit": "train.service", "ports": [6006],
    }  # fmt: skip


async def test_who_may_is_told_how_a_process_was_started(start: Starter, shared_bus: PrivateBus) -> None:
    service = await start()
    service.publish(training())
    [told] = (await shared_bus.call(names.ROOT, "Manager", "InspectProcess", "u", "4242")).json
    assert told["command_line"]["data"] == ["python3", "/home/me/project/train.py", SECRET]
    assert told["executable"]["data"] == "/home/me/venv/bin/python3"
    assert told["working_directory"]["data"] == "/home/me/project"
    other = await shared_bus.call(names.ROOT, "Manager", "InspectProcess", "u", "1")
    assert "No process with the PID 1 holds memory" in other.errors


async def test_polkit_is_asked_before_anything_is_told_of_a_process(start: Starter, client: Client) -> None:
    authority = FixedAuthority(allow=False)
    service = await start(lambda _bus: authority)
    service.publish(training())
    for pid in (4242, 1):
        denied = await client.call(names.ROOT, MANAGER, "InspectProcess", "u", pid)
        assert denied.error_name == "org.freedesktop.DBus.Error.AccessDenied"
    action = names.ACTION_INSPECT_PROCESS
    assert authority.asked == [(action, {"pid": "4242"}), (action, {"pid": "1"})]


async def test_described_processes_are_recognised_in_their_order(
    start: Starter, client: Client, controller: FakeController
) -> None:
    service = await start()
    service.publish(make_state())
    asked = [
        {"executable": Variant("s", "/opt/x"), "command_line": Variant("as", ["/opt/x", "--port", "1"])},
        {"unit": Variant("s", "ollama.service"), "environment": Variant("as", ["A=b=c", "D"])},
    ]
    reply = await client.call(names.TENANTS_PATH, TENANTS, "Recognise", "aa{sv}", asked)
    stranger, known = reply.body[0]
    assert stranger == {}
    assert {name: value.value for name, value in known.items()} == {
        "tenant": "ollama", "recognised_by": "unit ollama.service", "endpoint": "http://127.0.0.1:11434",
    }  # fmt: skip
    first, second = (call[1] for call in controller.calls)
    assert isinstance(first, ProcessIdentity)
    assert isinstance(second, ProcessIdentity)
    assert first.command_line == ("/opt/x", "--port", "1")
    assert second.environment == (("A", "b=c"), ("D", ""))


@pytest.mark.parametrize(
    ("process", "told"),
    [
        ({"colour": Variant("s", "red")}, "there is no 'colour'; allowed: unit"),
        ({"unit": Variant("u", 1)}, "unit must be a text"),
        ({"unit": Variant("s", "x" * (LONGEST_TEXT + 1))}, "unit must be a text"),
        ({"command_line": Variant("s", "x")}, "command_line must be texts"),
        ({"environment": Variant("as", ["x" * (LONGEST_TEXT + 1)])}, "environment must be texts"),
    ],
)
async def test_a_description_that_makes_no_sense_is_refused(
    process: dict[str, Variant], told: str, start: Starter, client: Client
) -> None:
    await start()
    reply = await client.call(names.TENANTS_PATH, TENANTS, "Recognise", "aa{sv}", [process])
    assert reply.error_name == "org.gpusupervisor1.Error.InvalidArgument"
    assert told in reply.body[0]


async def test_too_many_at_once_are_refused(start: Starter, client: Client) -> None:
    await start()
    reply = await client.call(names.TENANTS_PATH, TENANTS, "Recognise", "aa{sv}", [{}] * (MOST + 1))
    assert reply.error_name == "org.gpusupervisor1.Error.InvalidArgument"
