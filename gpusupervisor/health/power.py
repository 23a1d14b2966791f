"""Check of a GPU that could sleep and does not."""

from collections.abc import Iterable

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.foreign_text import harmless
from gpusupervisor.gpu.power import DevicePower
from gpusupervisor.health.facts import Facts
from gpusupervisor.state import Check

AWAKE_FOR = 15 * 60 * MICROSECONDS
"""The supervisor itself looks again every few minutes; what keeps a GPU awake for longer is somebody else."""
NAMED = 4


def check_sleep(facts: Facts) -> Iterable[Check]:
    """A GPU under runtime power management on which nobody holds memory falls asleep."""
    for device in facts.surroundings.power:
        if device.managed:
            yield _of(facts, device)


def _of(facts: Facts, device: DevicePower) -> Check:
    name, pci = f"sleep-{device.pci_bus_id}", device.pci_bus_id
    if device.asleep:
        return Check(name, "ok", f"the GPU at {pci} is asleep")
    if facts.lasted("awake", pci) < AWAKE_FOR:
        return Check(name, "ok", f"the GPU at {pci} is or was recently in use")
    seen = [f"{harmless(each.name, 32)} (PID {each.pid})" for each in facts.surroundings.open_by[:NAMED]]
    who = f"; these have a GPU open: {', '.join(seen)}" if seen else ""
    return Check(
        name,
        "degraded",
        f"the GPU at {pci} could sleep, as nobody holds memory on it, but it stays awake{who}",
        "on a laptop that costs several watts, and hours of battery",
        "find out who has it open with sudo fuser -v /dev/nvidia*; usually it is a monitoring program that asks the "
        "driver every few seconds (nvtop, desktop applets, nvidia-smi -l)",
    )
