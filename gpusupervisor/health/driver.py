"""Checks of the driver: it answers, every GPU can be read."""

from collections.abc import Iterable

from gpusupervisor.gpu.sample import Sample
from gpusupervisor.health.surroundings import UNSEEN, DeviceAccess
from gpusupervisor.state import Check

NOT_LET_IN = frozenset({"denied", "missing", "failing"})
"""States of the driver in which it may be this process alone that cannot reach it."""


def check_driver(sample: Sample, access: DeviceAccess = UNSEEN.access) -> Check:
    """NVML and the kernel driver answer."""
    driver = sample.driver
    if driver.state == "ok":
        if driver.impact:
            return Check("driver", "degraded", driver.detail, driver.impact, driver.remedy)
        return Check("driver", "ok", f"driver {driver.version} answers")
    if driver.state in ("asleep", "starting"):
        return Check("driver", "skipped", driver.detail or f"the driver is {driver.state}")
    remedy = (driver.state in NOT_LET_IN and _way_in(access)) or driver.remedy
    return Check("driver", "failed", driver.detail, driver.impact, remedy)


def _way_in(access: DeviceAccess) -> str:
    """What to do when the driver is there and this process cannot reach it; empty when that is not so."""
    if access.refusal == "policy":
        return (
            "systemctl restart gpusupervisor: the device policy of its unit was set up before the driver was loaded, "
            "so it lacks the driver's devices"
        )
    if access.refusal == "mode":
        return f"allow the user gpusupervisor to read and write the driver's device nodes ({access.detail})"
    if access.module and not access.node:
        return "create the driver's device nodes: run nvidia-modprobe -c 0 -u, or nvidia-smi once, as root"
    return ""


def check_gpus(sample: Sample) -> Iterable[Check]:
    """Every GPU can be read."""
    if not sample.gpus:
        yield Check("gpus", "skipped", "no GPU is known")
    for gpu in sample.gpus:
        name = f"gpu-{gpu.identity.uuid}"
        if gpu.state in ("lost", "failing") and sample.driver.state != "ok":  # it is the driver, not the GPU
            summary = f"{gpu.identity.name} cannot be read: {gpu.detail}"
            yield Check(name, "failed", summary, sample.driver.impact, sample.driver.remedy)
        elif gpu.state in ("lost", "failing"):
            yield Check(
                name,
                "failed",
                f"{gpu.identity.name} is {gpu.state}: {gpu.detail}",
                "it is unknown who holds its memory, so nothing on it is released",
                "check the kernel's log (journalctl -k) for Xid messages; a lost GPU needs a reboot",
            )
        else:
            yield Check(name, "ok", f"{gpu.identity.name} is {gpu.state}")
