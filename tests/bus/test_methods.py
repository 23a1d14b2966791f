import asyncio
import logging

import pytest
from dbus_fast import Message, MessageFlag, MessageType, Variant

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import CALLS_PER_SENDER
from gpusupervisor.clock import UNKNOWN
from gpusupervisor.errors import NoSuchGpu
from tests.bus.builders import CARD, GIB, make_state
from tests.bus.conftest import Client, PrivateBus, Starter
from tests.bus.fakes import FakeController, FixedAuthority

MANAGER = "org.gpusupervisor1.Manager"
TENANTS = "org.gpusupervisor1.Tenants"
PROPERTIES = "org.freedesktop.DBus.Properties"
PEER = "org.freedesktop.DBus.Peer"
STANDARD_ERROR = "org.freedesktop.DBus.Error."
OUR_ERROR = "org.gpusupervisor1.Error."
NEW_STATUS = Variant("s", "fine")


async def test_every_verb_from_busctl(start: Starter, shared_bus: PrivateBus, controller: FakeController) -> None:
    service = await start()
    service.publish(make_state())
    bus, root, tenants = shared_bus, names.ROOT, names.TENANTS_PATH
    [plan] = (await bus.call(root, "Manager", "PlanRelease", "sst", "", "ollama", "0")).json
    assert plan["summary"]["data"] == "comfyui is asked for 4.0 GiB"
    [result] = (await bus.call(root, "Manager", "MakeRoom", "sst", CARD, "ollama", str(2 * GIB))).json
    assert (result["outcome"]["data"], result["freed"]["data"]) == ("satisfied", 4 * GIB)
    assert result["steps"]["data"][0]["tenant"]["data"] == "comfyui"
    assert (await bus.call(root, "Manager", "Reload")).status == 0
    assert (await bus.call(root, "Manager", "SetAutomatic", "b", "false")).status == 0
    assert (await bus.call(root, "Manager", "CheckDefinition", "ss", "a.toml", "x")).json == [["title is missing"]]
    assert (await bus.call(tenants, "Tenants", "List")).json == [["comfyui", "ollama"]]
    [shown] = (await bus.call(tenants, "Tenants", "Get", "s", "ollama")).json
    assert shown["Activity"] == {"type": "s", "data": "busy"}
    assert (await bus.call(tenants, "Tenants", "Explain", "s", "ollama")).json[0].count("\n") == 2
    assert (await bus.call(tenants, "Tenants", "Release", "s", "comfyui")).json[0]["freed"]["data"] == 4 * GIB
    assert (await bus.call(names.tenant_path("ollama"), "Tenant", "Release")).status == 0
    assert (await bus.call(names.ENGINES_PATH, "Engines", "List")).json == [["comfyui", "ollama"]]
    [engine] = (await bus.call(names.ENGINES_PATH, "Engines", "Get", "s", "ollama")).json
    assert engine["Version"]["data"] == "0.12.0"
    assert controller.calls == [
        ("plan_release", "", "ollama", 0), ("make_room", CARD, "ollama", 2 * GIB), ("reload",),
        ("set_automatic", False), ("check_definition", "a.toml", "x"), ("explain", "ollama"),
        ("release", "comfyui"), ("release", "ollama"),
    ]  # fmt: skip


