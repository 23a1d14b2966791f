"""Checks of tenants: none is stuck, orphaned, keeps what it was asked for, or is reloaded at once."""

from gpusupervisor.arbitration.situation import TenantSituation
from gpusupervisor.arbitration.swaps import Thrash
from gpusupervisor.arbitration.trust import Failure
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.health.facts import Facts
from gpusupervisor.quantities import format_bytes, format_duration
from gpusupervisor.state import Check

MUCH = 1 << 30
"""Bytes that an idle tenant holds and cannot be asked for, from which on it is reported."""
LASTING = 60 * MICROSECONDS
"""What ends within this is no trouble."""


def check_tenants(facts: Facts) -> tuple[Check, ...]:
    """No tenant is stuck, orphaned, keeps its memory when asked, or is reloaded as soon as it has released."""
    checks = []
    for tenant in facts.situation.tenants.values():
        name = f"tenant-{tenant.id}"
        activity = facts.activities.get(tenant.id)
        failure = facts.failures.get(tenant.id)
        if activity is not None and activity.state == "stuck":
            checks.append(Check(name, "degraded", f"{tenant.id}: {activity.reason}", activity.impact, activity.remedy))
        elif tenant.orphan_on:
            checks.append(_orphaned(name, tenant, facts))
        elif failure is not None:
            checks.append(_keeps_its_memory(name, tenant, failure))
        elif tenant.release_problem and _has_rested_with_much(tenant, facts.now):
            checks.append(_cannot_be_asked(name, tenant))
        elif tenant.id in facts.reloaded:
            checks.append(
                Check(
                    name,
                    "degraded",
                    f"{tenant.id}: a client made it reload right after a release",
                    "releasing it would only cost time, so it is left alone for ten minutes",
                    "raise its priority, or find the client that keeps asking for the model",
                )
            )
    return (*checks, *(_thrashes(thrash) for thrash in facts.thrashing))


def _orphaned(name: str, tenant: TenantSituation, facts: Facts) -> Check:
    presence = facts.census.tenants.get(tenant.id)
    pids = sorted({holder.pid for holder in presence.holders if holder.orphan}) if presence else []
    named = ", ".join(f"PID {pid}" for pid in pids) or "a process"
    return Check(
        name,
        "degraded",
        f"{tenant.id}: {named} still holds VRAM although its server is gone",
        "its memory cannot be asked for",
        f"end it: kill {' '.join(map(str, pids)) or 'PID'}; restarting the engine does not end it",
    )


def _has_rested_with_much(tenant: TenantSituation, now: int) -> bool:
    rests = tenant.idle_since is not None and now - tenant.idle_since >= LASTING
    return rests and sum(map(tenant.in_the_way, tenant.holdings)) >= MUCH


def _cannot_be_asked(name: str, tenant: TenantSituation) -> Check:
    return Check(
        name,
        "degraded",
        f"{tenant.id} is idle and cannot be asked for its memory: {tenant.release_problem}",
        "nobody else can use that memory while it is idle",
        f"update or restart {tenant.title}",
    )


def _keeps_its_memory(name: str, tenant: TenantSituation, failure: Failure) -> Check:
    stayed = format_bytes(sum(failure.stayed.values()))
    times = "once" if failure.count == 1 else f"{failure.count} times in a row"
    never = "it is not asked automatically again while its processes run"
    pause = (
        f"it is not asked automatically again within {format_duration(failure.until - failure.at)} of the last request"
    )
    return Check(
        name,
        "degraded",
        f"{tenant.id} does not give its memory back: it was asked {times}, and {stayed} stayed, as the driver "
        f"measures it ({failure.answer})",
        f"no plan counts on that memory; {never if failure.until == INFINITY else pause}",
        f"restart {tenant.title} to have the memory back at once; if it happens again, see what its log says about the "
        f"request, and check the [[release]] of its definition (gpusupervisorctl cat {tenant.id})",
    )


def _thrashes(thrash: Thrash) -> Check:
    one, other = thrash.pair
    return Check(
        f"thrash-{one}-{other}",
        "degraded",
        f"{one} and {other} take the memory from each other: {thrash.swaps} times within the last ten minutes",
        "both load their models again and again instead of working",
        "use smaller models, so that both fit, or give the one that matters more a higher priority",
    )
