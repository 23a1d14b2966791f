"""Long work: a job as a value and how it changes, and the jobs that run or ended lately."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, Protocol

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import Busy, InvalidArgument, SupervisorError
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import Defect, JobEnded, JobFailed, JobStarted

_LOG = logging.getLogger(__name__)

JobState = Literal["running", "succeeded", "failed", "cancelled"]
KEPT = 16
"""Ended jobs that can still be looked at."""
MOST_RUNNING = 16
"""Jobs at the same time; more would come from somebody who starts them by mistake."""
MOST_IN_A_MINUTE = 20
"""Jobs that one user but root may begin."""
MINUTE = 60 * MICROSECONDS


@dataclass(frozen=True, slots=True)
class Job:
    """Long work. Microseconds of the domain clock."""

    id: int
    kind: str
    """What is done, e.g. "autotune"."""
    started_at: int
    target: str = ""
    """What it works on: a GPU's UUID, an engine and its model."""
    owner: int | None = None
    """The uid of whoever had it started; None when gpusupervisor began by itself."""
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
        """changed: told every job that is new or has changed; those forgotten for it are not in the list any more.

        kept: ended jobs that are remembered, at least one.
        """
        self._clock = clock
        self._changed = changed
        self._kept = kept
        self._jobs: dict[int, Job] = {}
        self._tasks: dict[int, asyncio.Task[object]] = {}
        self._last_id = 0
        self._over: deque[int] = deque()
        """Those that ended, in that order."""
        self._begun: dict[int, list[int]] = {}
        """By user but root: when jobs began in the last minute."""
        self._closed = False

    def start(self, kind: str, work: Work, target: str = "", owner: int | None = None) -> Job:
        """Begin work in the background. Raises Busy when very much runs already, SupervisorError at the end."""
        if self._closed:
            raise SupervisorError("gpusupervisor is stopping, so nothing new was begun")
        self._check_pace(owner)
        if len(self._tasks) >= MOST_RUNNING:
            raise Busy(f"{MOST_RUNNING} jobs are running: cancel one of them, or wait until one has ended")
        self._last_id += 1
        job = Job(self._last_id, kind, self._clock.now(), target, owner)
        self._put(job)
        write(JobStarted(job.id, kind, target))
        task = asyncio.ensure_future(_run(work, partial(self._report, job.id)))
        self._tasks[job.id] = task
        task.add_done_callback(partial(self._end, job.id))
        return job

    def _check_pace(self, owner: int | None) -> None:
        """Each job is told of in the journal and to telemetry, which are everybody's. Raises Busy."""
        if not owner:
            return
        now = self._clock.now()
        lately = [at for at in self._begun.pop(owner, ()) if at > now - MINUTE]
        if len(lately) >= MOST_IN_A_MINUTE:
            wait = (lately[0] + MINUTE - now) // MICROSECONDS + 1
            self._begun[owner] = lately
            raise Busy(f"{MOST_IN_A_MINUTE} jobs of user {owner} began within a minute: try again in {wait} s")
        self._begun = {user: begun for user, begun in self._begun.items() if begun[-1] > now - MINUTE}
        self._begun[owner] = [*lately, now]

    def list(self) -> tuple[Job, ...]:
        """All that are known, the oldest first."""
        return tuple(self._jobs.values())

    def get(self, number: int) -> Job:
        """One of them; raises InvalidArgument when there is none of that number (any more)."""
        try:
            return self._jobs[number]
        except KeyError:
            raise InvalidArgument(f"There is no job {number}, or it ended long ago") from None

    def running_of(self, kind: str) -> tuple[Job, ...]:
        """Those of a kind that have not ended, the oldest first."""
        return tuple(job for job in self._jobs.values() if job.kind == kind and job.state == "running")

    def running(self, number: int) -> Job:
        """One that has not ended; raises InvalidArgument when it has, or is unknown."""
        job = self.get(number)
        if job.state != "running":
            how = "was cancelled" if job.state == "cancelled" else f"has {job.state}"
            raise InvalidArgument(f"Job {number} {how} already")
        return job

    def cancel(self, number: int) -> None:
        """Ask a job to end; it has ended when it says so. Raises InvalidArgument when it has already, or is unknown."""
        self._tasks[self.running(number).id].cancel()

    async def close(self, patience: float | None = None) -> None:
        """Begin nothing any more, cancel what runs, and wait until it has cleaned up, `patience` seconds at most."""
        self._closed = True
        tasks = set(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
        for number in self._tasks:
            _LOG.error("job %d (%s) has not cleaned up within %g s", number, self._jobs[number].kind, patience)

    def _report(self, number: int, progress: int, detail: str, result: object = None) -> None:
        if number in self._jobs:
            self._put(advanced(self._jobs[number], progress, detail, result))

    def _end(self, number: int, task: "asyncio.Task[object]") -> None:
        del self._tasks[number]
        job, now = self._jobs[number], self._clock.now()
        if task.cancelled():
            job = ended(job, "cancelled", now)
        elif (error := task.exception()) is None:
            job = ended(job, "succeeded", now, result=task.result())
        elif isinstance(error, SupervisorError):
            job = ended(job, "failed", now, str(error))
        else:
            write(Defect(f"job {number} ({job.kind})"), error=error)
            job = ended(job, "failed", now, "It failed because of a bug in gpusupervisor; see its log")
        _tell_end(job, now - job.started_at)
        self._over.append(number)
        if len(self._over) > self._kept:
            del self._jobs[self._over.popleft()]
        self._put(job)

    def _put(self, job: Job) -> None:
        if self._jobs.get(job.id) != job:
            self._jobs[job.id] = job
            self._changed(job)


def _tell_end(job: Job, lasted: int) -> None:
    if job.state == "failed":
        write(JobFailed(job.id, job.kind, job.target, lasted, job.detail))
    else:
        write(JobEnded(job.id, job.kind, job.target, job.state, lasted))


async def _run(work: Work, report: Report) -> object:
    return await work(report)
