"""Probe `sm-utilization`: the GPU time of the tenant's own processes."""

from gpusupervisor.tenants.activity.probes.life import SmWatch
from gpusupervisor.tenants.activity.probes.window import Phrases, WindowProbe
from gpusupervisor.tenants.definition import ProbeSpec

PHRASES = Phrases(
    live="its processes compute on the GPU",
    recent="its processes computed on the GPU moments ago",
    quiet="its processes have not computed on the GPU for long",
    cannot_tell="the driver does not say how much of the GPU its processes use",
)


def sm_utilization_probe(spec: ProbeSpec) -> WindowProbe:
    """threshold: percent of SM time at or below which it is quiet."""
    return WindowProbe(spec.kind, SmWatch(spec.threshold), spec.idle_after, PHRASES)
