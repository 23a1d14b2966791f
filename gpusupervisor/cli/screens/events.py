"""What happened, as the service has stored it: one line each."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from gpusupervisor.cli.screens.common import QUIET, STYLES, Grid, moment
from gpusupervisor.cli.shapes import Shape
from gpusupervisor.cli.text import safe
from gpusupervisor.quantities import format_bytes, format_duration

_SOURCES = {"cold": " from disk", "warm": " from RAM"}


def event_line(event: Shape) -> Grid:
    """When, what kind, and in a sentence; `event` as shapes.event has it."""
    state = str(event["details"].get("state") or event["details"].get("outcome") or "")
    sentence = Text(told(event), STYLES.get(state, ""))
    return Grid((), ((Text(moment(event["at"]), QUIET), f"{safe(event['kind']):12}", sentence),))


def told(event: Shape) -> str:
    """The sentence."""
    details = {"state": "?", "detail": "", "freed": None, "outcome": "?", **event["details"]}
    plan, tenant = safe(event["plan"] or ""), safe(event["tenant"] or "")
    match event["kind"]:
        case "plan":
            return f"{plan} planned: {safe(details.get('summary', ''))}"
        case "plan-started":
            return f"{plan} started"
        case "step":
            return f"{plan} {tenant} {safe(details['outcome'])}: {safe(details['detail'])}"
        case "outcome":
            return f"{plan} finished, {safe(details['outcome'])}: {_size(details['freed'])} came back"
        case "load":
            return _load(tenant, details)
        case "decisions":
            return _with("decisions", _counts(details.get("counts")))
        case "job":
            job = " ".join(safe(details[key]) for key in ("id", "job", "state") if key in details)
            return _with(f"job {job}", details["detail"])
        case "drift" if details["state"] == "ended":
            return _with(f"the drift of {safe(details.get('id', '?'))} is over", details["detail"])
        case "health" | "drift" | "fans":
            summary = details.get("summary") or details["detail"]
            return _with(f"{safe(details.get('id', '?'))} is {safe(details['state'])}", summary)
    return _with(" ".join(part for part in (plan, tenant) if part), event["details"] or "")


def _load(tenant: str, details: Mapping[str, Any]) -> str:
    took = details.get("duration")
    time = f" in {format_duration(took, 100_000)}" if isinstance(took, int) else ""
    source = _SOURCES.get(str(details.get("source")), "")
    return f"{tenant} loaded {safe(details.get('model', ''))} ({_size(details.get('size'))}){time}{source}"


def _counts(counts: object) -> str:
    """Each branch with its number, the most frequent first."""
    known = counts.items() if isinstance(counts, dict) else ()
    numbers = ((str(name), count) for name, count in known if isinstance(count, int))
    return ", ".join(f"{name} {count}" for name, count in sorted(numbers, key=lambda each: (-each[1], each)))


def _size(value: object) -> str:
    return format_bytes(value) if isinstance(value, int) else "?"


def _with(head: str, more: object) -> str:
    return f"{head}: {safe(more)}" if more else head
