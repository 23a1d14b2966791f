"""A card that behaves as physics has it, a load on it, and a clock that they move themselves."""

import asyncio
from dataclasses import dataclass, field

from gpusupervisor.autotune.curve import Look, Tuning, Work
from gpusupervisor.autotune.points import Point
from gpusupervisor.autotune.run import Autotune, Rules
from gpusupervisor.errors import GpuUnavailable

SECOND = 1_000_000
BEFORE = Point(450_000)
WANTED = 400_000
"""mW that the load would draw."""
IDLE = 30_000
RULES = Rules(settle=0, period=0)


class FakeClock:
    """Moves when it is told to."""

    def __init__(self) -> None:
        self.time = 5 * SECOND

    def now(self) -> int:
        return self.time

    def realtime(self, instant: int) -> int:
        return instant


def throughput(limit: int) -> float:
    """Tokens a second: the clock goes with the cube root of the power, and beyond a point gains nothing."""
    return float(50 * (min(limit, WANTED) / WANTED) ** (1 / 3))


@dataclass
class Rig:
    """All three of the sweep's neighbours, and what was done to them."""

    clock: FakeClock = field(default_factory=FakeClock)
    now_set: Point = BEFORE
    done: list[str] = field(default_factory=list)
    looks: int = 0
    working: bool = False
    counter: bool = False
    """Energy is counted by the card."""
    energy: int = 0
    tells_power: bool = True
    temperature: int | None = 60
    reasons: frozenset[str] = frozenset()
    xids: tuple[int, ...] = ()
    at_look: dict[int, str] = field(default_factory=dict)
    """What happens at a look: xid, hot, blind, throttle, gone, cancel, no-power, mistake."""
    refused: frozenset[int] = frozenset()
    """Power limits that the card does not take."""
    load_fails_at: int = 0
    """Which run fails; the first is 1, the warm-up."""
    runs: int = 0
    tokens: int = 200
    unit: str = "token"
    restore_fails: bool = False
    restoring: asyncio.Event | None = None
    """Restoring waits for it."""
    task: "asyncio.Task[Tuning] | None" = None
    reported: list[tuple[int, str, object]] = field(default_factory=list)

    def report(self, progress: int, detail: str, result: object = None) -> None:
        self.reported.append((progress, detail, result))

    async def tune(self, *points: Point, rules: Rules = RULES) -> Tuning:
        """Sweep."""
        self.task = asyncio.ensure_future(Autotune(self, self, self, self.clock, rules).run(points, self.report))
        return await self.task

    async def set(self, point: Point, within: int) -> Point:
        assert within > RULES.longest_run
        self.done.append(f"set {point.power_limit}")
        if point.power_limit in self.refused:
            raise GpuUnavailable(f"the driver does not take {point.power_limit}")
        self.now_set = point
        return point

    async def restore(self) -> None:
        self.done.append("restore")
        if self.restoring is not None:
            await self.restoring.wait()
        if self.restore_fails:
            raise GpuUnavailable("no answer")
        self.now_set = BEFORE

    async def prepare(self) -> None:
        self.done.append("prepare")

    async def run(self, timeout: int) -> Work:
        self.runs += 1
        if self.runs == self.load_fails_at:
            raise GpuUnavailable("the engine has crashed")
        duration = round(self.tokens / throughput(self.now_set.power_limit) * SECOND)
        assert duration < timeout
        ends = self.clock.now() + duration
        self.working = True
        try:
            while self.clock.now() < ends:
                await asyncio.sleep(0)
        finally:
            self.working = False
        return Work(self.tokens, duration)

    async def look(self) -> Look:
        self.looks += 1
        self.clock.time += SECOND // 5
        power = min(WANTED, self.now_set.power_limit) if self.working else IDLE
        self.energy += power // 5
        self._happen(self.at_look.get(self.looks, ""))
        return Look(
            self.clock.now(),
            power if self.tells_power and not self.counter else None,
            self.temperature,
            self.reasons | ({"sw-power-cap"} if power == self.now_set.power_limit else set()),
            self.energy if self.counter else None,
            self.xids,
        )

    def _happen(self, what: str) -> None:
        if what == "gone":
            raise GpuUnavailable("the GPU is lost")
        if what == "mistake":
            raise ZeroDivisionError
        if what == "cancel" and self.task is not None:
            self.task.cancel()
        self.xids = (31,) if what == "xid" else ()
        self.temperature = {"hot": 88, "blind": None}.get(what, self.temperature)
        self.reasons = frozenset({"hw-thermal-slowdown"}) if what == "throttle" else self.reasons
        self.tells_power = self.tells_power and what != "no-power"
