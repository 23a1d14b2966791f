"""What has been seen of each tenant: residency, releases and what they taught, pauses, reloads at once.

Kept in memory for as long as the service runs; what outlives it are the learned facts.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpusupervisor.arbitration.counters import Counters
from gpusupervisor.arbitration.learned import LearnedFacts, floor_source
from gpusupervisor.arbitration.pressure import PressureWatch
from gpusupervisor.arbitration.situation import StepResult
from gpusupervisor.arbitration.swaps import SwapBook
from gpusupervisor.arbitration.trust import Failure, failed, still_holds
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.processes.identity import ProcessKey

HOUR = 3600 * MICROSECONDS
RELOAD_WINDOW = 60 * MICROSECONDS
"""A tenant that has half of its memory back within this time after a release was reloaded by a client at once."""
RELOAD_COOLDOWN = 600 * MICROSECONDS
"""A tenant that was reloaded at once is left alone for this long: its client wins, and it is reported."""

Anchors = frozenset[ProcessKey]
"""The processes of a tenant that can be asked: its servers, or its holders where no server is known."""


@dataclass(slots=True)
class _Released:
    gpu: str
    at: int
    freed: int
    left: int
    source: str
    """What the floor was learned from."""
    anchors: Anchors


@dataclass(slots=True)
class TenantHistory:
    """One tenant's past."""

    anchors: Anchors = frozenset()
    """At the last look."""
    resident_since: int | None = None
    asked_at: deque[int] = field(default_factory=lambda: deque(maxlen=256))
    must_rest: bool = False
    """It has been asked, and has neither rested nor given its memory back since."""
    cooldown_until: int = 0
    cooldown_reason: str = ""
    reloaded_at: int | None = None
    last_release: _Released | None = None
    failure: Failure | None = None
    """What its last releases failed to bring."""

    def releases_within_hour(self, now: int) -> int:
        """How often it was asked within the last hour."""
        while self.asked_at and now - self.asked_at[0] > HOUR:
            self.asked_at.popleft()
        return len(self.asked_at)


class History:
    """The past of every tenant that is on the machine; tenants that vanish are forgotten, what they taught is not."""

    def __init__(self, learned: LearnedFacts | None = None, counters: Counters | None = None) -> None:
        """learned: None begins without any."""
        self.learned = learned or LearnedFacts()
        self.pressure = PressureWatch()
        self.swaps = SwapBook()
        self._counters = counters or Counters()
        self._tenants: dict[str, TenantHistory] = {}

    def of(self, tenant: str) -> TenantHistory:
        """The history of a tenant, empty for a new one."""
        return self._tenants.setdefault(tenant, TenantHistory())

    def keep_only(self, tenants: Iterable[str]) -> None:
        """Forget everybody else."""
        wanted = set(tenants)
        for name in [name for name in self._tenants if name not in wanted]:
            del self._tenants[name]
        self.pressure.keep_only(wanted)

    def observe(
        self,
        tenant: str,
        holdings: Mapping[str, int],
        default_floor: int,
        now: int,
        anchors: Anchors = frozenset(),
        *,
        rests: bool = False,
    ) -> None:
        """Note what a tenant holds now: since when it is resident, and whether it was reloaded at once.

        rests: whether it is idle or absent, or its engine says that nothing runs, and no release of it is under way.
        """
        past, floors = self.of(tenant), self.learned.floors(tenant)
        past.anchors = anchors
        past.must_rest &= not rests
        resident = any(size - floors.get(gpu, default_floor) >= WORTHWHILE for gpu, size in holdings.items())
        if not resident:
            past.resident_since = None
        elif past.resident_since is None:
            past.resident_since = now
        if past.failure is not None and not still_holds(past.failure, holdings, anchors):
            past.failure = None
        self._notice_reload(tenant, past, holdings, now)

    def asked(self, tenant: str, now: int, cooldown: int) -> None:
        """A release was requested from it."""
        past = self.of(tenant)
        past.asked_at.append(now)
        past.must_rest = True
        past.cooldown_until = max(past.cooldown_until, now + cooldown)
        past.cooldown_reason = "it was asked a moment ago (cooldown)"

    def released(self, tenant: str, gpu: str, result: StepResult, left: int, now: int, plan: str = "") -> None:
        """A release brought memory back and left `left` bytes: a complete one teaches the floor."""
        if result.outcome == "freed":
            source = floor_source(result.freed, plan)
            self._learn_floor(tenant, gpu, left, source, now)
            past = self.of(tenant)
            past.last_release = _Released(gpu, now, result.freed, left, source, past.anchors)

    def judged(self, result: StepResult, left: Mapping[str, int], now: int, plan: str) -> None:
        """A release has its outcome. left: GPU UUID to the bytes that stayed, where that was measured."""
        past = self.of(result.tenant)
        past.must_rest &= result.outcome != "freed"  # what it does after that, it has begun anew
        before = past.failure
        past.failure = failed(before, result, left, past.anchors, now, plan)
        if past.failure is not None and past.failure is not before:
            self._counters.count("learned-up")

    def failures(self) -> Mapping[str, Failure]:
        """By tenant: what its last releases failed to bring."""
        return {name: past.failure for name, past in self._tenants.items() if past.failure is not None}

    def used(self, tenant: str) -> None:
        """Something of ours works with it: what it takes from now on, no client had it reload."""
        self.of(tenant).last_release = None

    def was_reloaded(self, tenant: str, now: int) -> bool:
        """Whether a client had it reload at once after a release, not long ago."""
        at = self.of(tenant).reloaded_at
        return at is not None and now - at < RELOAD_COOLDOWN

    def _learn_floor(self, tenant: str, gpu: str, left: int, source: str, now: int) -> None:
        known = self.learned.get("floor", tenant, gpu)
        if known is None or known.value != left:
            self._counters.count("learned-down" if known is not None and left < known.value else "learned-up")
        self.learned.learn_floor(tenant, gpu, left, source, now)

    def _notice_reload(self, tenant: str, past: TenantHistory, holdings: Mapping[str, int], now: int) -> None:
        last = past.last_release
        if last is None:
            return
        held = holdings.get(last.gpu, 0)
        is_another = bool(last.anchors and past.anchors) and not last.anchors & past.anchors
        if now - last.at > RELOAD_WINDOW or is_another:  # a new process has loaded for itself: nothing was reloaded
            past.last_release = None
        elif held < last.left:
            last.left = held  # the release went on after it was verified
            self._learn_floor(tenant, last.gpu, held, last.source, now)
        elif held - last.left >= max(WORTHWHILE, last.freed // 2):
            past.last_release = None
            past.reloaded_at = now
            past.cooldown_until = now + RELOAD_COOLDOWN
            past.cooldown_reason = "a client made it reload right after its last release"
