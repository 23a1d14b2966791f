"""Who holds a card's memory, in words. Pure."""

from collections.abc import Iterable

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.foreign_text import harmless
from gpusupervisor.models.model import Model
from gpusupervisor.quantities import format_bytes
from gpusupervisor.tenants.census import Census

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


def not_held(models: Iterable[Model], engine: str, census: Census) -> str:
    """Return that models which an engine says it holds in VRAM are not there; empty if that is not certain.

    Ollama does not notice that an idle runner of it was killed, and goes on listing its model.
    """
    presence = census.tenants.get(engine)
    if presence is None or not presence.servers or presence.holders or census.unread or not census.gpus:
        return ""
    ghosts = [harmless(each.name, 60) for each in models if each.state == "loaded" and each.held and not each.remote]
    if not ghosts:
        return ""
    more = f" and {len(ghosts) - NAMED} more" if len(ghosts) > NAMED else ""
    named = ", ".join(ghosts[:NAMED])
    return f"it lists {named}{more} as loaded, but no process of it holds VRAM: the next request loads it anew"
