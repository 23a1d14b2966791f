"""CPU time of a tenant's processes, from /proc."""

import asyncio
import os
from pathlib import Path

from gpusupervisor.tenants.census import TenantPresence

_TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")


async def cpu_time_of(presence: TenantPresence) -> int | None:
    """CPU microseconds that the tenant's VRAM holders have used, user and system; None when there are none, or
    one of them cannot be read."""
    if not presence.holders:
        return None
    return await asyncio.to_thread(_sum, presence, Path("/proc"))


def _sum(presence: TenantPresence, proc: Path) -> int | None:
    total = 0
    start_times = {
        holder.pid: holder.identity.key.start_time if holder.identity else None for holder in presence.holders
    }
    for pid, start_time in start_times.items():
        try:
            # The name in parentheses may contain anything, so fields are counted from the last one.
            fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            if start_time is not None and int(fields[19]) != start_time:
                return None  # the PID is another process now
            total += int(fields[11]) + int(fields[12])
        except (OSError, IndexError, ValueError):
            return None
    return total * _TICK
