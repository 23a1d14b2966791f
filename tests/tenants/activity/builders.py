"""Short ways to the values that probes and the tracker are given."""

from collections.abc import Mapping

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.tenants.activity.probes.base import ProbeContext
from gpusupervisor.tenants.census import Holder, TenantPresence

GPU = "GPU-1"
GIB = 1 << 30
SECOND = 1_000_000
MIDNIGHT = 1_795_910_400 * SECOND
"""2026-11-29T00:00:00Z in wall-clock microseconds, at instant 0 of the tests."""


def holder(
    pid: int = 100,
    used: int | None = GIB,
    *,
    sm: int | None = None,
    command_line: tuple[str, ...] = (),
    unit: str = "",
    user_unit: str = "",
    start_time: int = 5,
) -> Holder:
    identity = ProcessIdentity(
        ProcessKey(pid, start_time), 1, 0, "x", command_line=command_line, unit=unit, user_unit=user_unit
    )
    return Holder(GPU, pid, used, identity, "app", "test", sm)


def presence(
    endpoint: str = "", *holders: Holder, held: Mapping[str, int] | None = None, unknown: bool = False
) -> TenantPresence:
    sizes = {GPU: sum(each.used or 0 for each in holders)} if holders else {}
    return TenantPresence(
        "app",
        "app",
        endpoint,
        holders,
        sizes if held is None else held,
        frozenset({GPU}) if unknown else frozenset(),
    )


def context(
    http: EngineHttp, who: TenantPresence, now: int = 0, *, cpu: int | None = None, measured: int | None = None
) -> ProbeContext:
    return ProbeContext(now, MIDNIGHT + now, who, now if measured is None else measured, http, cpu)
