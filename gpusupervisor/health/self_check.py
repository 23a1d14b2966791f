"""Runs the self-checks: each for itself, the dear looks around seldom and in the background."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.health.checks import CHECKS, SelfCheckItem
from gpusupervisor.health.facts import Facts, Key
from gpusupervisor.health.memory import BACK, DESKTOP, MUCH
from gpusupervisor.health.remembered import figures_of, lasting, steadied, still
from gpusupervisor.health.surroundings import UNSEEN, Surroundings
from gpusupervisor.state import Check, CheckState

LOOK_EVERY = 60 * MICROSECONDS
"""Between two looks around."""
LOOK_LASTS = 30 * MICROSECONDS
"""A look around that takes longer hangs in a file system or on the bus."""
GAP = 90 * MICROSECONDS
"""Two looks are never this far apart unless the machine was suspended, and then nothing has lasted meanwhile."""
FRESH = 2 * MICROSECONDS
"""A look around that ended so lately is not repeated when somebody asks."""

LookAround = Callable[[], Awaitable[Surroundings]]
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

_LOG = logging.getLogger(__name__)


async def nothing_around() -> Surroundings:
    """For whom nobody looks around."""
    return UNSEEN


class SelfCheck:
    """Remembers what it takes to tell for how long something has been so."""

    def __init__(
        self,
        clock: Clock,
        spawn: Spawn,
        look_around: LookAround = nothing_around,
        items: Iterable[SelfCheckItem] = CHECKS,
    ) -> None:
        """spawn: starts a task that lives in the background."""
        self._clock = clock
        self._spawn = spawn
        self._look_around = look_around
        self._items = tuple(items)
        self._surroundings = UNSEEN
        self._looking: asyncio.Task[None] | None = None
        self._look_began: int | None = None
        self._look_ended: int | None = None
        self._look_problem: BaseException | None = None
        self._ran_at = 0
        self._since: Mapping[Key, int] = {}
        self._steady: Mapping[Key, int] = {}
        self._before: Mapping[str, Check] = {}
        self._defects: dict[str, str] = {}
        """By name: what the check raised, told in the journal once."""

    def run(self, found: Facts) -> tuple[Check, ...]:
        """Every check, over what this look has found; begins to look around where that is due."""
        facts = self._remember(found)
        self._look_when_due()
        checks = [check for item in self._items for check in self._run_one(item, facts)]
        checks += self._own()
        dated = tuple(self._dated(check, facts.now) for check in checks)
        self._before = {check.id: check for check in dated}
        return dated

    async def look(self) -> None:
        """Look around now and wait for it, unless that has only just been done."""
        if self._looking is None and not _is_within(FRESH, self._look_ended, self._clock.now()):
            self._begin()
        if self._looking is not None:
            await asyncio.wait({self._looking}, timeout=LOOK_LASTS / MICROSECONDS)

    def close(self) -> None:
        """End what is under way in the background."""
        if self._looking is not None:
            self._looking.cancel()

    def _remember(self, found: Facts) -> Facts:
        """With everything that is remembered filled in."""
        self._steady = steadied(self._steady, figures_of(found.census, DESKTOP))
        thresholds = {"unmanaged": MUCH, "unattributed": MUCH, "desktop": found.settings.large_desktop}
        part, of = BACK
        much = [
            key for key, size in self._steady.items() if key[0] in thresholds and size * of >= thresholds[key[0]] * part
        ]
        keys = lasting(found.sample, found.census, found.activities, self._surroundings, much)
        gap = found.now - self._ran_at
        if gap >= GAP:
            self._since = {key: instant + gap for key, instant in self._since.items()}
        self._ran_at = found.now
        self._since = still(self._since, found.now, keys)
        bad = frozenset(name for name, check in self._before.items() if check.state in ("degraded", "failed"))
        return replace(found, surroundings=self._surroundings, since=self._since, steady=self._steady, bad=bad)

    def _look_when_due(self) -> None:
        if self._looking is None and not _is_within(LOOK_EVERY, self._look_began, self._clock.now()):
            self._begin()

    def _begin(self) -> None:
        self._look_began = self._clock.now()
        self._looking = self._spawn(self._look())

    async def _look(self) -> None:
        caught = _Caught()
        try:
            with caught:
                self._surroundings = await self._look_around()
            if caught.error is not None and self._look_problem is None:
                _LOG.error("looking around for the self-checks failed", exc_info=caught.error)
            self._look_problem = caught.error
        finally:
            self._looking, self._look_ended = None, self._clock.now()

    def _run_one(self, item: SelfCheckItem, facts: Facts) -> tuple[Check, ...]:
        """What one check says; that it has a defect when it raises, whatever it raises."""
        caught = _Caught()
        found: tuple[Check, ...] = ()
        with caught:
            found = tuple(item.look(facts))
        if caught.error is None:
            self._defects.pop(item.name, None)
            return found or ((item.quiet,) if item.quiet else ())
        kind = type(caught.error).__name__
        if self._defects.get(item.name) != kind:
            self._defects[item.name] = kind
            _LOG.error("the self-check %s raised", item.name, exc_info=caught.error)
        return (
            Check(
                item.name,
                "failed",
                f"the self-check {item.name} failed because of a bug ({kind})",
                "what it looks at is not checked; nothing else is affected",
                "please report this with the traceback from journalctl -u gpusupervisor",
            ),
        )

    def _own(self) -> Iterable[Check]:
        """Whether looking around works."""
        hangs = self._looking is not None and not _is_within(LOOK_LASTS, self._look_began, self._clock.now())
        if hangs or self._look_problem is not None:
            why = "hangs" if hangs else f"failed ({type(self._look_problem).__name__})"
            yield Check(
                "surroundings",
                "failed" if self._look_problem is not None else "degraded",
                f"reading the system's state for the self-checks {why}",
                "what is known about polkit, /proc and sleeping GPUs is outdated",
                "see journalctl -u gpusupervisor, and check whether a file system or the bus hangs",
            )
        elif self._look_ended is not None:
            yield Check("surroundings", "ok", "the state of polkit, /proc and sleeping GPUs is read")
        else:
            yield Check("surroundings", "skipped", "the state of the system has not been read yet")

    def _dated(self, check: Check, now: int) -> Check:
        before = self._before.get(check.id)
        same: CheckState | None = before.state if before else None
        return replace(check, since=before.since if before and same == check.state else now)


def _is_within(span: int, instant: int | None, now: int) -> bool:
    return instant is not None and now - instant < span


class _Caught:
    """A context that keeps an error and goes on; what ends a task or the process goes through."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def __enter__(self) -> None:
        """Nothing to be had."""

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None
