"""Builds the `Situation` from the measurements of one tick."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpusupervisor.arbitration.cards import cards_of, visible_cards
from gpusupervisor.arbitration.history import HOUR, Anchors, History
from gpusupervisor.arbitration.need import Evidence, Need, need_of
from gpusupervisor.arbitration.pressure import Look, is_full
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import GpuSituation, Situation, TenantSituation, UnmanagedHolder
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.gpu.sample import GpuMemory, GpuSample, Sample
from gpusupervisor.quantities import format_bytes
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity
from gpusupervisor.tenants.census import Census, Holder, TenantPresence
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.speakers import why_unproven
from gpusupervisor.tenants.strangers import kind_of

_RESTING = ("idle", "absent")
LISTING = "ollama"
"""The probe that tells where each loaded model is placed, so that no placement means that none is loaded."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The measurements of one tick. `now` is in microseconds of the domain clock."""

    now: int
    sample: Sample
    census: Census
    activities: Mapping[str, Activity]
    definitions: Mapping[str, TenantDefinition]
    """By tenant id, instances included."""
    remote: frozenset[str] = frozenset()
    """Tenants whose endpoint is not on this machine."""
    release_problems: Mapping[str, str] = field(default_factory=dict)
    """By tenant: why its release would be refused, as far as that is known before it is asked."""


def compose(
    seen: Seen, releasing: frozenset[str], history: History, reservations: ReservationBook, reserve: int
) -> Situation:
    """The Situation; notes what tenants hold in their history first.

    releasing: tenants whose memory is still expected, so that they are not asked again.
    """
    holdings = {tenant.id: tenant.holdings for tenant in seen.census.tenants.values()}
    for presence in seen.census.tenants.values():
        activity = seen.activities.get(presence.id, UNOBSERVED)
        rests = (activity.state in _RESTING or activity.says_rest) and presence.id not in releasing
        floor = seen.definitions[presence.id].floor
        history.observe(presence.id, presence.holdings, floor, seen.now, anchors_of(presence), rests=rests)
    history.keep_only(holdings)
    gpus = {
        gpu.identity.uuid: _gpu(seen, gpu, gpu.memory)
        for gpu in seen.sample.gpus
        if gpu.state == "ok" and gpu.memory is not None
    }
    bare = Situation(seen.now, gpus, {}, reserve, reservations.current(holdings, seen.now))
    tenants = {tenant.id: _tenant(seen, bare, releasing, history, tenant) for tenant in seen.census.tenants.values()}
    return Situation(seen.now, gpus, tenants, reserve, bare.reservations)


def anchors_of(presence: TenantPresence) -> Anchors:
    """The processes of a tenant that can be asked: its servers, or its holders where no server is known."""
    if presence.servers:
        return frozenset(server.key for server in presence.servers)
    return frozenset(holder.identity.key for holder in presence.holders if holder.identity is not None)


def _gpu(seen: Seen, gpu: GpuSample, memory: GpuMemory) -> GpuSituation:
    account = seen.census.gpus.get(gpu.identity.uuid)
    return GpuSituation(
        uuid=gpu.identity.uuid,
        name=gpu.identity.name,
        total=memory.total,
        free=memory.free,
        unmanaged=tuple(_unmanaged(holder, seen.definitions) for holder in account.unmanaged) if account else (),
        unattributed=account.unattributed if account else 0,
        dead_pids=tuple(sorted(holder.pid for holder in account.unattributed_holders)) if account else (),
        attribution_problem=gpu.attribution_problem,
        reserved=memory.reserved,
        shared=memory.shared,
    )


def _unmanaged(holder: Holder, definitions: Mapping[str, TenantDefinition]) -> UnmanagedHolder:
    if holder.identity is None:
        return UnmanagedHolder(holder.pid, "?", holder.used)
    kind = kind_of(holder.identity, definitions.values())
    return UnmanagedHolder(holder.pid, holder.identity.name, holder.used, kind)


def _tenant(
    seen: Seen, bare: Situation, releasing: frozenset[str], history: History, presence: TenantPresence
) -> TenantSituation:
    definition = seen.definitions[presence.id]
    activity = seen.activities.get(presence.id, UNOBSERVED)
    past, failure = history.of(presence.id), history.of(presence.id).failure
    cards = _cards(seen, bare, definition, presence)
    _watch(seen, bare, history, presence, activity, cards, is_asked=presence.id in releasing)
    idle = activity.state == "idle"
    unlisted = _unlisted(definition, activity, presence)
    stayed = presence.holdings if unlisted else failure.stayed if failure is not None else {}
    left = definition.release_budget - past.releases_within_hour(seen.now)
    return TenantSituation(
        id=presence.id,
        title=definition.title,
        priority=definition.priority_when_idle if idle else definition.priority,
        activity=activity.state,
        activity_reason=activity.reason,
        holdings=presence.holdings,
        unknown_on=presence.unknown_on,
        floors=history.learned.floors(presence.id),
        default_floor=definition.floor,
        stayed=stayed,
        need=_need(bare, definition, activity, history, presence, cards),
        cards=cards,
        pressure=history.pressure.of(presence.id),
        unproven=why_unproven(presence),
        must_rest=past.must_rest,
        less_helps=definition.less_helps,
        has_release=bool(definition.release),
        protected=definition.protected,
        pinned=activity.pinned,
        release_pinned=definition.release_pinned,
        remote=presence.id in seen.remote,
        orphan_on=frozenset(holder.gpu for holder in presence.holders if holder.orphan),
        idle_since=activity.since if idle else None,
        resident_since=past.resident_since,
        min_residency=definition.min_residency,
        idle_release_after=definition.idle_release_after,
        cooldown_until=past.cooldown_until,
        cooldown_reason=past.cooldown_reason,
        distrusted_until=failure.until if failure else 0,
        distrust=failure.reason if failure else "",
        releases_left=left,
        budget_until=past.asked_at[0] + HOUR if left <= 0 and past.asked_at else 0,
        paused_for=history.swaps.paused(presence.id, seen.now),
        release_problem=seen.release_problems.get(presence.id, "") or unlisted,
        releasing=presence.id in releasing,
        working_priority=definition.priority,
    )


