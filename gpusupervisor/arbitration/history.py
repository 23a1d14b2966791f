"""What has been seen of each tenant: residency, releases, cooldowns, reloads at once.

Kept in memory for as long as the service runs; what outlives it are the learned facts.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpusupervisor.arbitration.eligibility import WORTHWHILE
from gpusupervisor.arbitration.learned import LearnedFacts, floor_source
from gpusupervisor.arbitration.situation import StepResult
from gpusupervisor.clock import MICROSECONDS

HOUR = 3600 * MICROSECONDS
RELOAD_WINDOW = 60 * MICROSECONDS
"""A tenant that has half of its memory back within this time after a release was reloaded by a client at once."""
RELOAD_COOLDOWN = 600 * MICROSECONDS
"""A tenant that was reloaded at once is left alone for this long: its client wins, and it is reported."""


@dataclass(slots=True)
class _Released:
    gpu: str
    at: int
    freed: int
    left: int
    source: str
    """What the floor was learned from."""


@dataclass(slots=True)
class TenantHistory:
    """One tenant's past."""

    resident_since: int | None = None
    asked_at: deque[int] = field(default_factory=lambda: deque(maxlen=256))
    cooldown_until: int = 0
    cooldown_reason: str = ""
    reloaded_at: int | None = None
    last_release: _Released | None = None

    def releases_within_hour(self, now: int) -> int:
        """How often it was asked within the last hour."""
        while self.asked_at and now - self.asked_at[0] > HOUR:
            self.asked_at.popleft()
        return len(self.asked_at)


class History:
    """The past of every tenant that is on the machine; tenants that vanish are forgotten, what they taught is not."""

    def __init__(self, learned: LearnedFacts | None = None) -> None:
        """learned: None begins without any."""
        self.learned = learned or LearnedFacts()
        self._tenants: dict[str, TenantHistory] = {}

    def of(self, tenant: str) -> TenantHistory:
        """The history of a tenant, empty for a new one."""
        return self._tenants.setdefault(tenant, TenantHistory())

    def keep_only(self, tenants: Iterable[str]) -> None:
        """Forget everybody else."""
        wanted = set(tenants)
        for name in [name for name in self._tenants if name not in wanted]:
            del self._tenants[name]

    def observe(self, tenant: str, holdings: Mapping[str, int], default_floor: int, now: int) -> None:
        """Note what a tenant holds now: since when it is resident, and whether it was reloaded at once."""
        past, floors = self.of(tenant), self.learned.floors(tenant)
        resident = any(size - floors.get(gpu, default_floor) >= WORTHWHILE for gpu, size in holdings.items())
        if not resident:
            past.resident_since = None
        elif past.resident_since is None:
            past.resident_since = now
        self._notice_reload(tenant, past, holdings, now)

    def asked(self, tenant: str, now: int, cooldown: int) -> None:
        """A release was requested from it."""
        past = self.of(tenant)
        past.asked_at.append(now)
        past.cooldown_until = max(past.cooldown_until, now + cooldown)
        past.cooldown_reason = "it was asked a moment ago (cooldown)"

    def released(self, tenant: str, gpu: str, result: StepResult, left: int, now: int, plan: str = "") -> None:
        """A release brought memory back and left `left` bytes: a complete one teaches the floor."""
        if result.outcome == "freed":
            source = floor_source(result.freed, plan)
            self.learned.learn_floor(tenant, gpu, left, source, now)
            self.of(tenant).last_release = _Released(gpu, now, result.freed, left, source)

    def was_reloaded(self, tenant: str, now: int) -> bool:
        """Whether a client had it reload at once after a release, not long ago."""
        at = self.of(tenant).reloaded_at
        return at is not None and now - at < RELOAD_COOLDOWN

    def _notice_reload(self, tenant: str, past: TenantHistory, holdings: Mapping[str, int], now: int) -> None:
        last = past.last_release
        if last is None:
            return
        held = holdings.get(last.gpu, 0)
        if now - last.at > RELOAD_WINDOW:
            past.last_release = None
        elif held < last.left:
            last.left = held  # the last bytes came after the verdict
            self.learned.learn_floor(tenant, last.gpu, held, last.source, now)
        elif held - last.left >= max(WORTHWHILE, last.freed // 2):
            past.last_release = None
            past.reloaded_at = now
            past.cooldown_until = now + RELOAD_COOLDOWN
            past.cooldown_reason = "a client made it reload right after its last release: it is left alone for a while"
