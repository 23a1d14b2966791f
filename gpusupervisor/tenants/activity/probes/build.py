"""From the description of probes to probes that ask an engine."""

from collections.abc import Callable, Mapping

from gpusupervisor.tenants.activity.probes.base import Probe
from gpusupervisor.tenants.activity.probes.comfyui import ComfyUiProbe
from gpusupervisor.tenants.activity.probes.http import HttpProbe
from gpusupervisor.tenants.activity.probes.ollama import OllamaProbe
from gpusupervisor.tenants.activity.probes.prometheus import PrometheusProbe
from gpusupervisor.tenants.definition import ProbeSpec

_KINDS: Mapping[str, Callable[[ProbeSpec], Probe]] = {
    "ollama": OllamaProbe,
    "comfyui": ComfyUiProbe,
    "http": HttpProbe,
    "prometheus": PrometheusProbe,
}


def build_probe(spec: ProbeSpec) -> Probe | None:
    """A fresh probe, whose kind the schema has checked; None for one that only watches the processes."""
    build = _KINDS.get(spec.kind)
    return build(spec) if build else None
