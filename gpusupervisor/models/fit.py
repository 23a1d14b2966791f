"""Which models fit: now, after a release, never, or not for who is in the way. Pure.

The ceiling of a card is what the most modest beneficiary could ever have: everything, less what the driver and the
reserve keep, the desktop, processes that nobody manages, memory that is nobody's, and what everybody else keeps
after a release.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.arbitration.plan import Request, make_plan
from gpusupervisor.arbitration.situation import ReleasePlan, Situation
from gpusupervisor.models.model import Model
from gpusupervisor.quantities import format_bytes

FitVerdict = Literal["now", "after-release", "blocked", "never", "unknown"]
NAMED = 5
"""Holders or models named in one text."""
_RANK: dict[FitVerdict, int] = {"now": 0, "after-release": 1, "blocked": 2, "never": 3, "unknown": 4}

Least = Callable[[str, str], int | None]
"""The least that a tenant has held on a GPU lately, in bytes; None when nobody has watched for long enough."""


def nothing_watched(_tenant: str, _gpu: str) -> int | None:
    """Of a telemetry that has watched nothing yet."""
    return None


@dataclass(frozen=True, slots=True)
class Taken:
    """Memory that no plan can win."""

    by: str
    """Tenant id, "name (pid N)", or in words."""
    size: int
    protected: bool = False


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a GPU can ever offer to one more model. Bytes."""

    gpu: str
    name: str
    total: int
    limit: int
    """With nobody else on it: total, less what the driver keeps and the reserve."""
    size: int
    """With everybody else at the least."""
    taken: tuple[Taken, ...]
    """Who holds the difference, the largest first."""
    shared: bool = False
    """It is the host's memory, so host programs keep part of it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether a model fits, and why or why not; no figure in it changes by itself."""

    verdict: FitVerdict
    detail: str


@dataclass(frozen=True, slots=True)
class Manners:
    """What an engine does with its own other models when it loads one."""

    replaces: bool = False
    """The new one takes their place."""
    evicts: bool = False
    """They give way when room is short."""


def ceiling_of(situation: Situation, uuid: str, least: Least = nothing_watched) -> Ceiling:
    """The ceiling of one GPU of the situation."""
    gpu = situation.gpus[uuid]
    limit = max(0, gpu.total - gpu.reserved - situation.reserve)
    taken = [Taken(f"{holder.name} (pid {holder.pid})", holder.used or 0) for holder in gpu.unmanaged]
    taken.append(Taken("no known process", gpu.unattributed))
    for tenant in situation.tenants_on[uuid]:
        held = tenant.holdings.get(uuid, 0)
        watched = least(tenant.id, uuid)
        kept = held if tenant.protected else min(held, tenant.floor(uuid))
        taken.append(Taken(tenant.id, kept if watched is None else min(watched, held), tenant.protected))
    taken = sorted((each for each in taken if each.size > 0), key=lambda each: (-each.size, each.by))
    size = max(0, limit - sum(each.size for each in taken))
    return Ceiling(uuid, gpu.name, gpu.total, limit, size, tuple(taken), gpu.shared)


def requests(situation: Situation, engine: str, gpu: str, model: Model, manners: Manners) -> tuple[Request, ...]:
    """What room to ask for so that an engine can load a model: beside its others first, then in their place.

    The model's need must be known. A need counts what the engine holds already, on every GPU.
    """
    tenant = situation.tenants[engine]
    needs = model.needs or 0
    held = sum(tenant.holdings.values())
    own = 0
    if model.state == "loaded":
        own = model.held or 0 if model.spilled else needs
    rank = tenant.working_priority  # it is idle now, and asks for room to work in
    beside = Request("make-room", gpu, engine, held - min(own, held) + needs, rank)
    instead = Request("make-room", gpu, engine, needs + min(held, tenant.floor(gpu)), rank)
    if manners.replaces:
        return (instead,)
    return (beside, instead) if manners.evicts and instead.need < beside.need else (beside,)


