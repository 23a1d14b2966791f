"""Situation: everything a decision may look at, as one immutable value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.pressure import Pressure
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.tenants.activity.verdict import ActivityState
from gpusupervisor.tenants.strangers import StrangerKind


@dataclass(frozen=True, slots=True)
class TenantSituation:
    """One tenant, as far as decisions go. Instants and durations are microseconds of the domain clock."""

    id: str
    title: str
    priority: int
    """What counts now: its `priority` while it works, its `idle-priority` while it does not."""
    activity: ActivityState
    activity_reason: str
    holdings: Mapping[str, int]
    """GPU UUID to known bytes held."""
    unknown_on: frozenset[str] = frozenset()
    """GPUs on which part of its memory has no known size."""
    floors: Mapping[str, int] = field(default_factory=dict)
    """GPU UUID to the bytes it keeps after a release; GPUs that are missing have `default_floor`."""
    default_floor: int = 0
    stayed: Mapping[str, int] = field(default_factory=dict)
    """GPU UUID to the bytes that its last release failed to bring: its floor, as long as its processes keep them."""
    need: Need | None = None
    """What it needs in total on `cards`; None when nothing is known."""
    cards: tuple[str, ...] = ()
    """The GPUs that its need is about, the main one first; empty: the one where it holds most, or most is free."""
    pressure: Pressure | None = None
    """Evidence that it lacks memory."""
    unproven: str = ""
    """Why no room is made automatically on its word, in a clause; empty when its processes and the GPU vouch for it."""
    must_rest: bool = False
    """It has been asked for its memory, and has neither rested nor given it back since: it is no beneficiary."""
    less_helps: bool = False
    has_release: bool = False
    protected: bool = False
    pinned: bool = False
    release_pinned: bool = False
    remote: bool = False
    orphan_on: frozenset[str] = frozenset()
    """GPUs on which a process of it has outlived its server."""
    idle_since: int | None = None
    resident_since: int | None = None
    """Since when it holds more than its floor; None while it does not."""
    min_residency: int = 0
    idle_release_after: int = INFINITY
    cooldown_until: int = 0
    cooldown_reason: str = ""
    distrusted_until: int = 0
    """Until when plans do not ask it because of releases that brought nothing, `INFINITY` for good; 0 when nothing is
    held against it."""
    distrust: str = ""
    """What came of those releases, in one clause."""
    releases_left: int = 1
    """Of its hourly budget."""
    budget_until: int = 0
    """When its budget allows the next release; 0 while some is left."""
    paused_for: Mapping[str, int] = field(default_factory=dict)
    """Beneficiaries for which it is not asked, with the instant until which: they have swapped memory too often."""
    release_problem: str = ""
    """Why its release would be refused, as far as that is known before it is asked."""
    releasing: bool = False
    """A release of it is under way or expected late."""
    working_priority: int = 50
    """Its `priority` while it works, whatever it does now: what counts for room in which it will work."""
    used_by: str = ""
    """What of ours works with it, e.g. a job, in a sentence for a person; empty for nothing."""

    def floor(self, gpu: str) -> int:
        """Bytes it keeps on a GPU after a release."""
        return max(self.floors.get(gpu, self.default_floor), self.stayed.get(gpu, 0))

    def above_floor(self, gpu: str) -> int:
        """Bytes it holds on a GPU beyond its floor."""
        return max(0, self.holdings.get(gpu, 0) - self.floor(gpu))

    def in_the_way(self, gpu: str) -> int:
        """Bytes it holds on a GPU beyond its learned floor: what it has just failed to give is among them."""
        return max(0, self.holdings.get(gpu, 0) - self.floors.get(gpu, self.default_floor))

    @property
    def may_claim(self) -> bool:
        """Whether room may be made for it: it is seen to work, or has just run out of memory, and is what it says."""
        ran_out = self.pressure is not None and self.pressure.kind == "out-of-memory"
        return (self.activity == "busy" or ran_out) and not self.must_rest and not self.unproven


@dataclass(frozen=True, slots=True)
class Reservation:
    """Room just made, kept for its beneficiary."""

    gpu: str
    tenant: str
    size: int
    """Bytes still kept: what was made, less what the beneficiary has grown by since."""
    expires_at: int


@dataclass(frozen=True, slots=True)
class UnmanagedHolder:
    """A process that holds VRAM and matches no tenant."""

    pid: int
    name: str
    used: int | None
    kind: StrangerKind = "program"


@dataclass(frozen=True, slots=True)
class GpuSituation:
    """One GPU that can be decided about (awake, memory known)."""

    uuid: str
    name: str
    total: int
    free: int
    unmanaged: tuple[UnmanagedHolder, ...] = ()
    unattributed: int = 0
    dead_pids: tuple[int, ...] = ()
    """PIDs that the driver lists as holders and that no living process is behind."""
    attribution_problem: str = ""
    reserved: int = 0
    """Of `total`: what driver and firmware keep for themselves; of shared memory, what host programs hold."""
    shared: bool = False
    """It is the host's memory."""


