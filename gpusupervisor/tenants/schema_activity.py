"""The schema of `[activity]`: which probes look at a tenant, and how each reads what it sees."""

import re
from collections.abc import Callable, Mapping

from gpusupervisor.clock import UNKNOWN as INFINITY
from gpusupervisor.configuration.checking import TableReader
from gpusupervisor.configuration.document import Table
from gpusupervisor.tenants.definition import ActivitySpec, ProbeSpec
from gpusupervisor.tenants.schema_http import expression_complaint, flag_complaint, metric_complaint, path_complaint

_MILLISECOND = 1000
_SECOND = 1_000_000
_QUIET = 10 * _SECOND
"""How long a sensor must be quiet before that means idle, when the file does not say."""
_ENDPOINT_PROBES = frozenset({"ollama", "comfyui", "http", "prometheus"})


def expand_probe(activity: Table) -> Table:
    """`probe = "ollama"` written out as the first of `probes`."""
    kind = activity.get("probe")
    others = activity.get("probes", [])
    if not isinstance(kind, str) or not isinstance(others, list):
        return activity
    rest = {key: value for key, value in activity.items() if key != "probe"}
    return {**rest, "probes": [{"kind": kind}, *others]}


def read_activity(reader: TableReader, has_endpoint: bool) -> ActivitySpec | None:
    """The `[activity]` table; None when there is none, which means that activity is always unknown."""
    with reader.table("activity") as activity:
        if activity is None:
            return None
        if activity.has("probe"):
            activity.text("probe")
        probes = tuple(_read_probe(probe, has_endpoint) for probe in activity.tables("probes"))
        if not activity.has("probes"):
            activity.complain("probes", f"is missing; allowed kinds: {', '.join(_PROBES)}")
        if not activity.has("stuck-after"):
            return ActivitySpec(probes)
        return ActivitySpec(probes, activity.duration("stuck-after", 0, 10 * _SECOND, INFINITY))


def _read_probe(probe: TableReader, has_endpoint: bool) -> ProbeSpec:
    if not probe.has("kind"):
        probe.complain("kind", f"is missing; allowed: {', '.join(_PROBES)}")
    kind = probe.choice("kind", tuple(_PROBES))
    if kind in _ENDPOINT_PROBES and not has_endpoint:
        probe.complain("kind", f'"{kind}" asks the tenant\'s API: [endpoint] with a url is missing')
    return _PROBES.get(kind, _read_any)(kind, probe)


def _event_complaint(text: str) -> str:
    return "" if re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", text) else "is no name of an event"


def _timeout(probe: TableReader) -> int:
    return probe.duration("timeout", ProbeSpec("").timeout, 50 * _MILLISECOND, 10 * _SECOND)


def _read_any(kind: str, probe: TableReader) -> ProbeSpec:
    """A probe of no known kind: its other keys cannot be judged."""
    for key in (
        "get", "first", "asleep-when", "sleep-flag", "busy-when", "stirring-when", "event", "worker-port-flag",
        "busy-metrics", "idle-after", "threshold", "timeout",
    ):  # fmt: skip
        probe.raw(key)
    return ProbeSpec(kind)


def _read_named(kind: str, probe: TableReader) -> ProbeSpec:
    return ProbeSpec(kind, timeout=_timeout(probe))


def _read_http(kind: str, probe: TableReader) -> ProbeSpec:
    for key, example in (("get", 'get = "/queue"'), ("busy-when", 'busy-when = "running > `0`"')):
        if not probe.has(key):
            probe.complain(key, f"is missing, e.g. {example}")
    if probe.has("first") != probe.has("asleep-when"):
        probe.complain("first", "first and asleep-when belong together: one of them is missing")
    if probe.has("sleep-flag") and not probe.has("first"):
        probe.complain("sleep-flag", "tells of nothing without first and asleep-when: they are missing")
    return ProbeSpec(
        kind,
        get=probe.text("get", complaint=path_complaint),
        first=probe.text("first", complaint=path_complaint),
        asleep_when=probe.text("asleep-when", complaint=expression_complaint),
        sleep_flag=probe.text("sleep-flag", complaint=flag_complaint),
        event=probe.text("event", complaint=_event_complaint),
        busy_when=probe.text("busy-when", complaint=expression_complaint),
        stirring_when=probe.text("stirring-when", complaint=expression_complaint),
        worker_port_flag=probe.text("worker-port-flag", complaint=flag_complaint),
        timeout=_timeout(probe),
    )


def _read_prometheus(kind: str, probe: TableReader) -> ProbeSpec:
    metrics = probe.texts("busy-metrics", metric_complaint)
    if not metrics:
        probe.complain("busy-metrics", 'at least one metric is needed, e.g. ["vllm:num_requests_running"]')
    return ProbeSpec(
        kind,
        get=probe.text("get", "/metrics", path_complaint),
        busy_metrics=metrics,
        timeout=_timeout(probe),
    )


def _idle_after(probe: TableReader) -> int:
    return probe.duration("idle-after", _QUIET, 0, 86_400 * _SECOND)


def _read_vram(kind: str, probe: TableReader) -> ProbeSpec:
    return ProbeSpec(kind, idle_after=_idle_after(probe), threshold=float(probe.size("threshold", 1 << 20)))


def _read_sm(kind: str, probe: TableReader) -> ProbeSpec:
    return ProbeSpec(kind, idle_after=_idle_after(probe), threshold=probe.number("threshold", 0.0, 0, 100))


def _read_cpu(kind: str, probe: TableReader) -> ProbeSpec:
    """Percent of one core, hence up to thousands for a program with many threads."""
    return ProbeSpec(kind, idle_after=_idle_after(probe), threshold=probe.number("threshold", 2.0, 0, 100_000))


_PROBES: Mapping[str, Callable[[str, TableReader], ProbeSpec]] = {
    "ollama": _read_named,
    "comfyui": _read_named,
    "http": _read_http,
    "prometheus": _read_prometheus,
    "vram": _read_vram,
    "sm-utilization": _read_sm,
    "cpu": _read_cpu,
}
