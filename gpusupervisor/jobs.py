"""Long work: a job as a value and how it changes, and the jobs that run or ended lately."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

from gpusupervisor.clock import Clock
from gpusupervisor.errors import InvalidArgument, SupervisorError
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import Defect, JobEnded, JobFailed, JobStarted

JobState = Literal["running", "succeeded", "failed", "cancelled"]
KEPT = 16
"""Ended jobs that can still be looked at."""


@dataclass(frozen=True, slots=True)
class Job:
    """Long work. Microseconds of the domain clock."""

    id: int
    kind: str
    """What is done, e.g. "autotune"."""
    started_at: int
    state: JobState = "running"
    progress: int = 0
    """Percent; 100 only when it succeeded."""
    detail: str = ""
    """What it does now, or how it ended."""
    result: object = None
    """What the work makes, as far as it has come."""
    ended_at: int | None = None


def advanced(job: Job, progress: int, detail: str, result: object = None) -> Job:
    """The job further on: never back, and never done before it ended. One that ended stays as it is.

    result: None keeps what there is.
    """
    if job.state != "running":
        return job
    return replace(
        job,
        progress=max(job.progress, min(progress, 99)),
        detail=detail,
        result=job.result if result is None else result,
    )


def ended(job: Job, state: JobState, now: int, detail: str = "", result: object = None) -> Job:
    """The job at its end, once and for all. result: None keeps what there is."""
    if job.state != "running":
        return job
    return replace(
        job,
        state=state,
        progress=100 if state == "succeeded" else job.progress,
        detail=detail,
        result=job.result if result is None else result,
        ended_at=now,
    )


class Report(Protocol):
    """How work tells how far it has come."""

    def __call__(self, progress: int, detail: str, result: object = None) -> None:
        """progress: percent. result: what there is so far, kept should the work fail."""


Work = Callable[[Report], Awaitable[object]]
"""Does the work and returns its result; raises SupervisorError when it fails. Cleans up when it is cancelled."""


class Jobs:
    """The jobs of this process, for one event loop."""

    def __init__(self, clock: Clock, changed: Callable[[Job], None], kept: int = KEPT) -> None:
        """changed: told every job that is new or has changed. kept: ended jobs that are remembered."""
        self._clock = clock
        self._changed = changed
        self._kept = kept
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, asyncio.Task[object]] = {}
        self._last_id = 0
        self._over: deque[int] = deque()
        """Those that ended, in that order."""

    def start(self, kind: str, work: Work) -> Job:
        """Begin work in the background."""
        self._last_id += 1
        job = Job(self._last_id, kind, self._clock.now())
        self._put(job)
        write(JobStarted(job.id, kind))
        task = asyncio.ensure_future(_run(work, partial(self._report, job.id)))
        self._tasks[job.id] = task
        task.add_done_callback(partial(self._end, job.id))
        return job

    def list(self) -> tuple[Job, ...]:
        """All that are known, the oldest first."""
        return tuple(self._jobs.values())

    def get(self, number: int) -> Job:
        """One of them; raises InvalidArgument when there is none of that number (any more)."""
        try:
            return self._jobs[number]
        except KeyError:
            raise InvalidArgument(f"There is no job {number}, or it ended long ago") from None

    def cancel(self, number: int) -> None:
        """Ask a job to end; it has ended when it says so. Raises InvalidArgument when it has already, or is unknown."""
        job = self.get(number)
        if job.state != "running":
            raise InvalidArgument(f"Job {number} has {job.state} already")
        self._tasks[number].cancel()

    async def close(self) -> None:
        """Cancel what runs, and wait until it has cleaned up."""
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _report(self, number: int, progress: int, detail: str, result: object = None) -> None:
        if number in self._jobs:
            self._put(advanced(self._jobs[number], progress, detail, result))

    def _end(self, number: int, task: "asyncio.Task[object]") -> None:
        del self._tasks[number]
        job, now = self._jobs[number], self._clock.now()
        if task.cancelled():
            job = ended(job, "cancelled", now, "cancelled")
        elif (error := task.exception()) is None:
            job = ended(job, "succeeded", now, result=task.result())
        elif isinstance(error, SupervisorError):
            job = ended(job, "failed", now, str(error))
        else:
            write(Defect(f"job {number} ({job.kind})"), error=error)
            job = ended(job, "failed", now, "It failed by a mistake of gpusupervisor's own, which its log tells")
        self._put(job)
        _tell_end(job, now - job.started_at)
        self._over.append(number)
        if len(self._over) > self._kept:
            del self._jobs[self._over.popleft()]

    def _put(self, job: Job) -> None:
        if self._jobs.get(job.id) != job:
            self._jobs[job.id] = job
            self._changed(job)


def _tell_end(job: Job, lasted: int) -> None:
    if job.state == "failed":
        write(JobFailed(job.id, job.kind, lasted, job.detail))
    else:
        write(JobEnded(job.id, job.kind, job.state, lasted))


async def _run(work: Work, report: Report) -> object:
    return await work(report)
