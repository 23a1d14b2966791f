"""Checks of the driver: it answers, every GPU can be read."""

from collections.abc import Iterable

from gpusupervisor.gpu.sample import Sample
from gpusupervisor.state import Check


def check_driver(sample: Sample) -> Check:
    """NVML and the kernel driver answer."""
    driver = sample.driver
    if driver.state == "ok":
        if driver.impact:
            return Check("driver", "degraded", driver.detail, driver.impact, driver.remedy)
        return Check("driver", "ok", f"driver {driver.version} answers")
    if driver.state in ("asleep", "starting"):
        return Check("driver", "skipped", driver.detail or f"the driver is {driver.state}")
    return Check("driver", "failed", driver.detail, driver.impact, driver.remedy)


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
                f"{gpu.identity.name} is {gpu.state}: {gpu.detail or 'the driver does not list it any more'}",
                "it is unknown who holds its memory, so nothing on it is released",
                gpu.remedy or GONE,
            )
        elif gpu.state == "asleep" and gpu.detail:
            yield Check(name, "skipped", f"{gpu.identity.name} is {gpu.detail}")
        else:
            yield Check(name, "ok", f"{gpu.identity.name} is {gpu.state}")


GONE = "check the kernel's log (journalctl -k) for Xid messages; a lost GPU needs a reboot"
"""What to do about a GPU that vanished without an error."""
