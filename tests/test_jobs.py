"""Jobs: long work that is seen, cancelled and remembered for a while."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gpusupervisor.clock import SystemClock
from gpusupervisor.errors import Busy, GpuUnavailable, InvalidArgument, SupervisorError
from gpusupervisor.jobs import MOST_IN_A_MINUTE, MOST_RUNNING, Job, Jobs, Report, advanced, ended
from gpusupervisor.journal.messages.service import JobEnded, JobFailed, JobStarted


class Seen:
    """Jobs, and what was told of them."""

    def __init__(self, kept: int = 16) -> None:
        self.told: list[Job] = []
        self.jobs = Jobs(SystemClock(), self.told.append, kept)

    async def at_its_end(self, job: Job) -> Job:
        async with asyncio.timeout(5):
            while self.jobs.get(job.id).state == "running":
                await asyncio.sleep(0)
        return self.jobs.get(job.id)


@pytest.fixture
async def seen() -> AsyncIterator[Seen]:
    seen = Seen()
    yield seen
    await seen.jobs.close()


async def for_ever(_report: Report) -> object:
    await asyncio.Event().wait()
    return None


async def nothing(_report: Report) -> object:
    return "done"


def test_progress_goes_on_and_never_back() -> None:
    job = advanced(Job(1, "autotune", 0), 40, "at work")
    job = advanced(job, 20, "still")
    assert (job.progress, job.detail) == (40, "still")
    assert advanced(job, 100, "nearly").progress == 99


def test_a_job_that_has_ended_stays_as_it_ended() -> None:
    over = ended(Job(1, "autotune", 0, progress=30), "failed", 9, "broken", result="half")
    assert (over.state, over.progress, over.detail, over.ended_at) == ("failed", 30, "broken", 9)
    assert ended(over, "succeeded", 10) == over
    assert advanced(over, 50, "late") == over


def test_what_there_is_so_far_is_kept_unless_there_is_more() -> None:
    job = advanced(Job(1, "autotune", 0), 10, "", result="first")
    assert advanced(job, 20, "").result == "first"
    assert ended(job, "failed", 5).result == "first"
    assert ended(job, "succeeded", 5, result="all").result == "all"


async def test_work_is_seen_from_its_beginning_to_its_end(seen: Seen) -> None:
    async def work(report: Report) -> object:
        report(50, "half way", "half")
        report(50, "half way", "half")  # nothing new
        return "whole"

    job = seen.jobs.start("autotune", work)
    over = await seen.at_its_end(job)
    assert [(told.state, told.progress, told.result) for told in seen.told] == [
        ("running", 0, None),
        ("running", 50, "half"),
        ("succeeded", 100, "whole"),
    ]
    assert over.ended_at is not None
    assert over.ended_at >= over.started_at


async def test_work_that_fails_says_why_and_keeps_what_it_had(seen: Seen) -> None:
    async def work(report: Report) -> object:
        report(30, "on", ("one point",))
        raise GpuUnavailable("The GPU is lost")

    over = await seen.at_its_end(seen.jobs.start("autotune", work))
    assert (over.state, over.detail, over.result) == ("failed", "The GPU is lost", ("one point",))


async def test_a_mistake_of_ours_ends_the_job_and_goes_to_the_log(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    async def work(_report: Report) -> object:
        raise ZeroDivisionError

    over = await seen.at_its_end(seen.jobs.start("autotune", work))
    assert over.state == "failed"
    assert "log" in over.detail
    assert "ZeroDivisionError" in caplog.text


async def test_a_cancelled_job_has_ended_when_it_has_cleaned_up(seen: Seen) -> None:
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def work(report: Report) -> object:
        try:
            return await for_ever(report)
        finally:
            cleaning.set()
            await cleaned.wait()

    job = seen.jobs.start("autotune", work)
    await asyncio.sleep(0)
    seen.jobs.cancel(job.id)
    await cleaning.wait()
    assert seen.jobs.get(job.id).state == "running"
    cleaned.set()
    assert (await seen.at_its_end(job)).state == "cancelled"


async def test_a_job_can_be_cancelled_before_it_began(seen: Seen) -> None:
    job = seen.jobs.start("autotune", for_ever)
    seen.jobs.cancel(job.id)
    assert (await seen.at_its_end(job)).state == "cancelled"


async def test_what_has_ended_cannot_be_cancelled(seen: Seen) -> None:
    job = seen.jobs.start("autotune", nothing)
    await seen.at_its_end(job)
    with pytest.raises(InvalidArgument, match="has succeeded already"):
        seen.jobs.cancel(job.id)
    running = seen.jobs.start("autotune", for_ever)
    seen.jobs.cancel(running.id)
    await seen.at_its_end(running)
    with pytest.raises(InvalidArgument, match="was cancelled already"):
        seen.jobs.cancel(running.id)
    with pytest.raises(InvalidArgument, match="no job 77"):
        seen.jobs.cancel(77)


async def test_only_the_latest_of_those_that_ended_are_remembered() -> None:
    seen = Seen(kept=2)
    running = seen.jobs.start("autotune", for_ever)
    for _ in range(4):
        await seen.at_its_end(seen.jobs.start("autotune", nothing))
    assert [job.id for job in seen.jobs.list()] == [running.id, 4, 5]
    with pytest.raises(InvalidArgument, match="ended long ago"):
        seen.jobs.get(2)
    await seen.jobs.close()
    assert [(job.id, job.state) for job in seen.jobs.list()] == [(running.id, "cancelled"), (5, "succeeded")]


async def test_what_is_forgotten_for_a_job_that_ends_is_gone_when_its_end_is_told() -> None:
    listed: list[list[int]] = []
    jobs = Jobs(SystemClock(), lambda _job: listed.append([job.id for job in jobs.list()]), kept=1)
    for _ in range(2):
        jobs.start("autotune", nothing)
        async with asyncio.timeout(5):
            while any(job.state == "running" for job in jobs.list()):
                await asyncio.sleep(0)
    assert listed == [[1], [1], [1, 2], [2]]


async def test_a_job_knows_what_it_works_on_and_for_whom(seen: Seen) -> None:
    job = seen.jobs.start("autotune", for_ever, "GPU-1", 1000)
    assert (job.target, job.owner) == ("GPU-1", 1000)
    assert (await seen.at_its_end(seen.jobs.start("autotune", nothing))).owner is None


async def test_very_many_at_once_are_refused_until_one_has_ended(seen: Seen) -> None:
    for _ in range(MOST_RUNNING):
        last = seen.jobs.start("autotune", for_ever)
    with pytest.raises(Busy, match="cancel one of them"):
        seen.jobs.start("autotune", nothing)
    seen.jobs.cancel(last.id)
    await seen.at_its_end(last)
    assert seen.jobs.start("autotune", nothing).state == "running"


async def test_at_the_end_nothing_is_begun_any_more(seen: Seen) -> None:
    job = seen.jobs.start("autotune", for_ever)
    await seen.jobs.close()
    assert seen.jobs.get(job.id).state == "cancelled"
    with pytest.raises(SupervisorError, match="is stopping"):
        seen.jobs.start("autotune", nothing)


async def test_a_job_that_does_not_clean_up_in_time_is_told_and_not_waited_for(
    seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    cleaned = asyncio.Event()

    async def work(report: Report) -> object:
        try:
            return await for_ever(report)
        finally:
            await cleaned.wait()

    job = seen.jobs.start("autotune", work)
    await asyncio.sleep(0)
    await seen.jobs.close(patience=0.05)
    assert seen.jobs.get(job.id).state == "running"
    assert "job 1 (autotune) has not cleaned up within 0.05 s" in caplog.text
    cleaned.set()
    assert (await seen.at_its_end(job)).state == "cancelled"


async def test_beginning_and_end_are_entries_of_the_journal(seen: Seen, caplog: pytest.LogCaptureFixture) -> None:
    async def failing(_report: Report) -> object:
        raise GpuUnavailable("The GPU is lost")

    caplog.set_level("INFO", "gpusupervisor")
    await seen.at_its_end(seen.jobs.start("autotune", nothing, "GPU-1"))
    await seen.at_its_end(seen.jobs.start("warm", failing, "small"))
    entries = [record.entry for record in caplog.records if hasattr(record, "entry")]
    assert [type(entry) for entry in entries] == [JobStarted, JobEnded, JobStarted, JobFailed]
    assert (entries[1].job, entries[1].target, entries[1].outcome) == (1, "GPU-1", "succeeded")
    assert (entries[3].job, entries[3].detail) == (2, "The GPU is lost")


async def test_a_user_who_starts_job_after_job_is_slowed_down_and_others_are_not(seen: Seen) -> None:
    """Each writes to the journal and to telemetry, which are everybody's."""
    for _ in range(MOST_IN_A_MINUTE):
        await seen.at_its_end(seen.jobs.start("warm-up", nothing, owner=1000))
    for _ in range(300):
        with pytest.raises(Busy, match=r"user 1000 began within a minute: try again in \d+ s"):
            seen.jobs.start("warm-up", nothing, owner=1000)
    for owner in (1001, 0, None):
        assert (await seen.at_its_end(seen.jobs.start("warm-up", nothing, owner=owner))).state == "succeeded"
    for _ in range(3 * MOST_IN_A_MINUTE):
        await seen.at_its_end(seen.jobs.start("warm-up", nothing, owner=0))
