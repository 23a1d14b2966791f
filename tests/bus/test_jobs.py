"""Long work on the bus: an object that is there at once, tells how far it is, can be cancelled, and stays a while."""

import asyncio
import os
from typing import Any

import pytest
from dbus_fast import DBusError, Message, MessageType

from gpusupervisor.autotune.curve import Tuning
from gpusupervisor.bus import names
from gpusupervisor.bus import objects as objects_module
from gpusupervisor.bus.declare import Interface, method
from gpusupervisor.bus.objects import Call
from gpusupervisor.bus.service import BusService
from gpusupervisor.errors import GpuUnavailable
from gpusupervisor.jobs import KEPT, Jobs, Report
from tests.bus.builders import CARD, bare, make_state
from tests.bus.conftest import NOBODY, Client, PrivateBus, Starter
from tests.bus.fakes import FixedAuthority

PROPERTIES = "org.freedesktop.DBus.Properties"
JOB = "org.gpusupervisor1.Job"
JOBS = "org.gpusupervisor1.Jobs"
BEGIN = Interface("org.gpusupervisor1.Begin", methods=(method("Begin", outputs="job:o"),))
BEGIN_PATH = f"{names.ROOT}/begin"
FIRST = names.job_path(1)
CANCEL_QUESTION = (names.ACTION_CANCEL_JOB, {"kind": "autotune", "target": CARD})

needs_other_users = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to call as another user")


class Labour:
    """Work that the test leads by the hand."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.finish = asyncio.Event()
        self.failure: Exception | None = None
        self.cleaned = asyncio.Event()
        self.cleaned.set()
        self.report: Report

    async def __call__(self, report: Report) -> object:
        self.report = report
        self.begun.set()
        try:
            await self.finish.wait()
        finally:
            await self.cleaned.wait()
        if self.failure:
            raise self.failure
        return Tuning("image", 3)


@pytest.fixture
def labour() -> Labour:
    return Labour()


def offer(service: BusService, labour: Labour) -> None:
    """Have a method that starts the work, as those that need long have it."""

    async def begin(call: Call) -> list[object]:
        return [await service._job_methods.start(call, "autotune", CARD, labour)]

    service._server.export(BEGIN_PATH, BEGIN, {"Begin": begin})


async def begun(client: Client, labour: Labour) -> None:
    """Start the work on behalf of the test's own user; forgets the signals so far."""
    reply = await client.call(BEGIN_PATH, BEGIN.name, "Begin")
    assert reply.body == [FIRST]
    await labour.begun.wait()
    await client.settle()
    client.signals.clear()


def of_the_job(client: Client) -> list[Message]:
    return [signal for signal in client.signals if signal.path == FIRST]


def told(client: Client) -> list[str]:
    return [str(signal.member) for signal in of_the_job(client)]


async def finished(client: Client) -> Any:
    """The body of Finished, once it has come."""
    await client.wait_for(lambda _: "Finished" in told(client))
    return bare(of_the_job(client)[-1].body)


async def ended(client: Client, number: int) -> None:
    """Wait for the Finished of one job."""
    path = names.job_path(number)
    await client.wait_for(lambda signals: any(s.member == "Finished" and s.path == path for s in signals))


async def shown(client: Client) -> Any:
    reply = await client.call(FIRST, PROPERTIES, "GetAll", "s", JOB)
    assert reply.message_type is MessageType.METHOD_RETURN, reply.body
    return bare(reply.body[0])


async def test_the_object_is_there_before_the_method_that_started_it_returns(
    start: Starter, client: Client, labour: Labour
) -> None:
    service = await start()
    offer(service, labour)
    reply = await client.call(BEGIN_PATH, BEGIN.name, "Begin")
    assert (reply.signature, reply.body) == ("o", [FIRST])
    [added] = [s for s in client.signals if s.member == "InterfacesAdded" and s.body[0] == FIRST]
    assert added.path == names.ROOT
    properties = bare(added.body[1])[JOB]
    assert properties == await shown(client)
    assert (properties["State"], properties["Target"]) == ("running", CARD)
    assert properties["StartedBy"] == os.geteuid()


