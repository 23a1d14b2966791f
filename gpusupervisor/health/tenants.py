"""Checks of tenants: none is stuck, orphaned, or reloaded at once."""

from collections.abc import Mapping

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.state import Check
from gpusupervisor.tenants.activity.verdict import Activity


def check_tenants(
    situation: Situation, activities: Mapping[str, Activity], reloaded: frozenset[str]
) -> tuple[Check, ...]:
    """No tenant is stuck, orphaned, or reloaded by a client as soon as it has released."""
    checks = []
    for tenant in situation.tenants.values():
        name = f"tenant-{tenant.id}"
        activity = activities.get(tenant.id)
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
        elif tenant.id in reloaded:
            checks.append(
                Check(
                    name,
                    "degraded",
                    f"{tenant.id}: a client made it reload right after a release",
                    "releasing it would only cost time, so it is left alone for ten minutes",
                    "raise its priority, or find the client that keeps asking for the model",
                )
            )
    return tuple(checks)
