"""ReleasePlan: who is asked, in which order, or who is in the way. A pure function of the Situation.

Candidates are ranked: lowest priority first, then longest idle, then id. They are taken in that order until they
suffice; then, from the most important down, every one that the others make unnecessary is dropped. The result is
the sufficient set that reaches least far up the ranking, so more free memory never makes a plan reach further.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusupervisor.arbitration.assess import shortfall_of
from gpusupervisor.arbitration.eligibility import ANYBODY, WORTHWHILE, Objection, objection, refusal
from gpusupervisor.arbitration.situation import (
    Blocker,
    PlanCause,
    PlanStep,
    ReleasePlan,
    Situation,
    TenantSituation,
)
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.quantities import format_bytes

NAMED = 5
"""Blockers named in a summary; the plan itself has all of them."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a plan is asked to reach."""

    cause: PlanCause
    gpu: str
    beneficiary: str
    """Tenant id; empty: a person wants room for nobody in particular."""
    need: int
    """Bytes in total for the beneficiary (what it holds counts), or that shall be free."""
    rank: int | None = None
    """The priority on whose behalf others are asked, where it is not the beneficiary's of now."""


def make_plan(situation: Situation, request: Request, plan_id: str) -> ReleasePlan:
    """The plan that covers a need, or the insufficient one that names its blockers."""
    beneficiary = situation.tenants.get(request.beneficiary)
    rank = beneficiary.priority if beneficiary else ANYBODY
    if request.rank is not None:
        rank = request.rank
    candidates, blockers = _divide(situation, request.gpu, request.beneficiary, rank)
    shortfall = max(0, _shortfall(situation, request, beneficiary))
    chosen, sufficient = _choose(candidates, request.gpu, shortfall)
    fits = _fits(situation, request, beneficiary)
    partly = not sufficient and fits and beneficiary is not None and beneficiary.less_helps
    steps = chosen if sufficient else candidates if partly else []
    plan_steps = tuple(
        PlanStep(t.id, t.above_floor(request.gpu), f"idle, priority {t.priority} below {rank}") for t in steps
    )
    reclaimable = sum(t.above_floor(request.gpu) for t in candidates)
    return ReleasePlan(
        id=plan_id,
        cause=request.cause,
        gpu=request.gpu,
        beneficiary=request.beneficiary,
        shortfall=shortfall,
        steps=plan_steps,
        blockers=blockers,
        sufficient=sufficient,
        reclaimable=reclaimable,
        summary=_summary(situation, request, shortfall, plan_steps, blockers, sufficient, reclaimable, fits),
        made_at=situation.now,
        need=request.need,
        rank=request.rank,
        fits=fits,
    )


def make_release(situation: Situation, tenant_id: str, plan_id: str, cause: PlanCause) -> ReleasePlan:
    """Ask one tenant for all it can give back on every GPU: a person's request, or because it has been idle long."""
    tenant = situation.tenants[tenant_id]
    gpus = tuple(sorted(uuid for uuid in tenant.holdings if uuid in situation.gpus))
    gpu = max(gpus, key=lambda uuid: (tenant.holdings[uuid], uuid), default="")
    against = next(
        (found for uuid in gpus if (found := _objection_to_release(tenant, uuid, situation.now, cause))),
        refusal(tenant, ""),
    )
    expected = sum(tenant.above_floor(uuid) for uuid in gpus)
    reason = "asked for" if cause == "release" else "idle for longer than its idle-release-after"
    possible = against is None and expected > 0
    if against is not None:
        summary = f"{tenant.id} cannot be released: {against.detail}."
    elif expected <= 0:
        summary = f"{tenant.id} has nothing to give back: it holds no more than its floor."
    else:
        summary = f"Ask {tenant.id} for {format_bytes(expected)} ({reason})."
    return ReleasePlan(
        id=plan_id,
        cause=cause,
        gpu=gpu,
        beneficiary="",
        shortfall=0,
        steps=(PlanStep(tenant.id, expected, reason, gpus),) if possible else (),
        blockers=(Blocker(tenant.id, against.reason, expected, against.detail),) if against else (),
        sufficient=possible,
        reclaimable=expected if possible else 0,
        summary=summary,
        made_at=situation.now,
    )


def idle_releases(situation: Situation) -> tuple[str, ...]:
    """Ids of the tenants whose idle-release-after has passed and whom nothing forbids to ask."""
    return tuple(
        tenant.id
        for tenant in sorted(situation.tenants.values(), key=_ranking)
        if tenant.idle_release_after != INFINITY
        and tenant.idle_since is not None
        and situation.now - tenant.idle_since >= tenant.idle_release_after
        and any(
            uuid in situation.gpus
            and tenant.above_floor(uuid) >= WORTHWHILE
            and objection(tenant, uuid, situation.now, ANYBODY) is None
            for uuid in tenant.holdings
        )
    )


