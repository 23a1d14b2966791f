"""CPU time of a tenant's processes, from /proc."""

import asyncio
from pathlib import Path

from gpusupervisor.processes.procfs import Procfs
from gpusupervisor.tenants.census import TenantPresence

_PROC = Procfs(Path("/proc"))


async def cpu_time_of(presence: TenantPresence) -> int | None:
    """CPU microseconds that the tenant's VRAM holders have used, user and system; None when there are none, or
    one of them cannot be read."""
    if not presence.holders:
        return None
    return await asyncio.to_thread(_sum, presence)


def _sum(presence: TenantPresence) -> int | None:
    total = 0
    for pid, identity in {holder.pid: holder.identity for holder in presence.holders}.items():
        stat = _PROC.stat(pid)
        if stat is None or (identity is not None and stat.key != identity.key):
            return None  # it has ended; the PID may be another process now
        total += stat.cpu_time
    return total