async def test_busctl_and_gdbus_show_and_cancel_in_one_line(
    start: Starter, client: Client, shared_bus: PrivateBus, labour: Labour
) -> None:
    service = await start()
    offer(service, labour)
    await begun(client, labour)
    labour.report(30, "point 1 of 3", Tuning("image", 3))
    assert (await shared_bus.call(names.JOBS_PATH, "Jobs", "List", uid=NOBODY)).json == [[1]]
    [job] = (await shared_bus.call(names.JOBS_PATH, "Jobs", "Get", "u", "1", uid=NOBODY)).json
    assert job["Progress"] == {"type": "u", "data": 30}
    assert job["Result"]["data"]["unit"]["data"] == "image"
    value = await shared_bus.busctl("get-property", names.BUS_NAME, FIRST, JOB, "Detail")
    assert value.json == "point 1 of 3"
    gdbus = ("gdbus", "call", "--address", shared_bus.address, "--dest", names.BUS_NAME, "--object-path")
    listed = await shared_bus.run(*gdbus, names.JOBS_PATH, "--method", f"{JOBS}.List")
    assert listed.output.strip() == "([uint32 1],)"
    cancelled = await shared_bus.run(*gdbus, FIRST, "--method", f"{JOB}.Cancel")
    assert cancelled.output.strip() == "()", cancelled.errors
    assert (await finished(client))[0] == "cancelled"


async def test_progress_within_a_second_is_told_once(
    start: Starter, client: Client, labour: Labour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_module, "SIGNAL_INTERVAL", 0.3)
    service = await start()
    offer(service, labour)
    await begun(client, labour)
    labour.report(1, "the first is told at once")
    for percent in range(2, 60):
        labour.report(percent, f"at {percent}", Tuning("image", percent))
    await client.wait_for(lambda _: len(told(client)) == 2)
    await client.settle()
    first, second = of_the_job(client)
    assert bare(first.body) == [JOB, {"Progress": 1, "Detail": "the first is told at once"}, []]
    assert bare(second.body) == [JOB, {"Progress": 59, "Detail": "at 59"}, ["Result"]]
    assert (await shown(client))["Result"]["tolerance"] == 59


async def test_the_end_is_told_at_once_and_after_the_last_change(
    start: Starter, client: Client, labour: Labour
) -> None:
    service = await start()
    offer(service, labour)
    await begun(client, labour)
    labour.report(50, "half way")
    await client.settle()
    loop = asyncio.get_running_loop()
    before = loop.time()
    labour.finish.set()
    assert await finished(client) == ["succeeded", "", {"unit": "image", "tolerance": 3, "curve": []}]
    assert loop.time() - before < objects_module.SIGNAL_INTERVAL / 2
    assert told(client) == ["PropertiesChanged", "PropertiesChanged", "Finished"]
    changed = bare(of_the_job(client)[1].body[1])
    assert (changed["State"], changed["Progress"]) == ("succeeded", 100)
    assert changed.keys() == {"State", "Progress", "Detail", "EndedAt"}
    service.publish(make_state())
    await client.settle()
    assert told(client).count("Finished") == 1
    assert (await shown(client))["State"] == "succeeded"


async def test_a_failure_says_why_and_keeps_what_there_was(start: Starter, client: Client, labour: Labour) -> None:
    service = await start()
    offer(service, labour)
    await begun(client, labour)
    labour.report(50, "half way", Tuning("token", 7))
    labour.failure = GpuUnavailable("The GPU is lost\x1b[2J")
    labour.finish.set()
    assert await finished(client) == [
        "failed", "The GPU is lost [2J", {"unit": "token", "tolerance": 7, "curve": []},
    ]  # fmt: skip
    assert (await shown(client))["Progress"] == 50


async def test_who_started_it_cancels_it_without_a_question(
    start: Starter, client: Client, shared_bus: PrivateBus, labour: Labour
) -> None:
    authority = FixedAuthority(allow=False)
    service = await start(lambda _bus: authority)
    offer(service, labour)
    await begun(client, labour)
    labour.cleaned.clear()
    assert (await shared_bus.call(names.JOBS_PATH, "Jobs", "Cancel", "u", "1")).status == 0  # another connection
    assert (await shown(client))["State"] == "running"
    assert "Finished" not in told(client)
    labour.cleaned.set()
    assert (await finished(client))[:2] == ["cancelled", ""]
    assert authority.asked == []


@needs_other_users
@pytest.mark.parametrize("how", ["object", "collection"])
async def test_somebody_else_must_be_allowed_to_cancel_it(
    start: Starter, client: Client, shared_bus: PrivateBus, labour: Labour, how: str
) -> None:
    authority = FixedAuthority(allow=False)
    service = await start(lambda _bus: authority)
    offer(service, labour)
    await begun(client, labour)
    cancel = {"object": (FIRST, "Job", "Cancel"), "collection": (names.JOBS_PATH, "Jobs", "Cancel", "u", "1")}[how]
    refused = await shared_bus.call(*cancel, uid=NOBODY)
    assert refused.status != 0
    assert authority.asked == [CANCEL_QUESTION]
    await client.settle()
    assert told(client) == []
    authority.allow = True
    assert (await shared_bus.call(*cancel, uid=NOBODY)).status == 0
    assert (await finished(client))[0] == "cancelled"


