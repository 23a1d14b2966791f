"""The store: one thread of its own writes what the event loop hands over without ever waiting.

Samples are written in batches, events and facts soon. What cannot be written is kept and tried again with
back-off; when it becomes too much, the oldest samples go first.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpusupervisor.arbitration.learned import Fact, FactKey
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.health import StoreReplaced, TelemetryLost
from gpusupervisor.telemetry.chores import Limits, chores
from gpusupervisor.telemetry.database import Damaged, Database, Unwritable, salvage, set_aside
from gpusupervisor.telemetry.records import Point, Recalled, TelemetryEvent
from gpusupervisor.telemetry.status import StoreStatus

BATCH_INTERVAL = 10.0
"""Seconds for which samples are gathered."""
BATCH_ROWS = 1000
"""So many are written at once."""
SAMPLES_KEPT = 20_000
"""Samples that wait at most."""
EVENTS_KEPT = 5000
CHORES_EVERY = 3600.0
FIRST_CHORES_AFTER = 60.0
LATE = 60.0
"""Seconds for which one write may keep the thread."""
LOSING_FOR = 600.0
"""Seconds for which a loss is told."""
BACK_OFF = (1.0, 60.0)
"""Seconds until the next try, at first and at most."""
CLOSING_TRIES = 3
DEFECT = "what writes it has ended by a defect of gpusupervisor, and starts anew with the service"
REPLACE_AGAIN_AFTER = 3600.0
"""Seconds: a new file that is damaged sooner is kept, for it is not the file's fault."""


@dataclass(frozen=True, slots=True)
class _Change:
    key: FactKey
    fact: Fact | None
    done: "Future[None]"


@dataclass(slots=True)
class _Batch:
    """What was taken over and is not written yet."""

    points: list[Point] = field(default_factory=list)
    events: list[TelemetryEvent] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.points or self.events)


def _ends_like_it(earlier: _Change) -> "Callable[[Future[None]], None]":
    """An earlier change of the same fact ends when the one that came after it does."""

    def end(later: "Future[None]") -> None:
        if later.cancelled():
            earlier.done.cancel()
        else:
            earlier.done.set_result(None)

    return end


