"""From what was seen to the Situation that decisions look at."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpusupervisor.arbitration.history import History
from gpusupervisor.arbitration.reservations import ReservationBook
from gpusupervisor.arbitration.situation import GpuSituation, Situation, TenantSituation, UnmanagedHolder
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.gpu.sample import GpuMemory, GpuSample, Sample
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity
from gpusupervisor.tenants.census import Census, Holder, TenantPresence
from gpusupervisor.tenants.definition import TenantDefinition


@dataclass(frozen=True, slots=True)
class Seen:
    """What one tick has seen."""

    now: int
    sample: Sample
    census: Census
    activities: Mapping[str, Activity]
    definitions: Mapping[str, TenantDefinition]
    """By tenant id, instances included."""
    remote: frozenset[str] = frozenset()
    """Tenants whose endpoint is not on this machine."""


def compose(
    seen: Seen, releasing: frozenset[str], history: History, reservations: ReservationBook, reserve: int
) -> Situation:
    """The Situation; notes what tenants hold in their history first.

    releasing: tenants whose memory is still expected, so that they are not asked again.
    """
    holdings = {tenant.id: tenant.holdings for tenant in seen.census.tenants.values()}
    for tenant_id, held in holdings.items():
        history.observe(tenant_id, held, seen.definitions[tenant_id].floor, seen.now)
    history.keep_only(holdings)
    gpus = {
        gpu.identity.uuid: _gpu(seen.census, gpu, gpu.memory)
        for gpu in seen.sample.gpus
        if gpu.state == "ok" and gpu.memory is not None
    }
    ceiling = max((gpu.total - reserve for gpu in gpus.values()), default=0)
    return Situation(
        now=seen.now,
        gpus=gpus,
        tenants={
            tenant.id: _tenant(seen, releasing, history, tenant, ceiling) for tenant in seen.census.tenants.values()
        },
        reserve=reserve,
        reservations=reservations.current(holdings, seen.now),
    )


def _gpu(census: Census, gpu: GpuSample, memory: GpuMemory) -> GpuSituation:
    account = census.gpus.get(gpu.identity.uuid)
    return GpuSituation(
        uuid=gpu.identity.uuid,
        name=gpu.identity.name,
        total=memory.total,
        free=memory.free,
        unmanaged=tuple(_unmanaged(holder) for holder in account.unmanaged) if account else (),
        unattributed=account.unattributed if account else 0,
        attribution_problem=gpu.attribution_problem,
        reserved=memory.reserved,
        shared=memory.shared,
    )


def _unmanaged(holder: Holder) -> UnmanagedHolder:
    return UnmanagedHolder(holder.pid, holder.identity.name if holder.identity else "?", holder.used)


def _tenant(
    seen: Seen, releasing: frozenset[str], history: History, presence: TenantPresence, ceiling: int
) -> TenantSituation:
    definition = seen.definitions[presence.id]
    activity = seen.activities.get(presence.id, UNOBSERVED)
    past = history.of(presence.id)
    need, need_source = _need(definition, activity, history.learned.need(presence.id), ceiling)
    idle = activity.state == "idle"
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
        need=need,
        need_source=need_source,
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
        releases_left=definition.release_budget - past.releases_within_hour(seen.now),
        releasing=presence.id in releasing,
        working_priority=definition.priority,
    )


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
    return Measurement(holding, sample.memory.free, others, sample.memory.shared)


def _need(
    definition: TenantDefinition, activity: Activity, learned: int | None, ceiling: int
) -> tuple[int | None, str]:
    """What a person says counts before what the engine says, and that before what was seen of the tenant.

    ceiling: what the largest GPU has beside the reserve. A tenant that once grew into all of an empty card does not
    need more than can ever be given to it.
    """
    if definition.needs_vram is not None:
        return definition.needs_vram, "needs-vram"
    if activity.need is not None:
        return activity.need, "reported by the engine"
    if learned is not None:
        return (min(learned, ceiling) if ceiling > 0 else learned), "learned"
    return None, ""
