"""Assessment: is a tenant starved, and the reason for either. Pure."""

from gpusupervisor.arbitration.situation import Assessment, Situation, TenantSituation
from gpusupervisor.quantities import format_bytes


def assess(situation: Situation) -> dict[str, Assessment]:
    """The verdict on every tenant, by id."""
    return {tenant.id: assess_tenant(situation, tenant) for tenant in situation.tenants.values()}


def assess_tenant(situation: Situation, tenant: TenantSituation) -> Assessment:
    """Starved = busy, with a known need that what it holds and what is free do not cover."""
    if tenant.activity != "busy":
        return _content(tenant, "", f"not busy: {tenant.activity_reason}")
    if tenant.need is None:
        return _content(tenant, "", "busy, but its need is unknown: it is learned while it works, or set needs-vram")
    gpu = home_gpu(situation, tenant)
    if not gpu:
        return _content(tenant, "", "busy, but no GPU can be read at the moment")
    problem = situation.gpus[gpu].attribution_problem
    if problem:
        return _content(tenant, gpu, f"busy, but it is unknown how much it holds: {problem}")
    if tenant.unknown_on:
        return _content(tenant, gpu, "busy, but the driver does not tell how much some of its processes hold")
    shortfall = shortfall_of(situation, tenant, gpu, tenant.need)
    need = format_bytes(tenant.need)
    if shortfall <= 0:
        return _content(tenant, gpu, f"busy, and its need of {need} is covered by what it holds and what is free")
    return Assessment(tenant.id, True, gpu, shortfall, f"it needs {need} and {format_bytes(shortfall)} are missing")


def home_gpu(situation: Situation, tenant: TenantSituation) -> str:
    """The GPU a tenant's need is about: where it holds most, else where most is free; "" when there is none."""
    return max(
        situation.gpus,
        key=lambda uuid: (tenant.holdings.get(uuid, 0), situation.available(uuid, tenant.id), uuid),
        default="",
    )


def shortfall_of(situation: Situation, tenant: TenantSituation, gpu: str, need: int) -> int:
    """need - (holding + available), in bytes; what it holds on other GPUs counts too. Zero or less: covered.

    A tenant that holds all it needs lacks nothing, even where the reserve is undercut.
    """
    missing = need - sum(tenant.holdings.values())
    return missing if missing <= 0 else missing - situation.available(gpu, tenant.id)


def _content(tenant: TenantSituation, gpu: str, reason: str) -> Assessment:
    return Assessment(tenant.id, False, gpu, 0, reason)
