"""Pure functions from the published state to the properties of each object, by their D-Bus names."""

from collections.abc import Callable, Iterator, Sequence

from dbus_fast import Variant

from gpusupervisor.arbitration.eligibility import refusal
from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.situation import Reservation, Situation, TenantSituation
from gpusupervisor.bus.model_views import card_view, models_view
from gpusupervisor.bus.published import Values
from gpusupervisor.bus.wire import details, sentence
from gpusupervisor.engines.setting import Setting
from gpusupervisor.gpu.sample import DriverStatus, GpuSample, Sample
from gpusupervisor.health.summary import overall, summary
from gpusupervisor.state import Check, State
from gpusupervisor.tenants.activity.verdict import UNOBSERVED
from gpusupervisor.tenants.census import Census, GpuAccount, Holder

Details = dict[str, Variant]
Realtime = Callable[[int | None], int]
"""Wall-clock microseconds of an instant of the domain clock; all ones for None and for "never"."""

SMALLEST_BAND = 64 * 1024 * 1024


def starting() -> State:
    """What is shown before the first tick: nothing is known, nothing is done by itself."""
    sample = Sample(0, DriverStatus("starting"))
    situation = Situation(0, {}, {})
    return State(sample, Census({}, {}), situation, {}, {}, {}, {}, (), automatic=False, status="starting")


