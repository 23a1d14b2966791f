"""Checks of attribution: whose memory it is can be told."""

from collections.abc import Iterable

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.health.facts import Facts
from gpusupervisor.state import Check

UNSEEN_FOR = 10 * MICROSECONDS
"""A process that ends is listed by the driver for a moment longer than by the kernel."""
NAMED = 4


def check_attribution(sample: Sample) -> Iterable[Check]:
    """The driver says which process holds what, on every GPU that is read."""
    read = [gpu for gpu in sample.gpus if gpu.memory is not None]
    if not read:
        yield Check("attribution", "skipped", "no GPU can be read at the moment")
    for gpu in read:
        name, of = f"attribution-{gpu.identity.uuid}", gpu.identity.name
        if gpu.attribution_problem:
            yield Check(
                name,
                "degraded",
                f"{of}: {gpu.attribution_problem}",
                "it is unknown who holds its memory, so nothing on it is released",
                gpu.attribution_remedy or "update the NVIDIA driver",
            )
        elif gpu.attribution_gap:
            yield Check(
                name,
                "degraded",
                f"{of}: {gpu.attribution_gap}",
                "who is not listed is not known to hold memory, and is not asked to release it",
                gpu.attribution_remedy,
            )
        else:
            yield Check(name, "ok", f"the driver tells who holds memory on {of}")


def check_processes(facts: Facts) -> Check:
    """Every process that the driver lists can be seen in /proc: not hidden by its mount or by a PID namespace."""
    account = facts.census.gpus.values()
    listed = sum(len(each.unmanaged) + len(each.unattributed_holders) for each in account)
    listed += sum(len(tenant.holders) for tenant in facts.census.tenants.values())
    if not listed:
        return Check("processes", "skipped", "no process holds VRAM")
    unseen = sorted(
        {
            holder.pid
            for each in account
            for holder in each.unattributed_holders
            if facts.lasted("unseen", holder.gpu, str(holder.pid)) >= UNSEEN_FOR
        }
    )
    if not unseen:
        return Check("processes", "ok", "every process that holds VRAM is visible")
    named = ", ".join(map(str, unseen[:NAMED])) + (" and others" if len(unseen) > NAMED else "")
    why, remedy = _why_unseen(facts)
    return Check(
        "processes",
        "degraded",
        f"PID {named} holds VRAM according to the driver, but is not visible in /proc{why}",
        "it is unknown whose memory that is, and nobody can be asked for it",
        remedy,
    )


def _why_unseen(facts: Facts) -> tuple[str, str]:
    proc = facts.surroundings.proc
    if proc.own_namespace:
        return (
            ": the supervisor runs in a PID namespace of its own",
            "run the service on the host, or its container in the host's PID namespace (--pid=host)",
        )
    if proc.hides:
        return (
            f": it is mounted with hidepid={proc.hides}",
            "let the service see all processes: set ProtectProc=default in its unit, or mount /proc with gid= of a "
            "group that the user gpusupervisor belongs to",
        )
    return (
        ": it is in a PID namespace that is not the host's, or it has ended and the driver keeps its memory",
        "check nvidia-smi; memory of processes that have ended comes back when all GPU programs are stopped",
    )
