"""The one thread that owns every NVML call.

pynvml is not safe on two threads (some wrappers share their output structures), and a call into a driver that hangs
can neither be cancelled nor killed. So one daemon thread makes the calls, and whoever waits for it waits no longer
than a deadline.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, cast

from gpusupervisor.clock import Clock, SystemClock

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")

CLOSING_PATIENCE = 1.0
"""Seconds that `close` waits for a thread which is not known to be wedged."""


class DriverUnresponsive(Exception):  # noqa: N818  (named as the state it causes)
    """A call into the driver did not return within its deadline, or an earlier one still has not."""


class _Job:
    """One call, and who waits for it."""

    def __init__(self, work: Callable[[], object], asked_at: int) -> None:
        self.work = work
        self.asked_at = asked_at
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[object] = self.loop.create_future()
        self.dropped = False
        """Nobody waits any more: not begun when still queued, its result thrown away when running."""


class NvmlThread:
    """Runs functions in the NVML thread, one at a time; to be used from one event loop.

    All state but the job queue belongs to the event loop: the thread only takes a job, runs it and posts the outcome.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._turn = asyncio.Lock()
        self._unfinished: list[_Job] = []
        self._thread: threading.Thread | None = None
        self._closed = False
        self.wedged_since: int | None = None
        """When the call was asked for that has passed its deadline and not returned yet; None when there is none."""

    async def call(self, function: Callable[[*Arguments], Result], *arguments: *Arguments, deadline: float) -> Result:
        """Run function(*arguments) in the thread; its exceptions are raised here.

        Raises DriverUnresponsive when it takes longer than `deadline` seconds, and at once while a call that did so
        has not returned: nothing is queued behind it. Its late result is dropped.
        """
        async with self._turn:
            if self._closed:
                raise DriverUnresponsive("the NVML thread is closed")
            if self.wedged_since is not None:
                raise DriverUnresponsive("an earlier call into the NVIDIA driver has not returned yet")
            job = _Job(lambda: function(*arguments), self._clock.now())
            self._submit(job)
            try:
                done, _ = await asyncio.wait({job.future}, timeout=deadline)
            except asyncio.CancelledError:
                job.dropped = True
                raise
            if not done:
                job.dropped = True
                self.wedged_since = self._unfinished[0].asked_at
                raise DriverUnresponsive(f"the NVIDIA driver did not answer within {deadline:g} s")
            return cast("Result", job.future.result())

    async def close(self) -> None:
        """End the thread. A wedged one is left behind: it is a daemon thread and does not hold up the exit."""
        async with self._turn:
            self._closed = True
            if self._thread is None or self.wedged_since is not None:
                return
            ended = _Job(lambda: None, self._clock.now())
            self._submit(ended)
            self._jobs.put(None)
            await asyncio.wait({ended.future}, timeout=CLOSING_PATIENCE)

    def _submit(self, job: _Job) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)
            self._thread.start()
        self._unfinished.append(job)
        self._jobs.put(job)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcome: object = None
            failure: BaseException | None = None
            if not job.dropped:
                try:
                    outcome = job.work()
                except BaseException as error:  # noqa: BLE001  (it is the caller's, whatever it is)
                    failure = error
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to tell
                job.loop.call_soon_threadsafe(self._finished, job, outcome, failure)

    def _finished(self, job: _Job, outcome: object, failure: BaseException | None) -> None:
        self._unfinished.remove(job)
        self.wedged_since = None  # what was queued behind it has been dropped
        if job.dropped or job.future.done():
            return
        if failure is not None:
            job.future.set_exception(failure)
        else:
            job.future.set_result(outcome)