def best_plan(situation: Situation, engine: str, gpu: str, model: Model, manners: Manners) -> ReleasePlan:
    """The first plan for which nobody need be asked; else the first that suffices; else the last."""
    plans = [make_plan(situation, request, "") for request in requests(situation, engine, gpu, model, manners)]
    sufficient = [plan for plan in plans if plan.sufficient]
    return next((plan for plan in sufficient if not plan.steps), sufficient[0] if sufficient else plans[-1])


def fit_of(situation: Situation, engine: str, model: Model, manners: Manners, ceilings: Iterable[Ceiling]) -> Fit:
    """Whether a model of an engine fits, on the GPU where it fits best."""
    if model.remote:
        return Fit("now", "it runs on another machine and needs no VRAM here")
    if model.state in ("loaded", "loading") and not model.spilled:
        return Fit("now", f"it is {model.state}")
    if model.needs is None:
        return Fit("unknown", "how much VRAM it needs is not known")
    fits = [_fit_on(situation, engine, model, manners, ceiling) for ceiling in ceilings]
    nowhere = Fit("unknown", "no GPU can be read at the moment")
    return min(fits, key=lambda fit: _RANK[fit.verdict], default=nowhere)


def _fit_on(situation: Situation, engine: str, model: Model, manners: Manners, ceiling: Ceiling) -> Fit:
    needs = model.needs or 0
    if needs > ceiling.limit:
        return Fit("never", too_large(needs, ceiling))
    if needs > ceiling.size:
        most = f"the {format_bytes(ceiling.limit)} that {ceiling.name} has for models"
        why = f"it needs {format_bytes(needs)} of {most}, and part of that is permanently held by {_named(ceiling)}"
        return Fit("blocked", why)
    plan = best_plan(situation, engine, ceiling.gpu, model, manners)
    if plan.sufficient and not plan.steps:
        return Fit("now", f"there is room on {ceiling.name}")
    if plan.sufficient:
        return Fit("after-release", f"{', '.join(step.tenant for step in plan.steps)} would be asked on {ceiling.name}")
    if not plan.fits:
        return Fit("blocked", beside_its_own(engine, ceiling.name))
    blockers = ", ".join(f"{blocker.holder} ({blocker.reason})" for blocker in plan.blockers[:NAMED])
    return Fit("blocked", f"in the way on {ceiling.name}: {blockers}" if blockers else f"{ceiling.name} is taken")


def beside_its_own(engine: str, card: str) -> str:
    """Why a model that fits on a card cannot be loaded there now, when nobody but its own engine is in the way."""
    return f"it does not fit on {card} next to what {engine} already holds: unload one of its models first"


def too_large(needs: int, ceiling: Ceiling) -> str:
    """The arithmetic of a model that is too large for a card: nobody is to blame."""
    kept = ceiling.total - ceiling.limit
    by = "taken by host programs" if ceiling.shared else "kept by the driver"
    return (
        f"it needs {format_bytes(needs)}, and {ceiling.name} offers {format_bytes(ceiling.limit)} at most: "
        f"{format_bytes(ceiling.total)} minus {format_bytes(kept)} {by} and for the reserve"
    )


def fit_summary(ceiling: Ceiling, needs: Iterable[tuple[str, int]]) -> str:
    """One sentence that names the models that fit on the card but for who keeps part of it; empty when there are none.

    needs: names of models, with what each needs in bytes.
    """
    between = [name for name, need in needs if ceiling.size < need <= ceiling.limit]
    if not between:
        return ""
    models = "1 model fits" if len(between) == 1 else f"{len(between)} models fit"
    more = len(between) - NAMED
    named = ", ".join(between[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return (
        f"{models} within {format_bytes(ceiling.limit)} but not the {format_bytes(ceiling.size)} actually available: "
        f"{named}; the difference is held by {_named(ceiling)}"
    )


def _named(ceiling: Ceiling) -> str:
    shown = [f"{each.by} ({format_bytes(each.size)})" for each in ceiling.taken[:NAMED]]
    more = len(ceiling.taken) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
