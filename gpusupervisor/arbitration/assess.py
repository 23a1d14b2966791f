"""Assessment: is a tenant starved, and the reason for either. Pure."""

from collections.abc import Sequence

from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.situation import Assessment, Situation, TenantSituation
from gpusupervisor.quantities import format_bytes

BLIND = frozenset({"spilled", "out-of-memory"})
"""Sources of a need that stand where the driver does not say how much a tenant holds: the engine itself says so."""


def assess(situation: Situation) -> dict[str, Assessment]:
    """The verdict on every tenant, by id."""
    return {tenant.id: assess_tenant(situation, tenant) for tenant in situation.tenants.values()}


def assess_tenant(situation: Situation, tenant: TenantSituation) -> Assessment:
    """Starved = seen to work, or to have just run out of memory, and to lack some of what it needs."""
    if tenant.unproven and (tenant.activity == "busy" or tenant.pressure is not None):
        return _content(tenant, "", f"busy, but {tenant.unproven}")
    if not tenant.may_claim:
        rests = f"not busy: {tenant.activity_reason}"
        asked = "it has just been asked for its memory: it is no beneficiary before it has rested"
        return _content(tenant, "", asked if tenant.must_rest and tenant.activity != "idle" else rests)
    cards = cards_for(situation, tenant)
    if not cards:
        return _content(tenant, "", "busy, but no GPU can be read at the moment")
    need = tenant.need
    if need is None:
        return _content(tenant, cards[0], "busy, and nothing shows that it lacks memory: it has not filled the card")
    problem = next((text for gpu in cards if (text := situation.gpus[gpu].attribution_problem)), "")
    if problem:
        return _content(tenant, cards[0], f"busy, but it is unknown how much it holds: {problem}")
    if tenant.unknown_on and need.source not in BLIND:
        why = "busy, but the driver does not tell how much some of its processes hold"
        return _content(tenant, cards[0], why)
    shortfall = shortfall_of(situation, tenant, cards, need.low)
    if shortfall <= 0:
        return _content(tenant, cards[0], _enough(need))
    reason = _lacking(situation, tenant, cards, need, shortfall)
    return Assessment(tenant.id, True, cards[0], shortfall, reason, need.is_open)


def cards_for(situation: Situation, tenant: TenantSituation) -> tuple[str, ...]:
    """The GPUs that a tenant's need is about, the main one first; empty when none of them can be read."""
    known = tuple(gpu for gpu in tenant.cards if gpu in situation.gpus)
    if known or not situation.gpus:
        return known
    return (home_gpu(situation, tenant),)


def home_gpu(situation: Situation, tenant: TenantSituation) -> str:
    """The GPU on which a tenant holds most, else the one where most is free; "" when there is none."""
    return max(
        situation.gpus,
        key=lambda uuid: (tenant.holdings.get(uuid, 0), situation.available(uuid, tenant.id), uuid),
        default="",
    )


def shortfall_of(situation: Situation, tenant: TenantSituation, gpus: Sequence[str], need: int) -> int:
    """need - (holding + available), in bytes; what it holds on other GPUs counts too. Zero or less: covered.

    gpus: the cards on which room would help. A tenant that holds all it needs lacks nothing, even where the reserve
    is undercut.
    """
    missing = need - sum(tenant.holdings.values())
    return missing if missing <= 0 else missing - situation.room(gpus, tenant.id)


def arithmetic(situation: Situation, tenant: TenantSituation | None, gpus: Sequence[str]) -> str:
    """What a shortfall is made of besides the need, in words: what is held, free, and kept of that."""
    known = [gpu for gpu in gpus if gpu in situation.gpus]
    free = sum(situation.gpus[gpu].free for gpu in known)
    kept = sum(situation.kept(gpu, tenant.id if tenant else "") for gpu in known)
    parts = [f"it holds {format_bytes(sum(tenant.holdings.values()))}"] if tenant else []
    spared = [f"{format_bytes(situation.reserve * len(known))} are the reserve"] if situation.reserve else []
    spared += [f"{format_bytes(kept)} are kept for others"] if kept else []
    of = f", of which {' and '.join(spared)}" if spared and free else ""
    owed = f", and {' and '.join(spared)}" if spared and not free else ""
    return ", ".join([*parts, f"{format_bytes(free)} are free{of}{owed}"])


def _enough(need: Need) -> str:
    size = format_bytes(need.figure)
    if need.source == "placed":
        return "busy, and lacks no VRAM: its models are placed, or left room that they could have had"
    if need.source == "learned" and need.low < need.figure:
        return f"busy, and nothing shows that it lacks memory; it has needed {size} at most"
    return f"busy, and its need of {size} is covered by what it holds and what is free"


def _lacking(situation: Situation, tenant: TenantSituation, cards: Sequence[str], need: Need, shortfall: int) -> str:
    missing, pressure = format_bytes(shortfall), tenant.pressure
    sums = arithmetic(situation, tenant, cards)
    if need.source == "out-of-memory" and pressure is not None:
        word = "its engine says that it ran out of memory" if pressure.said else "it ran out of memory"
        grown = f" after it had grown by {format_bytes(pressure.grown)}" if pressure.grown else ""
        return f"{word}{grown}; {sums}: at least {missing} are missing"
    if need.is_open:
        grown = format_bytes(pressure.grown) if pressure else "some"
        lacks = f"more is missing, at least {missing}"
        return f"it has grown by {grown} until the card was full, and works on; {sums}: {lacks}"
    what = "part of it spilled into system memory, and it" if need.source == "spilled" else "it"
    return f"{what} needs {format_bytes(need.low)}; {sums}: {missing} are missing"


def _content(tenant: TenantSituation, gpu: str, reason: str) -> Assessment:
    return Assessment(tenant.id, False, gpu, 0, reason)