class Store:
    """Made by the event loop, which hands over; everything with an underscore is the thread's."""

    def __init__(
        self, path: Path, limits: Limits, recalled: Callable[[Recalled], None], batch_interval: float = BATCH_INTERVAL
    ) -> None:
        """recalled: called from the thread with what an earlier life of the service left, whenever it was read."""
        self.path = path
        self.limits = limits
        self.plans = 0
        """Number of the last plan."""
        self._status = StoreStatus("opening", str(path))
        self._recalled = recalled
        self._interval = batch_interval
        self._points: deque[Point] = deque(maxlen=SAMPLES_KEPT)
        self._events: deque[TelemetryEvent] = deque(maxlen=EVENTS_KEPT)
        self._wake: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._dropped_samples = self._dropped_events = 0
        self._closing = False
        self._suspected = False
        self._thread = threading.Thread(target=self._work, name="telemetry", daemon=True)
        self._database: Database | None = None
        self._batch = _Batch()
        self._changes: dict[FactKey, _Change] = {}
        self._known: dict[FactKey, Fact] = {}
        """The facts of the file."""
        self._chores: Iterator[None] | None = None
        self._checked = False
        self._flush_at = time.monotonic() + batch_interval
        self._chores_at = time.monotonic() + FIRST_CHORES_AFTER
        self._retry_at, self._delay = 0.0, BACK_OFF[0]
        self._attempting_since: float | None = None
        self._replaced_at: float | None = None
        self._lost_at: float | None = None
        self._told_lost = (0, 0)

    @property
    def status(self) -> StoreStatus:
        """How it is now; of the thread also what it cannot say itself: that the disk keeps it, or that it ended."""
        if self._thread.ident is not None and not self._thread.is_alive() and not self._closing:
            return replace(self._status, state="failing", detail=DEFECT)
        since = self._attempting_since
        late = since is not None and time.monotonic() - since > LATE
        return replace(self._status, late=late)

    def start(self) -> None:
        """Begin; the file is opened in the background."""
        self._thread.start()

    def put_points(self, points: Sequence[Point]) -> None:
        """Samples, the oldest first."""
        if (over := len(self._points) + len(points) - SAMPLES_KEPT) > 0:
            self._dropped_samples += over
        self._points.extend(points)
        if len(self._points) >= BATCH_ROWS:
            self._wake.put(None)

    def put_event(self, event: TelemetryEvent) -> None:
        """Something happened: written soon."""
        if len(self._events) >= EVENTS_KEPT:
            self._dropped_events += 1
        self._events.append(event)
        self._wake.put(None)

    def put_fact(self, key: FactKey, fact: Fact | None) -> "Future[None]":
        """A fact, or None to forget it; done when it is on the disk."""
        change = _Change(key, fact, Future())
        self._wake.put(change)
        return change.done

    def suspect(self) -> None:
        """A reader has met damage: read the whole file."""
        self._suspected = True
        self._wake.put(None)

    def close(self, patience: float = 5.0) -> bool:
        """Write what waits and end; blocks. Whether it ended within so many seconds."""
        self._closing = True
        self._wake.put(None)
        if self._thread.ident is not None:
            self._thread.join(patience)
        return not self._thread.is_alive()

    # The thread

    def _work(self) -> None:
        tries = CLOSING_TRIES
        while True:
            self._sleep()
            closing = self._closing
            if closing or time.monotonic() >= self._retry_at:
                self._attempting_since = time.monotonic()
                self._attempt(closing=closing)
                self._attempting_since = None
            self._tell()
            if closing:
                tries -= 1
                if not tries or not self._has_work():
                    break
        self._end()

    def _sleep(self) -> None:
        """Until something is due or wanted; takes over every change of a fact that has come meanwhile."""
        timeout = 0.0 if self._chores is not None or self._closing else self._until_due()
        with suppress(queue.Empty):
            self._take(self._wake.get(timeout=timeout) if timeout > 0 else self._wake.get_nowait())
            while True:
                self._take(self._wake.get_nowait())

    def _take(self, change: _Change | None) -> None:
        if change is None:
            return
        earlier = self._changes.pop(change.key, None)
        if earlier is not None:
            change.done.add_done_callback(_ends_like_it(earlier))
        self._changes[change.key] = change

    def _until_due(self) -> float:
        now = time.monotonic()
        if self._retry_at > now:
            return self._retry_at - now
        due = self._chores_at if self._database else now
        if not self._checked or self._events:
            return 0.0
        return max(0.0, min(due, self._flush_at) - now)

    def _attempt(self, *, closing: bool) -> None:
        try:
            database = self._open()
            self._write_facts(database)
            if closing or self._events or self._batch or self._is_due():
                self._write_batch(database)
            if not closing:
                self._keep_house(database)
        except Damaged as error:
            self._replace(str(error))
        except Unwritable as error:
            self._failed(str(error))
        else:
            self._succeeded()

    def _is_due(self) -> bool:
        return len(self._points) >= BATCH_ROWS or time.monotonic() >= self._flush_at

    def _open(self) -> Database:
        if self._database is None:
            self._database = Database(self.path)
            found = self._database.recall()
            self._take_over(found)
        return self._database

    def _take_over(self, found: Recalled) -> None:
        forgotten = {key for key, change in self._changes.items() if change.fact is None}
        facts = tuple(fact for fact in found.facts if fact.key not in forgotten)
        for fact in facts:
            self._known.setdefault(fact.key, fact)
        self.plans = max(self.plans, found.plans)
        self._recalled(Recalled(facts, found.plans))

    def _write_facts(self, database: Database) -> None:
        if not self._changes:
            return
        changes = dict(self._changes)
        database.write_facts([(key, change.fact) for key, change in changes.items()])
        self._changes.clear()
        for key, change in changes.items():
            if change.fact is None:
                self._known.pop(key, None)
            else:
                self._known[key] = change.fact
            change.done.set_result(None)

    def _write_batch(self, database: Database) -> None:
        batch = self._batch
        if not batch:
            while self._points:
                batch.points.append(self._points.popleft())
            while self._events:
                batch.events.append(self._events.popleft())
        if batch:
            database.write(batch.points, batch.events, self.plans)
        self._batch = _Batch()
        self._flush_at = time.monotonic() + self._interval

    def _keep_house(self, database: Database) -> None:
        """One short chore; the check of the whole file is the first, after the service has begun to work."""
        if not self._checked or self._suspected:
            self._suspected, self._checked = False, True
            database.check(lambda: self._closing)
        elif self._chores is not None:
            if next(self._chores, self) is self:
                self._chores = None
        elif time.monotonic() >= self._chores_at:
            self._chores_at = time.monotonic() + CHORES_EVERY
            self._chores = chores(database, self.limits, time.time_ns() // 1000)

    def _replace(self, why: str) -> None:
        """Put a damaged file aside and begin another with the facts that are known or can still be read."""
        self._drop_database()
        now = time.monotonic()
        if self._replaced_at is not None and now - self._replaced_at < REPLACE_AGAIN_AFTER:
            self._failed(f"{why}, again soon after a new file was begun")
            return
        try:
            aside = set_aside(self.path)
        except Unwritable as error:
            self._failed(f"{why}; it cannot be moved aside: {error}")
            return
        found = salvage(aside)
        self._take_over(found)
        for key, fact in self._known.items():
            self._changes.setdefault(key, _Change(key, fact, Future()))
        self._checked, self._retry_at, self._replaced_at = True, 0.0, now
        self._status = replace(self._status, set_aside=str(aside))
        carried = f"it is kept as {aside.name}, and a new one begins with {len(self._known)} learned facts"
        write(StoreReplaced(why, carried))

    def _failed(self, why: str) -> None:
        """Keep what waits, and try again later."""
        if self._database is None and not self._known:
            self._take_over(salvage(self.path))
        self._drop_database()
        self._status = replace(self._status, state="failing", detail=why)
        self._retry_at = time.monotonic() + self._delay
        self._delay = min(self._delay * 2, BACK_OFF[1])

    def _succeeded(self) -> None:
        self._status = replace(self._status, state="ok", detail="")
        self._retry_at, self._delay = 0.0, BACK_OFF[0]

    def _drop_database(self) -> None:
        self._chores = None
        if self._database is not None:
            with suppress(Damaged, Unwritable):
                self._database.close()
            self._database = None

    def _has_work(self) -> bool:
        return bool(self._changes or self._batch or self._points or self._events)

    def _tell(self) -> None:
        """Into the status: whether rows are lost."""
        now, lost = time.monotonic(), (self._dropped_samples, self._dropped_events)
        if lost != self._told_lost:
            self._told_lost, self._lost_at = lost, now
        elif self._lost_at is not None and now - self._lost_at > LOSING_FOR:
            self._lost_at = None
        self._status = replace(
            self._status,
            losing=self._lost_at is not None,
            dropped_samples=lost[0],
            dropped_events=lost[1],
        )

    def _end(self) -> None:
        self._drop_database()
        if self._has_work():
            samples, events = len(self._points) + len(self._batch.points), len(self._events) + len(self._batch.events)
            lost = f"{samples} samples, {events} events, {len(self._changes)} learned facts"
            write(TelemetryLost(self._status.detail, lost))
        for change in self._changes.values():
            change.done.cancel()