async def test_what_changes_something_asks_first_and_what_reads_does_not(
    start: Starter, client: Client, controller: FakeController
) -> None:
    authority = FixedAuthority(allow=False)
    service = await start(lambda _bus: authority)
    service.publish(make_state())
    denied = [
        await client.call(names.ROOT, MANAGER, "MakeRoom", "sst", "", "ollama", 0),
        await client.call(names.ROOT, MANAGER, "MakeRoom", "sst", "", "", GIB),
        await client.call(names.ROOT, MANAGER, "Reload"),
        await client.call(names.ROOT, MANAGER, "SetAutomatic", "b", True),
        await client.call(names.TENANTS_PATH, TENANTS, "Release", "s", "comfyui"),
        await client.call(names.tenant_path("comfyui"), "org.gpusupervisor1.Tenant", "Release"),
    ]
    assert {reply.error_name for reply in denied} == {STANDARD_ERROR + "AccessDenied"}
    assert controller.calls == []
    assert authority.asked == [
        ("org.gpusupervisor1.make-room", {"tenant": "ollama"}), ("org.gpusupervisor1.make-room", {}),
        ("org.gpusupervisor1.reload", {}), ("org.gpusupervisor1.set-automatic", {}),
        ("org.gpusupervisor1.release", {"tenant": "comfyui"}), ("org.gpusupervisor1.release", {"tenant": "comfyui"}),
    ]  # fmt: skip
    for path, interface, member, signature, *arguments in (
        (names.ROOT, MANAGER, "PlanRelease", "sst", "", "ollama", 0),
        (names.ROOT, MANAGER, "CheckDefinition", "ss", "a.toml", ""),
        (names.TENANTS_PATH, TENANTS, "Explain", "s", "ollama"),
    ):
        reply = await client.call(path, interface, member, signature, *arguments)
        assert reply.message_type is MessageType.METHOD_RETURN
    assert len(authority.asked) == 6


@pytest.mark.parametrize(
    ("path", "interface", "member", "signature", "body", "error"),
    [
        (names.ROOT, MANAGER, "MakeRoom", "sst", ("", "too-big", 1), OUR_ERROR + "Blocked"),
        (names.ROOT, MANAGER, "MakeRoom", "sst", ("", "x", UNKNOWN), OUR_ERROR + "InvalidArgument"),
        (names.ROOT, MANAGER, "PlanRelease", "sst", ("a\nb", "", 1), OUR_ERROR + "InvalidArgument"),
        (names.ROOT, MANAGER, "MakeRoom", "sst", ("", "y" * 257, 1), OUR_ERROR + "InvalidArgument"),
        (names.ROOT, MANAGER, "CheckDefinition", "ss", ("a.toml", "x" * 300_000), OUR_ERROR + "InvalidArgument"),
        (names.TENANTS_PATH, TENANTS, "Release", "s", ("nobody",), OUR_ERROR + "NoSuchTenant"),
        (names.TENANTS_PATH, TENANTS, "Release", "s", ("",), OUR_ERROR + "InvalidArgument"),
        (names.TENANTS_PATH, TENANTS, "Get", "s", ("nobody",), OUR_ERROR + "NoSuchTenant"),
        (names.ENGINES_PATH, "org.gpusupervisor1.Engines", "Get", "s", ("x",), OUR_ERROR + "NoSuchEngine"),
        (names.ROOT, MANAGER, "MakeRoom", "ss", ("", ""), STANDARD_ERROR + "InvalidArgs"),
        (names.ROOT, MANAGER, "Nothing", "", (), STANDARD_ERROR + "UnknownMethod"),
        (names.ROOT, "a.B", "C", "", (), STANDARD_ERROR + "UnknownInterface"),
        (names.tenant_path("nobody"), "org.gpusupervisor1.Tenant", "Release", "", (), STANDARD_ERROR + "UnknownObject"),
        (names.ROOT, PROPERTIES, "Get", "ss", (MANAGER, "Nothing"), STANDARD_ERROR + "UnknownProperty"),
        (names.ROOT, PROPERTIES, "GetAll", "s", ("a.B",), STANDARD_ERROR + "UnknownInterface"),
        (names.ROOT, PROPERTIES, "Set", "ssv", (MANAGER, "Status", NEW_STATUS), STANDARD_ERROR + "PropertyReadOnly"),
    ],
)  # fmt: skip
async def test_mistakes_have_names(
    start: Starter, client: Client, path: str, interface: str, member: str, signature: str,
    body: tuple[object, ...], error: str,
) -> None:  # fmt: skip
    service = await start()
    service.publish(make_state())
    reply = await client.call(path, interface, member, signature, *body)
    assert reply.error_name == error
    assert reply.body[0]


