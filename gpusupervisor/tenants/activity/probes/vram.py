"""Probe `vram`: whether what the tenant holds grows."""

from gpusupervisor.tenants.activity.probes.life import VramWatch
from gpusupervisor.tenants.activity.probes.window import Phrases, WindowProbe
from gpusupervisor.tenants.definition import ProbeSpec

PHRASES = Phrases(
    live="its VRAM grows",
    recent="its VRAM grew a moment ago",
    quiet="its VRAM has not grown recently",
    cannot_tell="the driver does not tell how much it holds",
)


def vram_probe(spec: ProbeSpec) -> WindowProbe:
    """threshold: bytes of growth that count as life."""
    return WindowProbe(spec.kind, VramWatch(spec.threshold, growth_only=True), spec.idle_after, PHRASES)