def _objection_to_release(tenant: TenantSituation, gpu: str, now: int, cause: PlanCause) -> Objection | None:
    return refusal(tenant, gpu) if cause == "release" else objection(tenant, gpu, now, ANYBODY)


def _ranking(tenant: TenantSituation) -> tuple[int, int, str]:
    """Who is asked first: lowest priority, then longest idle, then by id."""
    return (tenant.priority, INFINITY if tenant.idle_since is None else tenant.idle_since, tenant.id)


def _divide(
    situation: Situation, gpu: str, beneficiary: str, rank: int
) -> tuple[list[TenantSituation], tuple[Blocker, ...]]:
    """Those who may be asked, in order, and those in the way, the largest first."""
    candidates: list[TenantSituation] = []
    blockers: list[Blocker] = []
    for tenant in situation.tenants_on[gpu]:
        if tenant.id == beneficiary:
            continue
        unknown_size = gpu in tenant.unknown_on
        held = tenant.above_floor(gpu)
        if held < WORTHWHILE and not unknown_size:
            continue
        against = objection(tenant, gpu, situation.now, rank)
        if against is not None:
            blockers.append(Blocker(tenant.id, against.reason, None if unknown_size else held, against.detail))
        elif held >= WORTHWHILE:
            candidates.append(tenant)
    for holder in situation.gpus[gpu].unmanaged:
        if holder.used is None or holder.used >= WORTHWHILE:
            detail = "it matches no tenant: stop it, or describe it in a tenant file"
            blockers.append(Blocker(f"{holder.name} (pid {holder.pid})", "unmanaged", holder.used, detail))
    candidates.sort(key=_ranking)
    blockers.sort(key=lambda b: (-(b.held if b.held is not None else INFINITY), b.holder))
    return candidates, tuple(blockers)


def _shortfall(situation: Situation, request: Request, beneficiary: TenantSituation | None) -> int:
    if beneficiary is not None:
        return shortfall_of(situation, beneficiary, request.gpu, request.need)
    return request.need - situation.available(request.gpu, "")


def _fits(situation: Situation, request: Request, beneficiary: TenantSituation | None) -> bool:
    elsewhere = sum(size for uuid, size in beneficiary.holdings.items() if uuid != request.gpu) if beneficiary else 0
    return request.need <= _most(situation, request.gpu) + elsewhere


def _most(situation: Situation, uuid: str) -> int:
    """Bytes that a GPU could offer with nobody on it."""
    gpu = situation.gpus[uuid]
    return gpu.total - gpu.reserved - situation.reserve


def _choose(candidates: Sequence[TenantSituation], gpu: str, shortfall: int) -> tuple[list[TenantSituation], bool]:
    """The sufficient set that reaches least far up the ranking and has no member too many; False when all do not do."""
    sizes = [tenant.above_floor(gpu) for tenant in candidates]
    taken: list[int] = []
    total = 0
    for position, size in enumerate(sizes):
        if total >= shortfall:
            break
        taken.append(position)
        total += size
    if total < shortfall:
        return [], False
    needed = set(taken)
    for position in reversed(taken):
        if total - sizes[position] >= shortfall:
            needed.discard(position)
            total -= sizes[position]
    return [candidates[position] for position in taken if position in needed], True


def _summary(
    situation: Situation,
    request: Request,
    shortfall: int,
    steps: Sequence[PlanStep],
    blockers: Sequence[Blocker],
    sufficient: bool,
    reclaimable: int,
    fits: bool,
) -> str:
    whom = f"for {request.beneficiary} " if request.beneficiary else ""
    gpu = situation.gpus[request.gpu]
    missing = format_bytes(shortfall)
    if not fits:
        most = format_bytes(_most(situation, request.gpu))
        need = format_bytes(request.need)
        return f"{need} {whom}can never fit on {gpu.name}: it offers {most} at most. Nothing is done."
    if sufficient and not steps:
        return f"Nothing needs to be released: there is room {whom}already.".replace("  ", " ")
    asked = ", ".join(f"{step.tenant} ({format_bytes(step.expected)})" for step in steps)
    if sufficient:
        return f"{missing} are missing {whom}on {gpu.name}: ask {asked}."
    names = f" {in_the_way(blockers)}."
    start = f"{missing} are missing {whom}on {gpu.name}, and {releasable(reclaimable)}."
    return f"{start} Ask {asked} all the same: less helps.{names}" if steps else f"{start} Nothing is done.{names}"


def releasable(size: int) -> str:
    """How much whoever may be asked could release, in words."""
    return f"only {format_bytes(size)} can be released" if size else "nothing can be released"


def in_the_way(blockers: Sequence[Blocker]) -> str:
    """The largest blockers by name, size and reason."""
    named = ", ".join(
        f"{b.holder} ({'size unknown' if b.held is None else format_bytes(b.held)}, {b.reason})"
        for b in blockers[:NAMED]
    )
    return f"In the way: {named}" if named else "It is unknown who holds the rest"