async def test_domain_errors_keep_their_code_and_text(
    start: Starter, client: Client, controller: FakeController
) -> None:
    await start()
    controller.failure = NoSuchGpu("No GPU has that UUID\x1b[2J")
    reply = await client.call(names.ROOT, MANAGER, "PlanRelease", "sst", "GPU-x", "", 1)
    assert (reply.error_name, reply.body[0]) == ("org.gpusupervisor1.Error.NoSuchGpu", "No GPU has that UUID [2J.")


@pytest.mark.parametrize("failure", [ZeroDivisionError("secret"), asyncio.CancelledError()])
async def test_a_defect_is_logged_and_never_shown(
    start: Starter, client: Client, controller: FakeController, caplog: pytest.LogCaptureFixture,
    failure: BaseException,
) -> None:  # fmt: skip
    await start()
    controller.failure = failure
    with caplog.at_level(logging.ERROR, "gpusupervisor.bus"):
        reply = await client.call(names.ROOT, MANAGER, "Reload")
    assert reply.error_name == STANDARD_ERROR + "Failed"
    assert "secret" not in reply.body[0]
    assert "Traceback" not in reply.body[0]
    assert ("secret" in caplog.text) is isinstance(failure, ZeroDivisionError)


async def test_a_long_call_holds_up_nobody(start: Starter, client: Client, controller: FakeController) -> None:
    controller.gate.clear()
    service = await start()
    service.publish(make_state())
    long = asyncio.create_task(client.call(names.ROOT, MANAGER, "MakeRoom", "sst", "", "ollama", 0))
    reply = await client.call(names.TENANTS_PATH, TENANTS, "List")
    assert reply.body == [["comfyui", "ollama"]]
    assert not long.done()
    controller.gate.set()
    assert (await long).body[0]["outcome"].value == "satisfied"


async def test_one_connection_has_a_limited_number_of_calls_under_way(
    start: Starter, client: Client, controller: FakeController
) -> None:
    controller.gate.clear()
    await start()
    calls = [
        asyncio.create_task(client.call(names.TENANTS_PATH, TENANTS, "Release", "s", f"t{number}"))
        for number in range(CALLS_PER_SENDER)
    ]
    await asyncio.sleep(0)
    refused = await client.call(names.TENANTS_PATH, TENANTS, "Release", "s", "one-more")
    assert refused.error_name == STANDARD_ERROR + "LimitsExceeded"
    controller.gate.set()
    assert {reply.message_type for reply in await asyncio.gather(*calls)} == {MessageType.METHOD_RETURN}
    reply = await client.call(names.TENANTS_PATH, TENANTS, "Release", "s", "one-more")
    assert reply.message_type is MessageType.METHOD_RETURN


async def test_a_caller_that_wants_no_reply_gets_none(
    start: Starter, client: Client, controller: FakeController
) -> None:
    await start()
    unanswered: list[Message] = []
    client.bus.add_message_handler(unanswered.append)
    for member in ("Reload", "Nothing"):
        await client.bus.send(Message(names.BUS_NAME, names.ROOT, MANAGER, member, flags=MessageFlag.NO_REPLY_EXPECTED))
    await client.settle()
    assert controller.calls == [("reload",)]
    assert [m for m in unanswered if m.message_type is MessageType.ERROR] == []


async def test_a_call_may_leave_the_interface_out(start: Starter, client: Client) -> None:
    service = await start()
    service.publish(make_state())
    reply = await client.bus.call(Message(names.BUS_NAME, names.TENANTS_PATH, None, "List"))
    assert reply is not None
    assert reply.body == [["comfyui", "ollama"]]


async def test_the_machine_id_is_the_machines(start: Starter, client: Client) -> None:
    await start()
    reply = await client.call(names.ROOT, PEER, "GetMachineId")
    assert len(reply.body[0]) == 32


async def test_gdbus_calls_work_as_documented(start: Starter, shared_bus: PrivateBus) -> None:
    await start()
    result = await shared_bus.run(
        "gdbus", "call", "--address", shared_bus.address, "--dest", names.BUS_NAME, "--object-path", names.ROOT,
        "--method", "org.gpusupervisor1.Manager.PlanRelease", "", "ollama", "0",
    )  # fmt: skip
    assert "'beneficiary': <'ollama'>" in result.output, result.errors
