"""A sweep as it runs: try a point, let an engine work, look at the card meanwhile, and put everything back."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gpusupervisor.autotune.curve import Look, Measured, Tuning, Work, measured, propose
from gpusupervisor.autotune.points import Point
from gpusupervisor.autotune.stop import reason_to_stop
from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import InvalidArgument, NotSupported, SupervisorError
from gpusupervisor.jobs import Report
from gpusupervisor.quantities import format_duration

Result = TypeVar("Result")


class Stopped(SupervisorError):  # noqa: N818  (read as what happened)
    """The sweep ended before its time; the text says why."""


class Control(Protocol):
    """Sets a point for a while. All raise SupervisorError."""

    async def set(self, point: Point, within: int) -> Point:
        """Set a point instead of the one before; what the card accepted.

        After `within` microseconds the state before the sweep returns by itself, whatever became of us.
        """

    async def restore(self) -> None:
        """Set the state before the first point again, if it has not returned already."""


class Sensors(Protocol):
    """Looks at the card."""

    async def look(self) -> Look:
        """The card now. Raises SupervisorError when it cannot be asked."""


class Load(Protocol):
    """A short piece of work that is the same each time. All raise SupervisorError."""

    unit: str
    """What it makes, e.g. "token"."""

    async def prepare(self) -> None:
        """Have the engine ready (the model loaded). Raises NotSupported with the reason when it cannot do this."""

    async def run(self, timeout: int) -> Work:  # noqa: ASYNC109  (microseconds)
        """Do it once; raises when it has not ended in time. Stops the engine's work when cancelled."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a sweep is made. Microseconds."""

    tolerance: int = 5
    """Percent of the best throughput that may be given up."""
    hottest: int = 87
    """Degrees Celsius at which it stops: GeForce cards slow down at about 90."""
    settle: int = 2 * MICROSECONDS
    """Between setting a point and the run."""
    longest_run: int = 120 * MICROSECONDS
    shortest_run: int = 2 * MICROSECONDS
    """Of less the mean power cannot be told."""
    margin: int = 15 * MICROSECONDS
    """For all that is done at a point beside settling and the run."""
    period: int = MICROSECONDS // 10
    """Between two looks."""

    @property
    def within(self) -> int:
        """For how long a point is set at most."""
        return self.settle + self.longest_run + self.margin


@dataclass(frozen=True, slots=True)
class _Run:
    work: Work
    looks: Sequence[Look]
    ended_at: int


class Autotune:
    """Sweeps of one GPU with one load."""

    def __init__(self, control: Control, sensors: Sensors, load: Load, clock: Clock, rules: Rules = Rules()) -> None:
        self._control = control
        self._sensors = sensors
        self._load = load
        self._clock = clock
        self._rules = rules

    async def run(self, points: Sequence[Point], report: Report) -> Tuning:
        """Measure every point, propose one, leave everything as it was, also when cancelled.

        Raises NotSupported, InvalidArgument before anything is set, and SupervisorError (Stopped) when it ended early;
        the reported result then has what was measured.
        """
        if not points or not 0 <= self._rules.tolerance < 100:
            raise InvalidArgument("A sweep needs at least one point, and a tolerance from 0 to 99 percent")
        await self._look_first()
        report(0, "preparing the engine")
        await self._load.prepare()
        await self._warm_up()
        async with self._put_back():
            return await self._sweep(points, report)

    @asynccontextmanager
    async def _put_back(self) -> AsyncIterator[None]:
        """Whatever happens, the state before is set again; if that fails, it is told with why the sweep ended."""
        why = ""
        try:
            yield
        except SupervisorError as error:
            why = f"{str(error).rstrip('.')}. "
            raise
        finally:
            try:
                await to_the_end(self._control.restore())
            except SupervisorError as error:
                within = format_duration(self._rules.within)
                raise Stopped(
                    f"{why}The previous state could not be restored: {error}. "
                    f"The helper does so automatically, within {within} or when it starts again (see LastTrialReason)"
                ) from error

    async def _look_first(self) -> None:
        look = await self._sensors.look()
        if look.power is None and look.energy is None:
            raise NotSupported("The GPU reports neither its power nor its energy, so there is nothing to compare")
        reason = reason_to_stop(look, self._rules.hottest)
        if reason:
            raise Stopped(f"Nothing was tried: {reason}")

    async def _warm_up(self) -> None:
        """The first run is another than those that follow (caches, clocks), and shows whether it is long enough."""
        run = await self._run_load()
        if run.work.duration < self._rules.shortest_run:
            needed = format_duration(self._rules.shortest_run)
            raise NotSupported(f"The benchmark ended in less than {needed}, too soon to measure: ask for more tokens")

    async def _sweep(self, points: Sequence[Point], report: Report) -> Tuning:
        tuning = Tuning(self._load.unit, self._rules.tolerance)
        for number, point in enumerate(points):
            report(100 * (number + 1) // (len(points) + 1), f"point {number + 1} of {len(points)}", tuning)
            found = await self._measure(point)
            tuning = Tuning(tuning.unit, tuning.tolerance, (*tuning.curve, found))
        whole = Tuning(tuning.unit, tuning.tolerance, tuning.curve, propose(tuning.curve, tuning.tolerance))
        report(99, "restoring the previous state", tuning)
        return whole

    async def _measure(self, point: Point) -> Measured:
        accepted = await self._control.set(point, self._rules.within)
        await self._watched(asyncio.sleep(self._rules.settle / MICROSECONDS))
        run = await self._run_load()
        found = measured(accepted, run.work, run.looks, run.ended_at)
        if found is None:
            raise Stopped("The sweep was stopped: the GPU reported no power during a run")
        return found

    async def _run_load(self) -> _Run:
        async def timed() -> tuple[Work, int]:
            work = await self._load.run(self._rules.longest_run)
            return work, self._clock.now()

        (work, ended_at), looks = await self._watched(timed())
        if work.units < 1 or work.duration < 1:
            raise Stopped("The sweep was stopped: the engine did no work")
        return _Run(work, looks, ended_at)

    async def _watched(self, work: Coroutine[Any, Any, Result]) -> tuple[Result, Sequence[Look]]:
        """Do something and look at the card meanwhile, once more after it; raises Stopped when that tells to."""
        looks: list[Look] = []
        task = asyncio.ensure_future(work)
        try:
            done = False
            while not done:
                done = task.done()
                look = await self._sensors.look()
                looks.append(look)
                reason = reason_to_stop(look, self._rules.hottest)
                if reason:
                    raise Stopped(f"The sweep was stopped: {reason}")
                if not done:
                    await asyncio.wait({task}, timeout=self._rules.period / MICROSECONDS)
            return task.result(), looks
        finally:
            task.cancel()
            await to_the_end(_settled(task))


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Await work that must not be left half done; being cancelled meanwhile is answered when it is over."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def _settled(task: "asyncio.Task[Any]") -> None:
    """It has ended, and whatever it raised is taken note of."""
    await asyncio.gather(task, return_exceptions=True)
