"""Probe `sm-utilization`: the GPU time of the tenant's own processes."""

from gpusupervisor.tenants.activity.probes.life import SmWatch
from gpusupervisor.tenants.activity.probes.window import Phrases, WindowProbe
from gpusupervisor.tenants.definition import ProbeSpec

PHRASES = Phrases(
    live="its processes compute on the GPU",
    recent="its processes computed on the GPU a moment ago",
    quiet="its processes have not computed on the GPU recently",
    cannot_tell="the driver does not tell how much its processes use the GPU",
)


def sm_utilization_probe(spec: ProbeSpec) -> WindowProbe:
    """threshold: percent of SM time at or below which it is quiet."""
    return WindowProbe(spec.kind, SmWatch(spec.threshold), spec.idle_after, PHRASES)
