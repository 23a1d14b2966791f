"""Checks of tenants: none is stuck, orphaned, keeps what it was asked for, or is reloaded at once."""

from gpusupervisor.arbitration.swaps import Thrash
from gpusupervisor.arbitration.trust import Failure
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.health.facts import Facts
from gpusupervisor.quantities import format_bytes, format_duration
from gpusupervisor.state import Check


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
            checks.append(
                Check(
                    name,
                    "degraded",
                    f"{tenant.id}: a process still holds VRAM although its server is gone",
                    "its memory cannot be asked for",
                    "end the process; restarting the engine does not end it",
                )
            )
        elif failure is not None:
            checks.append(_keeps_its_memory(name, tenant.id, failure))
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


def _keeps_its_memory(name: str, tenant: str, failure: Failure) -> Check:
    stayed = format_bytes(sum(failure.stayed.values()))
    times = "once" if failure.count == 1 else f"{failure.count} times in a row"
    pause = format_duration((failure.until - failure.at) // MICROSECONDS * MICROSECONDS)
    return Check(
        name,
        "degraded",
        f"{tenant} does not give its memory back: it was asked {times}, and {stayed} stayed, as the driver measures it "
        f"({failure.answer})",
        f"no plan counts on that memory; it is not asked again within {pause} of the last request",
        f"restart {tenant} to have the memory back at once; if it happens again, see what its log says about the "
        f"request, and check the [[release]] of its definition (gpusupervisorctl cat {tenant})",
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
