"""Divides the holders of a set of cards into those that may be asked and those that are in the way. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpusupervisor.arbitration.eligibility import Objection, objection
from gpusupervisor.arbitration.situation import Blocker, GpuSituation, Situation, TenantSituation
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.tenants.strangers import StrangerKind

_STRANGERS: Mapping[StrangerKind, str] = {
    "program": "it matches no tenant: stop it, or describe it in a tenant file",
    "game": "it is a game or a program for Windows: the memory comes back when it is closed",
    "desktop": "it belongs to the desktop, which is never asked",
}


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A tenant that may be asked."""

    tenant: TenantSituation
    frees: Mapping[str, int]
    """GPU UUID to the known bytes that it should give back."""
    size: int
    """Their sum."""
    gpus: tuple[str, ...]
    """The cards on which it holds memory, of known size or not."""
    is_hidden: bool
    """It may give back more than `size`: the driver does not say how much, or it has failed to give it before."""
    doubtful: int = 0
    """Bytes that it has failed to give before."""


def divide(
    situation: Situation, gpus: Sequence[str], beneficiary: str, rank: int
) -> tuple[list[Candidate], tuple[Blocker, ...]]:
    """Return the tenants that may be asked, in order, and what is in the way, the largest first."""
    candidates: list[Candidate] = []
    blockers: list[Blocker] = []
    for tenant, cards in _holders(situation, gpus).values():
        if tenant.id == beneficiary:
            continue
        allowed, refused, against = _sort_cards(tenant, cards, situation.now, rank, beneficiary)
        if against is not None:
            blocker = _blocker(tenant, refused, against)
            if blocker is not None:
                blockers.append(blocker)
        candidate = _candidate(tenant, allowed)
        if candidate is not None:
            candidates.append(candidate)
    for gpu in gpus:
        blockers += _unmanaged(situation.gpus[gpu])
        blockers += _unexplained(situation, gpu)
    candidates.sort(key=lambda each: ranking(each.tenant))
    blockers.sort(key=lambda b: (-(b.held if b.held is not None else INFINITY), b.holder))
    return candidates, tuple(blockers)


def _holders(situation: Situation, gpus: Sequence[str]) -> dict[str, tuple[TenantSituation, list[str]]]:
    found: dict[str, tuple[TenantSituation, list[str]]] = {}
    for gpu in gpus:
        for tenant in situation.tenants_on[gpu]:
            found.setdefault(tenant.id, (tenant, []))[1].append(gpu)
    return found


def _sort_cards(
    tenant: TenantSituation, cards: Iterable[str], now: int, rank: int, beneficiary: str
) -> tuple[list[str], list[str], Objection | None]:
    """The cards on which it may be asked, those on which it may not, and why not."""
    allowed: list[str] = []
    refused: list[str] = []
    why: Objection | None = None
    for gpu in cards:
        against = objection(tenant, gpu, now, rank, beneficiary)
        (allowed if against is None else refused).append(gpu)
        why = why or against
    return allowed, refused, why


def _candidate(tenant: TenantSituation, cards: Sequence[str]) -> Candidate | None:
    frees = {gpu: size for gpu in cards if (size := tenant.above_floor(gpu))}
    size = sum(frees.values())
    doubtful = sum(tenant.in_the_way(gpu) for gpu in cards) - size
    is_hidden = doubtful >= WORTHWHILE or any(gpu in tenant.unknown_on for gpu in cards)
    if size < WORTHWHILE and not is_hidden:
        return None
    return Candidate(tenant, frees, size, tuple(cards), is_hidden, doubtful)


def _blocker(tenant: TenantSituation, cards: Sequence[str], against: Objection) -> Blocker | None:
    is_hidden = any(gpu in tenant.unknown_on for gpu in cards)
    held = sum(tenant.in_the_way(gpu) for gpu in cards)
    if held < WORTHWHILE and not is_hidden:
        return None
    return Blocker(tenant.id, against.reason, None if is_hidden else held, against.detail, against.until)


def ranking(tenant: TenantSituation) -> tuple[int, int, str]:
    """Sort key for candidates: lowest priority, then longest idle, then id."""
    return (tenant.priority, INFINITY if tenant.idle_since is None else tenant.idle_since, tenant.id)


def _unmanaged(gpu: GpuSituation) -> Iterator[Blocker]:
    for holder in gpu.unmanaged:
        if holder.used is None or holder.used >= WORTHWHILE:
            yield Blocker(f"{holder.name} (pid {holder.pid})", "unmanaged", holder.used, _STRANGERS[holder.kind])


def _unexplained(situation: Situation, uuid: str) -> Iterator[Blocker]:
    """Memory that is in use and that no living process explains. Where sizes are unknown it may be anybody's."""
    gpu = situation.gpus[uuid]
    hidden = any(uuid in tenant.unknown_on for tenant in situation.tenants_on[uuid])
    hidden = hidden or any(holder.used is None for holder in gpu.unmanaged)
    if gpu.unattributed < WORTHWHILE or hidden or gpu.attribution_problem:
        return
    pids = ", ".join(str(pid) for pid in gpu.dead_pids)
    holder = f"no living process (pid {pids})" if pids else "no known process"
    why = "the driver still lists processes that have ended" if pids else "no process that the driver lists holds it"
    yield Blocker(holder, "unattributed", gpu.unattributed, f"{why}: see gpusupervisorctl health")
