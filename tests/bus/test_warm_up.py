"""Warm-ups on the bus: a plan to read, a job that polkit lets begin, and the command line that follows it."""

import asyncio
import signal
import sys

import pytest
from dbus_fast import MessageType, Variant

from gpusupervisor.bus import names
from gpusupervisor.errors import NotSupported
from gpusupervisor.jobs import Jobs
from tests.bus.builders import bare, make_state
from tests.bus.conftest import Client, PrivateBus, Starter
from tests.bus.fakes import FakeController, FixedAuthority

ENGINE = names.engine_path("ollama")
JOB = names.job_path(1)
COMMAND = (sys.executable, "-m", "gpusupervisor.cli.main", "warm")


@pytest.fixture
async def authority(start: Starter) -> FixedAuthority:
    """Of a service that shows its engines."""
    authority = FixedAuthority()
    (await start(lambda _bus: authority)).publish(make_state())
    return authority


async def test_the_plan_can_be_read_by_anyone(authority: FixedAuthority, shared_bus: PrivateBus) -> None:
    authority.allow = False
    [plan] = (await shared_bus.call(names.ENGINES_PATH, "Engines", "WarmPlan")).json
    assert [{name: value["data"] for name, value in entry.items()} for entry in plan] == [
        {
            "engine": "ollama",
            "model": "qwen3:8b",
            "size": 8 << 30,
            "cached": 0,
            "verdict": "worth-it",
            "reason": "it was used recently",
        },
        {
            "engine": "ollama",
            "model": "x:1b",
            "size": 1 << 30,
            "cached": 2**64 - 1,
            "verdict": "unknown",
            "reason": "no permission",
        },
    ]


async def test_a_warm_up_is_a_job(
    authority: FixedAuthority, client: Client, controller: FakeController, jobs: Jobs
) -> None:
    reply = await client.call(
        ENGINE, "org.gpusupervisor1.Engine", "WarmModel", "sa{sv}", "qwen3:8b", {"rate": Variant("t", 1000)}
    )
    assert reply.body == [JOB]
    assert controller.calls == [("warm", "ollama", "qwen3:8b", 1000)]
    assert authority.asked == [(names.ACTION_WARM_MODEL, {"tenant": "ollama", "model": "qwen3:8b"})]
    await client.wait_for(lambda signals: any(each.member == "Finished" for each in signals))
    [finished] = [each for each in client.signals if each.member == "Finished"]
    assert finished.path == JOB
    assert [finished.body[0], bare(finished.body[2])] == [
        "succeeded",
        {"engine": "ollama", "model": "qwen3:8b", "size": 8 << 30, "took": 2_000_000},
    ]
    assert jobs.get(1).kind == "warm-up"


async def test_whoever_may_not_begins_none(authority: FixedAuthority, client: Client, jobs: Jobs) -> None:
    authority.allow = False
    reply = await client.call(names.ENGINES_PATH, "org.gpusupervisor1.Engines", "WarmModel", "ss", "ollama", "x")
    assert reply.error_name == "org.freedesktop.DBus.Error.AccessDenied"
    assert jobs.list() == ()


@pytest.mark.parametrize(
    ("engine", "model", "error"),
    [("nobody", "x", "NoSuchEngine"), ("ollama", "", "InvalidArgument"), ("ollama", "x" * 257, "InvalidArgument")],
)
async def test_only_what_makes_sense_is_asked_for(
    authority: FixedAuthority, client: Client, controller: FakeController, engine: str, model: str, error: str
) -> None:
    reply = await client.call(names.ENGINES_PATH, "org.gpusupervisor1.Engines", "WarmModel", "ss", engine, model)
    assert reply.message_type is MessageType.ERROR
    assert reply.error_name == f"org.gpusupervisor1.Error.{error}"
    assert controller.calls == []


@pytest.mark.parametrize(("name", "signature", "value"), [("speed", "t", 1), ("rate", "u", 1), ("rate", "s", "fast")])
async def test_options_that_are_none_are_refused(
    authority: FixedAuthority, client: Client, name: str, signature: str, value: object
) -> None:
    options = {name: Variant(signature, value)}
    reply = await client.call(ENGINE, "org.gpusupervisor1.Engine", "WarmModel", "sa{sv}", "x", options)
    assert reply.error_name == "org.gpusupervisor1.Error.InvalidArgument"
    assert "allowed: rate (t)" in reply.body[0]


async def heard(process: asyncio.subprocess.Process, line: bytes) -> None:
    """Wait until it says something."""
    assert process.stderr is not None
    async with asyncio.timeout(10):
        while (told := await process.stderr.readline()).strip() != line:
            assert told, "it has ended"


async def test_the_command_line_follows_it_to_its_end(
    authority: FixedAuthority, shared_bus: PrivateBus, controller: FakeController
) -> None:
    controller.gate.clear()
    process = await shared_bus.spawn(*COMMAND, "ollama", "qwen3:8b")
    await heard(process, b"40 %: reading qwen3:8b into RAM")
    controller.gate.set()
    output, errors = await process.communicate()
    assert process.returncode == 0, errors
    assert output == b"8.0 GiB in RAM after 2s\n"


async def test_ctrl_c_cancels_it(
    authority: FixedAuthority, shared_bus: PrivateBus, controller: FakeController, jobs: Jobs
) -> None:
    controller.gate.clear()
    process = await shared_bus.spawn(*COMMAND, "ollama", "qwen3:8b")
    await heard(process, b"40 %: reading qwen3:8b into RAM")
    process.send_signal(signal.SIGINT)
    _, errors = await process.communicate()
    assert process.returncode == 130
    assert "Cancelling: what was read so far stays in RAM" in errors.decode()
    assert jobs.get(1).state == "cancelled"


async def test_the_command_line_says_why_it_does_not_begin(
    authority: FixedAuthority, shared_bus: PrivateBus, controller: FakeController
) -> None:
    controller.failure = NotSupported("No tenant file says where the models of ollama are")
    result = await shared_bus.run(*COMMAND, "ollama", "qwen3:8b")
    assert (result.status, result.errors) == (1, "No tenant file says where the models of ollama are.\n")


async def test_the_command_line_shows_the_plan(authority: FixedAuthority, shared_bus: PrivateBus) -> None:
    result = await shared_bus.run(*COMMAND)
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[0] == ["ENGINE", "MODEL", "SIZE", "IN", "RAM", "WHY"]
    assert lines[1][:5] == ["ollama", "qwen3:8b", "8.0", "GiB", "0"]
    assert lines[2][:5] == ["ollama", "x:1b", "1.0", "GiB", "?"]


async def test_an_engine_alone_is_too_little(authority: FixedAuthority, shared_bus: PrivateBus) -> None:
    result = await shared_bus.run(*COMMAND, "ollama")
    assert (result.status, result.errors) == (2, "Which model of ollama? gpusupervisorctl warm shows them.\n")