@dataclass(frozen=True)
class Situation:
    """The whole picture at one moment."""

    now: int
    gpus: Mapping[str, GpuSituation]
    tenants: Mapping[str, TenantSituation]
    reserve: int = 0
    """Bytes kept free for the desktop on every GPU."""
    reservations: tuple[Reservation, ...] = ()

    @cached_property
    def tenants_on(self) -> Mapping[str, tuple[TenantSituation, ...]]:
        """Tenants by GPU on which they hold memory, of known size or not."""
        found: dict[str, list[TenantSituation]] = {uuid: [] for uuid in self.gpus}
        for tenant in self.tenants.values():
            for uuid in {**tenant.holdings, **dict.fromkeys(tenant.unknown_on, 0)}:
                if uuid in found:
                    found[uuid].append(tenant)
        return {uuid: tuple(tenants) for uuid, tenants in found.items()}

    def kept(self, gpu: str, beneficiary: str) -> int:
        """Bytes on a GPU that are kept for others than a beneficiary."""
        return sum(r.size for r in self.reservations if r.gpu == gpu and r.tenant != beneficiary)

    def available(self, gpu: str, beneficiary: str) -> int:
        """Bytes that a beneficiary may count on: free, less reserve and what is kept for others; may be negative."""
        return self.gpus[gpu].free - self.reserve - self.kept(gpu, beneficiary)

    def room(self, gpus: Sequence[str], beneficiary: str) -> int:
        """The same over a set of cards: a card that lacks part of its reserve takes nothing from another."""
        by_card = [self.available(gpu, beneficiary) for gpu in gpus if gpu in self.gpus]
        return sum(size for size in by_card if size > 0) or max(by_card, default=0)

    def most(self, gpu: str) -> int:
        """Bytes that a GPU could offer with nobody on it: total, less what the driver and the reserve keep."""
        card = self.gpus[gpu]
        return max(0, card.total - card.reserved - self.reserve)


BlockerReason = Literal[
    "busy", "unknown", "stuck", "protected", "higher-priority", "no-release-method", "cooldown", "pinned",
    "orphan", "unmanaged", "remote", "does-not-give-back", "unattributed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Blocker:
    """Who holds memory that cannot be asked for, and why."""

    holder: str
    """Tenant id, or "name (pid N)" of an unmanaged process."""
    reason: BlockerReason
    held: int | None
    """Bytes in the way; None when the driver does not say."""
    detail: str
    """One sentence for a person."""
    until: int = 0
    """When the reason ends by itself, in microseconds of the domain clock; 0 when it does not."""


@dataclass(frozen=True, slots=True)
class PlanStep:
    """Ask one tenant for its memory."""

    tenant: str
    expected: int | None
    """Bytes that should come back on the plan's GPUs; None when the driver does not say how much it holds."""
    reason: str
    """Why this one, e.g. "idle, priority 25 below 50"."""
    gpus: tuple[str, ...] = ()
    """Where it is measured; empty = the plan's GPU only."""
    frees: Mapping[str, int] = field(default_factory=dict)
    """The same by GPU, where it is known."""


@dataclass(frozen=True, slots=True)
class Assessment:
    """Is a tenant starved, and why or why not."""

    tenant: str
    starved: bool
    gpu: str
    """The GPU that the verdict is about; empty when it is about none."""
    shortfall: int
    """Bytes that are missing; 0 when nothing is."""
    reason: str
    is_open: bool = False
    """More than `shortfall` may be missing: how much is not known."""


PlanCause = Literal["starved", "make-room", "release", "idle"]


@dataclass(frozen=True, slots=True)
class ReleasePlan:
    """What would be done, for whom, and whether it suffices. A value: made, published, logged, then executed."""

    id: str
    cause: PlanCause
    gpu: str
    beneficiary: str
    """Tenant id; empty when room is made for nobody in particular."""
    shortfall: int
    steps: tuple[PlanStep, ...]
    blockers: tuple[Blocker, ...]
    sufficient: bool
    reclaimable: int
    """Bytes that all eligible tenants together could give back."""
    summary: str
    """One or two sentences for a person: what will be done, or who is in the way."""
    made_at: int
    need: int = 0
    """Bytes the beneficiary needs in total on the GPU; 0 when the plan serves no need (release, idle)."""
    rank: int | None = None
    """On behalf of this priority, whatever the beneficiary's is now; None: of the beneficiary's."""
    fits: bool = True
    """Whether the need could ever be met on these cards (total, less what the driver and the reserve keep)."""
    gpus: tuple[str, ...] = ()
    """The cards that the need is about, the main one first; empty = `gpu` only."""
    is_open: bool = False
    """How much is missing is not known: this plan is one step, and the next look decides about another."""

    @property
    def cards(self) -> tuple[str, ...]:
        """The cards that room is made on."""
        return self.gpus or ((self.gpu,) if self.gpu else ())


StepOutcome = Literal["freed", "partial", "pending", "refused", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step really brought, as NVML measured it."""

    tenant: str
    outcome: StepOutcome
    expected: int | None
    freed: int
    """Bytes."""
    duration: int
    """Microseconds from the request to the verdict."""
    detail: str
    late: bool = False
    """Credited after the plan had ended."""
    is_conclusive: bool = True
    """Whether it was asked and measured to the end, so that what came of it says something about the tenant."""


PlanOutcome = Literal["satisfied", "insufficient", "pending", "failed", "cancelled", "nothing-to-do"]
"""pending: what was asked for comes when the tenant's work is done."""


@dataclass(frozen=True, slots=True)
class PlanResult:
    """How a plan ended."""

    plan: ReleasePlan
    outcome: PlanOutcome
    steps: tuple[StepResult, ...]
    freed: int
    """Bytes, sum over the steps."""
    available: int
    """Bytes free for the beneficiary when it ended (reserve and others' reservations apart)."""
    duration: int
    detail: str