def _unlisted(definition: TenantDefinition, activity: Activity, presence: TenantPresence) -> str:
    """Why there is nothing that the tenant could be asked for although it holds memory; empty when there is.

    A release that names each loaded model has nothing to name when the engine lists none.
    """
    names_models = bool(definition.release) and all(rung.for_each for rung in definition.release)
    says_where = definition.activity is not None and any(probe.kind == LISTING for probe in definition.activity.probes)
    held = sum(presence.holdings.values()) - definition.floor
    if not names_models or not says_where or not activity.answered or activity.state != "idle":
        return ""
    if activity.placement is not None or held < WORTHWHILE:
        return ""
    return f"its engine says that no model is loaded, but its processes hold {format_bytes(held)}: restart it"


def _cards(seen: Seen, bare: Situation, definition: TenantDefinition, presence: TenantPresence) -> tuple[str, ...]:
    """The cards that a tenant's need is about, the main one first."""
    if len(bare.gpus) < 2:
        return tuple(bare.gpus)
    free = {uuid: bare.available(uuid, presence.id) for uuid in bare.gpus}
    holders = (holder.identity for holder in presence.holders if holder.identity is not None)
    visible = visible_cards((*presence.servers, *holders), seen.sample.gpus)
    return cards_of(presence.holdings, free, visible, spreads=definition.spreads)


def _watch(
    seen: Seen,
    bare: Situation,
    history: History,
    presence: TenantPresence,
    activity: Activity,
    cards: tuple[str, ...],
    *,
    is_asked: bool,
) -> None:
    """Look for pressure; without a card that can be read there is nothing to look at."""
    gpus = [bare.gpus[uuid] for uuid in cards]
    if not gpus:
        return
    is_blind = bool(presence.unknown_on) or any(gpu.attribution_problem for gpu in gpus)
    look = Look(
        now=seen.now,
        measured_at=seen.sample.taken_at,
        works=activity.state == "busy",
        rests=activity.state in _RESTING,
        held=None if is_blind else sum(presence.holdings.values()),
        free=max(gpu.free for gpu in gpus),
        available=bare.room(cards, presence.id),
        is_full=all(is_full(gpu.free, gpu.total) for gpu in gpus),
        placement=activity.placement,
        out_of_memory_at=activity.out_of_memory_at,
        is_asked=is_asked or history.of(presence.id).must_rest,
    )
    history.pressure.observe(presence.id, look)


def _need(
    bare: Situation,
    definition: TenantDefinition,
    activity: Activity,
    history: History,
    presence: TenantPresence,
    cards: tuple[str, ...],
) -> Need | None:
    elsewhere = sum(size for uuid, size in presence.holdings.items() if uuid not in cards)
    usual = history.learned.get("need-usual", presence.id)
    evidence = Evidence(
        held=sum(presence.holdings.values()),
        available=bare.room(cards, presence.id),
        most=sum(bare.most(uuid) for uuid in cards) + elsewhere,
        cards=len(cards),
        written=definition.needs_vram,
        placement=activity.placement,
        offered=history.pressure.offered(presence.id),
        pressure=history.pressure.of(presence.id),
        peak=history.learned.need(presence.id),
        usual=usual.value if usual else None,
    )
    return _at_most(need_of(evidence), definition.needs_at_most)


def _at_most(need: Need | None, limit: int | None) -> Need | None:
    """The need, within what a user's unit asks for."""
    if need is None or limit is None or need.low <= limit:
        return need
    return replace(need, low=limit, high=limit, is_open=False)


def measurement(seen: Seen, tenant: str, gpu: str) -> Measurement | None:
    """One GPU as far as one tenant's release goes; None while the GPU cannot be read.

    An instance that is not in the census any more has ended: it holds nothing.
    """
    sample = next((found for found in seen.sample.gpus if found.identity.uuid == gpu), None)
    account = seen.census.gpus.get(gpu)
    if sample is None or sample.memory is None or sample.state != "ok" or account is None:
        return None
    others = {name: held for name, held in account.tenants.items() if name != tenant}
    others |= {f"pid {holder.pid}": holder.used or 0 for holder in account.unmanaged}
    presence = seen.census.tenants.get(tenant)
    holding: int | None = presence.holdings.get(gpu, 0) if presence else 0
    if sample.attribution_problem or (presence and gpu in presence.unknown_on):
        holding = None
    anchors = anchors_of(presence) if presence else frozenset()
    return Measurement(holding, sample.memory.free, others, anchors, sample.memory.shared)
