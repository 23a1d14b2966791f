"""All checks and the whole machine in one line. Pure."""

from collections.abc import Mapping

from gpusupervisor.gpu.sample import GpuSample, Sample
from gpusupervisor.state import Check, CheckState
from gpusupervisor.tenants.activity.verdict import UNOBSERVED, Activity
from gpusupervisor.tenants.census import Census

GIB = 1024**3
MENTIONED = 4
"""Tenants named per GPU."""


def status_line(
    sample: Sample,
    census: Census,
    activities: Mapping[str, Activity],
    checks: tuple[Check, ...],
    *,
    automatic: bool,
) -> str:
    """For example: RTX 4090: 13.1 of 24.0 GiB held - ollama busy 12.4, comfyui idle 0.6 - healthy."""
    parts = [_gpu(gpu, census, activities) for gpu in sample.gpus]
    if sample.driver.state != "ok":
        parts = _driver(sample)
    if not automatic:
        parts.append("observe-only")
    if sample.driver.state == "starting":
        return " - ".join(parts)  # nothing has been checked
    state = overall(checks)
    parts.append(summary(checks) if state == "ok" else f"{state}: {summary(checks)}")
    return " - ".join(parts)


_BADNESS: Mapping[CheckState, int] = {"ok": 0, "skipped": 0, "degraded": 1, "failed": 2}


def overall(checks: tuple[Check, ...]) -> CheckState:
    """As bad as the worst check; degraded before anything was checked."""
    if not checks:
        return "degraded"
    worst = max(checks, key=lambda check: _BADNESS[check.state]).state
    return worst if _BADNESS[worst] else "ok"


def summary(checks: tuple[Check, ...]) -> str:
    """In a few words: "healthy", or the worst that is wrong and how much else."""
    if not checks:
        return "nothing has been checked yet"
    wrong = sorted((c for c in checks if _BADNESS[c.state]), key=lambda c: -_BADNESS[c.state])
    if not wrong:
        return "healthy"
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return f"{wrong[0].summary}{more}"


def _driver(sample: Sample) -> list[str]:
    """In place of the GPUs; nothing when the checks say what is wrong."""
    if sample.driver.state == "asleep":
        given = [gpu for gpu in sample.gpus if gpu.detail]
        if not given:
            return ["every GPU sleeps"]
        rest = ["every other GPU sleeps"] if len(given) < len(sample.gpus) else []
        return [*(f"{short_name(gpu)}: detached" for gpu in given), *rest]
    if sample.driver.state == "starting":
        return ["starting: the driver has not answered yet"]
    return []


def _gpu(gpu: GpuSample, census: Census, activities: Mapping[str, Activity]) -> str:
    name = short_name(gpu)
    if gpu.memory is None:
        return f"{name}: {'detached' if gpu.state == 'asleep' and gpu.detail else gpu.state}"
    held = f"{name}: {gpu.memory.used / GIB:.1f} of {gpu.memory.total / GIB:.1f} GiB held"
    holders = _holders(gpu.identity.uuid, census, activities)
    return f"{held} - {', '.join(holders)}" if holders else held


def short_name(gpu: GpuSample) -> str:
    """What people call it, e.g. "RTX 4090"."""
    return gpu.identity.name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def _holders(uuid: str, census: Census, activities: Mapping[str, Activity]) -> list[str]:
    account = census.gpus.get(uuid)
    if account is None:
        return []
    tenants = sorted(account.tenants.items(), key=lambda item: -item[1])
    named = [
        f"{tenant} {activities.get(tenant, UNOBSERVED).state} {size / GIB:.1f}" for tenant, size in tenants[:MENTIONED]
    ]
    unmanaged = sum(holder.used or 0 for holder in account.unmanaged)
    if account.unmanaged:
        named.append(f"unmanaged {unmanaged / GIB:.1f}")
    return named