@needs_other_users
async def test_root_is_somebody_else_too(
    start: Starter, client: Client, shared_bus: PrivateBus, labour: Labour
) -> None:
    authority = FixedAuthority()
    service = await start(lambda _bus: authority)
    offer(service, labour)
    assert (await shared_bus.call(BEGIN_PATH, "Begin", "Begin", uid=NOBODY)).json == [FIRST]
    assert (await shown(client))["StartedBy"] == NOBODY
    reply = await client.call(FIRST, JOB, "Cancel")
    assert reply.message_type is MessageType.METHOD_RETURN
    assert authority.asked == [CANCEL_QUESTION]
    assert (await finished(client))[0] == "cancelled"


async def test_what_gpusupervisor_began_by_itself_is_nobodys_to_cancel(
    start: Starter, client: Client, jobs: Jobs, labour: Labour
) -> None:
    authority = FixedAuthority(allow=False)
    await start(lambda _bus: authority)
    jobs.start("autotune", labour, CARD)
    reply = await client.call(FIRST, JOB, "Cancel")
    assert reply.error_name == "org.freedesktop.DBus.Error.AccessDenied"
    assert authority.asked == [CANCEL_QUESTION]
    assert (await shown(client))["StartedBy"] == 2**32 - 1


async def test_what_has_ended_or_never_was_is_an_error_and_no_question(
    start: Starter, client: Client, jobs: Jobs, labour: Labour
) -> None:
    authority = FixedAuthority(allow=False)
    await start(lambda _bus: authority)
    labour.finish.set()
    jobs.start("autotune", labour, CARD)
    await finished(client)
    for number, says in ((1, "has succeeded already"), (77, "There is no job 77")):
        reply = await client.call(names.JOBS_PATH, JOBS, "Cancel", "u", number)
        assert reply.error_name == "org.gpusupervisor1.Error.InvalidArgument"
        assert says in reply.body[0]
    assert (await client.call(names.JOBS_PATH, JOBS, "Get", "u", 77)).error_name == (
        "org.gpusupervisor1.Error.InvalidArgument"
    )
    assert authority.asked == []


async def test_the_oldest_that_ended_are_taken_away(start: Starter, client: Client, jobs: Jobs, labour: Labour) -> None:
    await start()
    running = Labour()
    jobs.start("autotune", running)
    labour.finish.set()
    for number in range(2, KEPT + 2):
        jobs.start("autotune", labour)
        await ended(client, number)
    assert [s for s in client.signals if s.member == "InterfacesRemoved"] == []
    jobs.start("autotune", labour)
    await ended(client, KEPT + 2)
    [removed] = [s for s in client.signals if s.member == "InterfacesRemoved"]
    assert (removed.path, removed.body) == (names.ROOT, [names.job_path(2), [JOB]])
    gone = await client.call(names.job_path(2), PROPERTIES, "GetAll", "s", JOB)
    assert gone.error_name == "org.freedesktop.DBus.Error.UnknownObject"
    listed = await client.call(names.JOBS_PATH, JOBS, "List")
    assert listed.body == [[1, *range(3, KEPT + 3)]]


async def test_a_caller_who_has_left_starts_nothing(start: Starter, jobs: Jobs, labour: Labour) -> None:
    service = await start()
    gone = Call(":1.99999", BEGIN_PATH, interactive=False)
    with pytest.raises(DBusError, match="cannot tell who is calling"):
        await service._job_methods.start(gone, "autotune", CARD, labour)
    assert jobs.list() == ()


async def test_at_the_end_of_the_service_a_job_cleans_up_and_listeners_are_told(
    start: Starter, client: Client, jobs: Jobs, labour: Labour
) -> None:
    service = await start()
    offer(service, labour)
    await begun(client, labour)
    labour.cleaned.clear()
    closing = asyncio.create_task(jobs.close())
    assert (await shown(client))["State"] == "running"
    refused = await client.call(BEGIN_PATH, BEGIN.name, "Begin")
    assert "is stopping" in refused.body[0]
    labour.cleaned.set()
    await closing
    await service.stop()
    assert (await finished(client))[0] == "cancelled"
