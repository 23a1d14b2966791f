"""What a caller's words mean: which GPU, for whom, how much. Pure; every refusal says what to say instead."""

from gpusupervisor.arbitration.assess import cards_for
from gpusupervisor.arbitration.plan import Request
from gpusupervisor.arbitration.situation import PlanResult, Situation
from gpusupervisor.errors import (
    Deferred,
    InvalidArgument,
    NoSuchGpu,
    NoSuchTenant,
    NotReclaimable,
    ReleaseFailed,
    SupervisorError,
)
from gpusupervisor.foreign_text import harmless, unknown_name


def interpret(situation: Situation, gpu: str, tenant: str, size: int) -> Request:
    """A request for room. The situation has at least one GPU.

    gpu: UUID, or "" for the tenant's or the only one. tenant: beneficiary, or "". size: bytes, or 0 for the tenant's
    own need. Raises NoSuchTenant, NoSuchGpu, InvalidArgument.
    """
    if tenant:
        require_tenant(situation, tenant)
    beneficiary = situation.tenants.get(tenant)
    need = size or (beneficiary.need.figure if beneficiary and beneficiary.need else 0)
    if not need:
        raise InvalidArgument(
            f"The need of {tenant} is unknown: give a size in bytes, or set its needs-vram."
            if tenant
            else "Give a size in bytes, or a tenant that needs the room."
        )
    if gpu and gpu not in situation.gpus:
        raise NoSuchGpu(f"No GPU with UUID {harmless(gpu, 64)!r} can be read. {_list_gpus(situation)}")
    if not gpu and beneficiary is None and len(situation.gpus) > 1:
        raise NoSuchGpu(f"There are several GPUs: name one. {_list_gpus(situation)}")
    cards = (gpu,) if gpu else cards_for(situation, beneficiary) if beneficiary else (next(iter(situation.gpus)),)
    return Request("make-room", cards[0], tenant, need, gpus=cards)


def require_tenant(situation: Situation, tenant: str) -> None:
    """Raises NoSuchTenant, naming those there are."""
    if tenant not in situation.tenants:
        raise NoSuchTenant(unknown_name("tenant", tenant, situation.tenants))


def shortcoming(result: PlanResult) -> SupervisorError:
    """The error for a plan that did not bring what was asked."""
    outcomes = {step.outcome for step in result.steps}
    told = result.detail[:1].upper() + result.detail[1:]
    if outcomes & {"refused", "failed"}:
        return ReleaseFailed(told)
    if "pending" in outcomes:
        return Deferred(told)
    if outcomes == {"skipped"}:
        return NotReclaimable(told)
    return ReleaseFailed(told)


def _list_gpus(situation: Situation) -> str:
    return (
        "There are: "
        + ", ".join(f"{gpu.uuid} ({gpu.name.partition(' (GPU-')[0]})" for gpu in situation.gpus.values())
        + "."
    )
