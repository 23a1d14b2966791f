"""Who holds a card's memory, in words. Pure."""

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.quantities import format_bytes

NAMED = 5


def holders_on(situation: Situation, uuid: str) -> str:
    """The largest holders by name, size and what they do, in one sentence."""
    gpu = situation.gpus.get(uuid)
    if gpu is None:
        return "It is unknown who holds the memory: the GPU cannot be read at the moment."
    found = [
        (tenant.holdings.get(uuid, 0), f"{tenant.id} ({format_bytes(tenant.holdings.get(uuid, 0))}, {tenant.activity})")
        for tenant in situation.tenants_on[uuid]
    ]
    found += [
        (holder.used or 0, f"{holder.name} (pid {holder.pid}, {format_bytes(holder.used or 0)}, unmanaged)")
        for holder in gpu.unmanaged
    ]
    found.append((gpu.unattributed, f"no known process ({format_bytes(gpu.unattributed)})"))
    named = [text for size, text in sorted(found, key=lambda each: (-each[0], each[1])) if size > 0][:NAMED]
    free = f"{format_bytes(gpu.free)} are free on {gpu.name}"
    return f"{free}; the rest is held by {', '.join(named)}." if named else f"{free}."
