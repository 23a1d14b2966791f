"""ReleasePlan: which tenants are asked, in which order, or what is in the way. A pure function of the Situation.

Candidates are ranked: lowest priority first, then longest idle, then id. They are taken in that order until they
suffice; then, from the most important down, every one that the others make unnecessary is dropped. The result is
the sufficient set that reaches least far up the ranking, so more free memory never makes a plan reach further.
A candidate that may give an unknown amount (the driver does not say what it holds, or it has failed to give it before)
is asked only where the others do not suffice, and it could hold the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpusupervisor.arbitration.assess import shortfall_of
from gpusupervisor.arbitration.eligibility import ANYBODY, idle_objection, refusal
from gpusupervisor.arbitration.holders import Candidate, divide
from gpusupervisor.arbitration.plan_text import Findings, summary_of
from gpusupervisor.arbitration.situation import (
    Blocker,
    PlanCause,
    PlanStep,
    ReleasePlan,
    Situation,
    TenantSituation,
)
from gpusupervisor.arbitration.worthwhile import WORTHWHILE
from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.quantities import format_bytes


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
    gpus: tuple[str, ...] = ()
    """The set of cards on which room helps, `gpu` first; empty = `gpu` only."""
    is_open: bool = False
    """More than `need` may be needed."""

    @property
    def cards(self) -> tuple[str, ...]:
        """The cards on which room helps."""
        return self.gpus or (self.gpu,)


def make_plan(situation: Situation, request: Request, plan_id: str) -> ReleasePlan:
    """The plan that covers a need, or the insufficient one that names its blockers; none where it never fits."""
    beneficiary = situation.tenants.get(request.beneficiary)
    rank = rank_of(request, beneficiary)
    cards = request.cards
    candidates, blockers = divide(situation, cards, request.beneficiary, rank)
    shortfall = max(0, _shortfall(situation, request, beneficiary))
    chosen, sufficient = _choose(candidates, shortfall, _hidden(situation, candidates, cards))
    fits = _fits(situation, request, beneficiary)
    partly = not sufficient and fits and beneficiary is not None and beneficiary.less_helps
    steps = tuple(_step(each, rank) for each in (chosen if sufficient else candidates if partly else ()))
    reclaimable = sum(each.size for each in candidates if each.size >= WORTHWHILE)
    found = Findings(shortfall, steps, blockers, reclaimable, sufficient=sufficient, fits=fits)
    return ReleasePlan(
        id=plan_id,
        cause=request.cause,
        gpu=request.gpu,
        beneficiary=request.beneficiary,
        shortfall=shortfall,
        steps=steps,
        blockers=blockers if fits else (),
        sufficient=sufficient,
        reclaimable=reclaimable,
        summary=summary_of(situation, beneficiary, request.need, cards, found),
        made_at=situation.now,
        need=request.need,
        rank=request.rank,
        fits=fits,
        gpus=cards,
        is_open=request.is_open,
    )


def rank_of(request: Request | ReleasePlan, beneficiary: TenantSituation | None) -> int:
    """The priority on whose behalf others are asked: of a starved tenant the one it works with."""
    if request.rank is not None:
        return request.rank
    if beneficiary is None:
        return ANYBODY
    return beneficiary.working_priority if request.cause == "starved" else beneficiary.priority


def make_release(situation: Situation, tenant_id: str, plan_id: str, cause: PlanCause) -> ReleasePlan:
    """Ask one tenant for all it can give back on every GPU: a person's request, or because it has been idle long.

    A person may ask again for what has just failed to come.
    """
    tenant = situation.tenants[tenant_id]
    gpus = tuple(sorted(uuid for uuid in {*tenant.holdings, *tenant.unknown_on} if uuid in situation.gpus))
    gpu = max(gpus, key=lambda uuid: (tenant.holdings.get(uuid, 0), uuid), default="")
    if cause == "release":
        against = next((found for uuid in gpus if (found := refusal(tenant, uuid))), refusal(tenant, ""))
    else:
        against = next((found for uuid in gpus if (found := idle_objection(tenant, uuid, situation.now))), None)
    frees = {uuid: tenant.in_the_way(uuid) if cause == "release" else tenant.above_floor(uuid) for uuid in gpus}
    expected = sum(frees.values())
    is_hidden = bool(tenant.unknown_on) and expected < WORTHWHILE
    if tenant.activity == "stirring" and expected <= 0 and not is_hidden:
        against = None  # memory that it has just given back still shows as life: there is nothing left to ask for
    reason = "asked for" if cause == "release" else "idle for longer than its idle-release-after"
    possible = against is None and (expected > 0 or is_hidden)
    if against is not None:
        summary = f"{tenant.id} cannot be released: {against.detail}."
    elif not possible:
        summary = f"{tenant.id} has nothing to give back: it holds no more than its floor."
    else:
        size = "what it holds, whose size the driver does not tell" if is_hidden else format_bytes(expected)
        summary = f"Ask {tenant.id} for {size} ({reason})."
    step = PlanStep(tenant.id, None if is_hidden else expected, reason, gpus, frees)
    return ReleasePlan(
        id=plan_id,
        cause=cause,
        gpu=gpu,
        beneficiary="",
        shortfall=0,
        steps=(step,) if possible else (),
        blockers=(Blocker(tenant.id, against.reason, expected, against.detail, against.until),) if against else (),
        sufficient=possible,
        reclaimable=expected if possible else 0,
        summary=summary,
        made_at=situation.now,
    )


def idle_releases(situation: Situation) -> tuple[str, ...]:
    """Ids of the tenants whose idle-release-after has passed and whom nothing forbids to ask."""
    return tuple(
        tenant.id
        for tenant in sorted(
            situation.tenants.values(), key=lambda each: (each.priority, each.idle_since or 0, each.id)
        )
        if tenant.idle_release_after != INFINITY
        and tenant.idle_since is not None
        and situation.now - tenant.idle_since >= tenant.idle_release_after
        and any(
            uuid in situation.gpus
            and tenant.above_floor(uuid) >= WORTHWHILE
            and idle_objection(tenant, uuid, situation.now) is None
            for uuid in tenant.holdings
        )
    )


def _step(candidate: Candidate, rank: int) -> PlanStep:
    tenant = candidate.tenant
    expected = None if candidate.is_hidden and candidate.size < WORTHWHILE else candidate.size
    reason = f"idle, priority {tenant.priority} below {rank}"
    if candidate.doubtful:
        reason += "; it did not give its memory back before"
    return PlanStep(tenant.id, expected, reason, candidate.gpus, candidate.frees)


def _shortfall(situation: Situation, request: Request, beneficiary: TenantSituation | None) -> int:
    if beneficiary is not None:
        return shortfall_of(situation, beneficiary, request.cards, request.need)
    return request.need - situation.room(request.cards, "")


def _fits(situation: Situation, request: Request, beneficiary: TenantSituation | None) -> bool:
    cards = request.cards
    held = beneficiary.holdings.items() if beneficiary else ()
    elsewhere = sum(size for uuid, size in held if uuid not in cards)
    return request.need <= sum(situation.most(uuid) for uuid in cards) + elsewhere


def _hidden(situation: Situation, candidates: Sequence[Candidate], cards: Sequence[str]) -> int:
    """Bytes that may come beyond what is promised: what no known holding explains, and what failed to come before."""
    return sum(situation.gpus[gpu].unattributed for gpu in cards) + sum(each.doubtful for each in candidates)


def _choose(candidates: Sequence[Candidate], shortfall: int, hidden: int) -> tuple[list[Candidate], bool]:
    """The sufficient set that reaches least far up the ranking and has no member too many; False when all do not do."""
    known = [each for each in candidates if each.size >= WORTHWHILE]
    taken: list[Candidate] = []
    total = 0
    for candidate in known:
        if total >= shortfall:
            break
        taken.append(candidate)
        total += candidate.size
    if total < shortfall:
        is_possible = any(each.is_hidden for each in candidates) and total + hidden >= shortfall
        return (list(candidates), True) if is_possible else ([], False)
    needed = list(taken)
    for candidate in reversed(taken):
        if total - candidate.size >= shortfall:
            needed.remove(candidate)
            total -= candidate.size
    return needed, True
