"""Probe `vram`: whether what the tenant holds changes."""

from gpusupervisor.tenants.activity.probes.life import VramWatch
from gpusupervisor.tenants.activity.probes.window import Phrases, WindowProbe
from gpusupervisor.tenants.definition import ProbeSpec

PHRASES = Phrases(
    live="its VRAM changes",
    recent="its VRAM changed moments ago",
    quiet="its VRAM has not changed for long",
    cannot_tell="the driver does not say how much it holds",
)


def vram_probe(spec: ProbeSpec) -> WindowProbe:
    """threshold: bytes of change that count as life."""
    return WindowProbe(spec.kind, VramWatch(spec.threshold), spec.idle_after, PHRASES)