def dead_band(state: State) -> int:
    """Bytes that a gauge has to move by: 1 % of the smallest GPU's memory, 64 MiB at least."""
    totals = [gpu.memory.total for gpu in state.sample.gpus if gpu.memory]
    return max(SMALLEST_BAND, min(totals, default=0) // 100)


def manager_view(state: State, version: str) -> Values:
    """Properties of the root object."""
    driver = state.sample.driver
    return {
        "Version": version,
        "Automatic": state.automatic,
        "Status": state.status,
        "Driver": driver.state,
        "DriverVersion": driver.version,
        "Counters": dict(state.counters),
    }


def tenant_view(state: State, tenant: str, realtime: Realtime) -> Values:
    """Properties of one tenant; it must be one of `state.definitions`."""
    definition = state.definitions[tenant]
    return {
        "Id": tenant,
        "Title": definition.title,
        "Engine": definition.engine,
        "Priority": definition.priority,
        "IdlePriority": definition.priority_when_idle,
        "Protected": definition.protected,
        "ReleaseMethod": definition.release[0].method if definition.release else "",
        **_activity(state, tenant, realtime),
        **_holding(state, tenant),
        **_decision(state, tenant, realtime),
    }


def _activity(state: State, tenant: str, realtime: Realtime) -> Values:
    activity = state.activities.get(tenant, UNOBSERVED)
    return {
        "Activity": activity.state,
        "ActivityReason": activity.reason,
        "ActivityEvidence": activity.evidence,
        "ActivityObservedAt": realtime(activity.observed_at),
        "ActivitySince": realtime(activity.since),
        "Impact": activity.impact,
        "Remedy": activity.remedy,
    }


def _holding(state: State, tenant: str) -> Values:
    presence = state.census.tenants.get(tenant)
    if presence is None:
        return {"Holding": 0, "Holdings": {}, "HoldingsIncomplete": False, "Processes": []}
    return {
        "Holding": sum(presence.holdings.values()),
        "Holdings": dict(presence.holdings),
        "HoldingsIncomplete": bool(presence.unknown_on),
        "Processes": [process_view(holder) for holder in presence.holders],
    }


def _decision(state: State, tenant: str, realtime: Realtime) -> Values:
    situation = state.situation.tenants.get(tenant)
    assessment = state.assessments.get(tenant)
    return {
        **_need(situation.need if situation else None),
        "Floor": _floor(situation) if situation else None,
        "Reclaimable": _reclaimable(situation) if situation else 0,
        "IdleSince": realtime(situation.idle_since if situation else None),
        "Shortfall": assessment.shortfall if assessment else None,
        "Starved": bool(assessment and assessment.starved),
        "StarvedReason": assessment.reason if assessment else "not assessed yet",
    }


def _need(need: Need | None) -> Values:
    """The figure that counts, and the bound below it."""
    if need is None:
        return {"Need": None, "NeedAtLeast": 0, "NeedSource": ""}
    return {"Need": need.figure, "NeedAtLeast": need.low, "NeedSource": need.source}


def _floor(tenant: TenantSituation) -> int:
    """What it would keep on the GPUs that it is on, or on one GPU while it is on none."""
    return sum(map(tenant.floor, tenant.holdings)) if tenant.holdings else tenant.default_floor


def _reclaimable(tenant: TenantSituation) -> int:
    """What it would give back if a person asked now."""
    return sum(tenant.above_floor(gpu) for gpu in tenant.holdings if refusal(tenant, gpu) is None)


def gpu_view(state: State, gpu: GpuSample, realtime: Realtime) -> Values:
    """Properties of one GPU."""
    uuid, memory = gpu.identity.uuid, gpu.memory
    account = state.census.gpus.get(uuid, GpuAccount(uuid, {}, (), 0))
    running = state.running.get(uuid)
    return {
        "Uuid": uuid,
        "Name": gpu.identity.name,
        "PciBusId": gpu.identity.pci_bus_id,
        "State": gpu.state,
        "StateDetail": gpu.detail,
        "MemoryTotal": memory and memory.total,
        "MemoryUsed": memory and memory.used,
        "MemoryFree": memory and memory.free,
        "MemoryReserved": memory and memory.reserved,
        "MemorySource": memory.source if memory else "",
        "MemorySampledAt": realtime(gpu.sampled_at),
        "Unattributed": account.unattributed if memory else None,
        "Unmanaged": [process_view(holder) for holder in account.unmanaged],
        "AttributionProblem": gpu.attribution_problem,
        "TenantHoldings": dict(account.tenants),
        "Reservations": [_reservation(r, realtime) for r in state.situation.reservations if r.gpu == uuid],
        "Plan": running.id if running else "",
        **card_view(state.cards.get(uuid)),
    }


def process_view(holder: Holder) -> Details:
    """A process as everybody may see it: no arguments, no folders, which are its user's."""
    entry = details(
        pid=("u", holder.pid),
        name=("s", holder.identity.name if holder.identity else ""),
        gpu=("s", holder.gpu),
        used=("t", holder.used),
    )
    if holder.identity:
        entry |= details(
            executable=("s", holder.identity.program),
            unit=("s", holder.identity.unit),
            user_unit=("s", holder.identity.user_unit),
            container=("s", holder.identity.container),
            ports=("au", holder.identity.listening_ports),
        )
    if holder.tenant:
        entry |= details(recognised_by=("s", holder.why), orphan=("b", holder.orphan))
    return entry


def _reservation(reservation: Reservation, realtime: Realtime) -> Details:
    return details(
        tenant=("s", reservation.tenant),
        size=("t", reservation.size),
        expires_at=("t", realtime(reservation.expires_at)),
    )


def engine_view(state: State, engine: str) -> Values:
    """Properties of one engine; it must be one of `state.engines`."""
    status = state.engines[engine]
    return {
        "Id": engine,
        "Engine": status.engine,
        "Endpoint": status.endpoint,
        "Reachable": status.reachable,
        "Version": status.version,
        "Detail": status.detail,
        "Unit": status.unit,
        "Settings": [_setting(setting) for setting in status.settings],
        "SettingsCheckedAgainst": status.settings_checked_against,
        "SettingsProblem": status.settings_problem,
        **models_view(status),
    }


def _setting(setting: Setting) -> Details:
    return details(
        name=("s", setting.name),
        value=("s", setting.value),
        source=("s", setting.source),
        meaning=("s", setting.meaning),
        pending=("s", setting.pending),
    )


def health_view(state: State, realtime: Realtime) -> Values:
    """Properties of the health object."""
    return {
        "State": overall(state.checks),
        "Summary": summary(state.checks),
        "Checks": [check_details(check, realtime) for check in state.checks],
    }


def changed_checks(before: Sequence[Check], now: Sequence[Check], realtime: Realtime) -> Iterator[list[object]]:
    """The bodies of the signal Changed; none for the first checks there are."""
    known = {check.id: check.state for check in before}
    if not known:
        return
    for check in now:
        was = known.pop(check.id, "")
        if was != check.state:
            yield [check.id, was, check.state, check_details(check, realtime)]
    for gone, was in known.items():
        yield [gone, was, "", {}]


def check_details(check: Check, realtime: Realtime) -> Details:
    """One self-check."""
    return details(
        id=("s", check.id),
        state=("s", check.state),
        summary=("s", check.summary),
        impact=("s", sentence(check.impact)),
        remedy=("s", sentence(check.remedy)),
        since=("t", realtime(check.since)),
    )
