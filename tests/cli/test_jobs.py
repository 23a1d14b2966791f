"""Long work from the command line: listed, followed with its progress, cancelled, left."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.errors import GpuUnavailable
from gpusupervisor.jobs import Job, Jobs
from tests.bus.builders import FakeClock
from tests.bus.conftest import PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority
from tests.cli.conftest import COMMAND, Run
from tests.cli.labour import Labour
from tests.cli.pseudo_terminal import INTERRUPT, PseudoTerminal


class Works:
    """Jobs and the service that shows them."""

    def __init__(self) -> None:
        self.service: BusService
        self.jobs = Jobs(FakeClock(), self._show)

    def _show(self, job: Job) -> None:
        self.service.show_job(job)

    async def begin(self) -> Labour:
        """Work that has begun, as job 1, 2, ..."""
        labour = Labour()
        self.jobs.start("autotune", labour, "GPU-1", owner=0)
        await labour.begun.wait()
        return labour


@pytest.fixture
async def works(bus: PrivateBus, authority: FixedAuthority) -> AsyncIterator[Works]:
    one = Works()
    one.service = await BusService.start(
        bus.address, FakeController(), FakeHardware(), one.jobs, "1.2.3", FakeClock(), lambda _bus: authority
    )
    yield one
    await one.jobs.close()
    await one.service.stop()


async def terminal(bus: PrivateBus, *arguments: str) -> PseudoTerminal:
    return await PseudoTerminal.run(*COMMAND, *arguments, environment={"DBUS_SYSTEM_BUS_ADDRESS": bus.address})


async def test_jobs_are_listed_and_shown(ctl: Run, works: Works) -> None:
    assert (await ctl("jobs")).output == "No job runs, and none has ended lately.\n"
    labour = await works.begin()
    labour.report(42, "point 4 of 9")
    row = (await ctl("jobs")).output.splitlines()[1].split()
    assert row[:5] == ["1", "autotune", "running", "42", "%"]
    shown = await ctl("job", "1")
    assert (shown.status, "point 4 of 9" in shown.output) == (0, True)
    assert "job 1, autotune, 42 %: point 4 of 9" in (await ctl("status")).output
    labour.finish.set()
    await asyncio.sleep(0)
    assert json.loads((await ctl("job", "1", "--json")).output)["state"] == "succeeded"


async def test_a_job_that_is_not_there_is_told_in_the_services_words(ctl: Run, works: Works) -> None:
    for arguments in (("job", "9"), ("cancel", "9")):
        shown = await ctl(*arguments)
        assert (shown.status, shown.output) == (1, "")
        assert "There is no job 9" in shown.errors


async def test_cancel_asks_the_job_to_end(ctl: Run, works: Works) -> None:
    labour = await works.begin()
    shown = await ctl("cancel", "1")
    assert (shown.status, shown.output) == (0, "Job 1 was asked to end; it first undoes what has to be undone.\n")
    await labour.cancelled.wait()


async def test_following_without_a_terminal_tells_each_step_on_a_line(bus: PrivateBus, works: Works) -> None:
    labour = await works.begin()
    following = await bus.spawn(*COMMAND, "job", "1", "--follow")
    labour.report(10, "point 1 of 9")
    assert following.stderr is not None
    assert await following.stderr.readline() == b"10 %: point 1 of 9\n"
    labour.report(20, "point 2 of 9")
    assert await following.stderr.readline() == b"20 %: point 2 of 9\n"
    labour.finish.set()
    output, _ = await following.communicate()
    assert following.returncode == 0
    assert output.decode().startswith("job 1  autotune\n")
    assert "Nothing was measured" in output.decode(), "as autotune itself says it"


async def test_following_a_job_that_there_is_not_says_so_as_looking_at_it_does(bus: PrivateBus, works: Works) -> None:
    await works.begin()
    looked, followed = [await bus.run(*COMMAND, "job", "99", *more) for more in ((), ("--follow",))]
    assert (looked.status, looked.errors) == (1, "There is no job 99, or it ended long ago.\n")
    assert (followed.status, followed.errors) == (looked.status, looked.errors)


async def test_following_what_fails_ends_with_one_and_says_why(bus: PrivateBus, works: Works) -> None:
    labour = await works.begin()
    labour.failure = GpuUnavailable("the GPU is lost")
    following = await bus.spawn(*COMMAND, "job", "1", "--follow", "--json")
    labour.report(10, "point 1 of 9")
    assert following.stderr is not None
    await following.stderr.readline()
    labour.finish.set()
    output, errors = await following.communicate()
    assert (following.returncode, errors) == (1, b"the GPU is lost.\n")
    assert json.loads(output) | {"started_at": 0, "ended_at": 0} == {
        "id": 1, "kind": "autotune", "target": "GPU-1", "started_by": 0, "started_at": 0, "state": "failed",
        "progress": 10, "detail": "the GPU is lost", "result": {}, "ended_at": 0,
    }  # fmt: skip


async def test_following_what_has_ended_shows_it_at_once(ctl: Run, works: Works) -> None:
    labour = await works.begin()
    labour.finish.set()
    await asyncio.sleep(0)
    assert (await ctl("job", "1", "-f")).status == 0


async def test_on_a_terminal_there_is_a_bar_and_ctrl_c_cancels_and_says_so(bus: PrivateBus, works: Works) -> None:
    labour = await works.begin()
    labour.report(42, "point 4 of 9")
    following = await terminal(bus, "job", "1", "-f")
    await following.wait_for("point 4 of 9")
    assert " 42 %" in following.written
    assert "━" in following.written
    following.press(INTERRUPT)
    await labour.cancelled.wait()
    assert await following.end() == 130
    assert "Cancelling" in following.written
    assert "Job 1 was cancelled" in following.written
    assert "Traceback" not in following.written


async def test_a_second_ctrl_c_leaves_the_job_alone(bus: PrivateBus, works: Works) -> None:
    labour = await works.begin()
    labour.clean.clear()
    labour.report(42, "point 4 of 9")
    following = await terminal(bus, "job", "1", "-f")
    await following.wait_for("point 4 of 9")
    following.press(INTERRUPT)
    await labour.cancelled.wait()
    following.press(INTERRUPT)
    assert await following.end() == 130
    assert "No longer waiting" in following.written
    assert "Traceback" not in following.written
    labour.clean.set()


async def test_ctrl_c_without_being_allowed_to_cancel_says_so_and_goes_on(
    bus: PrivateBus, works: Works, authority: FixedAuthority
) -> None:
    authority.allow = False
    labour = Labour()
    works.jobs.start("autotune", labour, "GPU-1", owner=4242)
    await labour.begun.wait()
    labour.report(5, "first")
    following = await bus.spawn(*COMMAND, "job", "1", "-f")
    assert following.stderr is not None
    await following.stderr.readline()
    following.send_signal(signal.SIGINT)
    assert (await following.stderr.readline()).startswith(b"Cancelling")
    while not authority.asked:
        await asyncio.sleep(0.01)
    labour.finish.set()
    _, errors = await following.communicate()
    assert following.returncode == 0
    assert errors == b"no.\n"


async def test_what_somebody_else_cancels_ends_with_one(bus: PrivateBus, works: Works, ctl: Run) -> None:
    labour = await works.begin()
    labour.report(5, "first")
    following = await bus.spawn(*COMMAND, "job", "1", "-f")
    assert following.stderr is not None
    await following.stderr.readline()
    await ctl("cancel", "1")
    _, errors = await following.communicate()
    assert following.returncode == 1
    assert "Job 1 was cancelled" in errors.decode()


async def test_a_service_that_stops_ends_the_following(bus: PrivateBus, works: Works) -> None:
    labour = await works.begin()
    labour.report(5, "first")
    following = await bus.spawn(*COMMAND, "job", "1", "-f")
    assert following.stderr is not None
    await following.stderr.readline()
    await works.service.stop()
    _, errors = await following.communicate()
    assert (following.returncode, errors) == (3, b"gpusupervisor has stopped, and the job with it.\n")
