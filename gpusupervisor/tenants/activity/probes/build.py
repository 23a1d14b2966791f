"""From the description of probes to probes."""

from collections.abc import Callable, Mapping

from gpusupervisor.tenants.activity.probes.base import Probe
from gpusupervisor.tenants.activity.probes.comfyui import ComfyUiProbe
from gpusupervisor.tenants.activity.probes.cpu import cpu_probe
from gpusupervisor.tenants.activity.probes.http import HttpProbe
from gpusupervisor.tenants.activity.probes.ollama import OllamaProbe
from gpusupervisor.tenants.activity.probes.prometheus import PrometheusProbe
from gpusupervisor.tenants.activity.probes.sm_utilization import sm_utilization_probe
from gpusupervisor.tenants.activity.probes.vram import vram_probe
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec

_KINDS: Mapping[str, Callable[[ProbeSpec, ActivitySpec], Probe]] = {
    "ollama": lambda spec, _: OllamaProbe(spec),
    "comfyui": lambda spec, activity: ComfyUiProbe(spec, activity.stuck_after),
    "http": lambda spec, _: HttpProbe(spec),
    "prometheus": lambda spec, _: PrometheusProbe(spec),
    "vram": lambda spec, _: vram_probe(spec),
    "sm-utilization": lambda spec, _: sm_utilization_probe(spec),
    "cpu": lambda spec, _: cpu_probe(spec),
}


def build_probes(activity: ActivitySpec) -> tuple[Probe, ...]:
    """Fresh probes, in the order of the description, whose kinds the schema has checked."""
    return tuple(_KINDS[spec.kind](spec, activity) for spec in activity.probes)
