"""Probe `cpu`: the CPU share of the tenant's own processes."""

from gpusupervisor.tenants.activity.probes.life import CpuWatch
from gpusupervisor.tenants.activity.probes.window import Phrases, WindowProbe
from gpusupervisor.tenants.definition import ProbeSpec

PHRASES = Phrases(
    live="its processes use the CPU",
    recent="its processes used the CPU a moment ago",
    quiet="its processes have not used the CPU recently",
    cannot_tell="the CPU time of its processes is not known yet",
)


def cpu_probe(spec: ProbeSpec) -> WindowProbe:
    """threshold: percent of one core at or below which it is quiet."""
    return WindowProbe(spec.kind, CpuWatch(spec.threshold), spec.idle_after, PHRASES, wants_cpu=True)
