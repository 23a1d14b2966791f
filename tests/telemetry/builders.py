"""Short hands for the store's tests."""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpusupervisor.arbitration.learned import Fact, FactKind, Measured
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.records import Point, Recalled, Series, TelemetryEvent
from gpusupervisor.telemetry.store import Store

SECOND = 1_000_000
MINUTE = 60 * SECOND
DAY = 86_400 * SECOND
GIB = 1 << 30
EPOCH = 1_790_000_000 * SECOND
CARD = "GPU-3f9c1a52-0000-4000-8000-00000000a090"
USED = Series("used", CARD)
PLENTY = Limits(3660 * DAY, 1 << 40)


class Station:
    """A store and what it recalled."""

    def __init__(self, path: Path, limits: Limits = PLENTY, batch_interval: float = 0.05) -> None:
        self.recalled: list[Recalled] = []
        self.has_recalled = threading.Event()
        self.store = Store(path, limits, self._recall, batch_interval)

    def _recall(self, found: Recalled) -> None:
        self.recalled.append(found)
        self.has_recalled.set()

    @property
    def facts(self) -> set[Fact]:
        """All that was recalled."""
        return {fact for found in self.recalled for fact in found.facts}


@contextmanager
def opened(path: Path, limits: Limits = PLENTY, batch_interval: float = 0.05) -> Iterator[Station]:
    """A store that runs, closed at the end."""
    station = Station(path, limits, batch_interval)
    station.store.start()
    try:
        assert station.has_recalled.wait(10)
        yield station
    finally:
        assert station.store.close()


def eventually(probe: Callable[[], object], what: str, within: float = 15.0) -> None:
    """Ask until the answer is true."""
    deadline = time.monotonic() + within
    while not probe():
        assert time.monotonic() < deadline, f"not within {within:g} s: {what}"
        time.sleep(0.01)


def points(count: int, series: Series = USED, start: int = EPOCH, step: int = SECOND) -> list[Point]:
    """A figure that climbs."""
    return [Point(series, start + number * step, number * 1000) for number in range(count)]


def event(number: int = 0) -> TelemetryEvent:
    return TelemetryEvent("plan", EPOCH + number, "comfyui", CARD, f"plan-{number}", {"summary": f"number {number}"})


def fact(tenant: str = "comfyui", value: int = GIB, kind: FactKind = "floor", gpu: str = CARD) -> Fact:
    evidence = (Measured(EPOCH, value),) if kind == "need" else ()
    return Fact(kind, tenant, gpu if kind == "floor" else "", value, EPOCH, "a test", "/bin/app --lowvram", evidence)


def rows(path: Path, what: str = "samples") -> int:
    """How many rows are in a table, as another program sees it; 0 while there is no such table, or no file."""
    if not path.exists():
        return 0
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (what,)).fetchone():
            return 0
        [count] = connection.execute(f"SELECT count(*) FROM {what}").fetchone()
    finally:
        connection.close()
    return int(count)
