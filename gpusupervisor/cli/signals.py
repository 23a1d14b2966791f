"""One line for each signal of the service. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpusupervisor.cli.text import brief, safe
from gpusupervisor.quantities import format_bytes

_UNKNOWN = 2**64 - 1


def line(path: str, member: str, body: Sequence[Any]) -> str:
    """Whatever came, on one line; empty when there is nothing to tell of it."""
    name = named(path)
    match member, body:
        case "PropertiesChanged", [interface, changed, _]:
            return changes(name, interface, changed)
        case "InterfacesAdded" | "InterfacesRemoved", [object_path, _]:
            kind = object_path.rsplit("/", 2)[-2].removesuffix("s")
            return f"{safe(kind)} {safe(named(object_path))} is {'new' if member == 'InterfacesAdded' else 'gone'}"
        case "NameOwnerChanged", [_, _, owner]:
            return "gpusupervisor has started" if owner else "gpusupervisor has stopped"
        case "Finished", [state, detail, _]:
            return f"job {name} {safe(state)}" + (f": {safe(detail)}" if detail else "")
    return event(member, body)


def named(path: str) -> str:
    """What an object is called: the last part of its path, where "_2d" stands for the byte 2d."""
    last = path.rsplit("/", 1)[-1].encode()
    name = re.sub(rb"_([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), last)
    return brief(name.decode(errors="replace"))


def event(member: str, body: Sequence[Any]) -> str:
    """A signal that tells what the service does."""
    match member, body:
        case "ReleasePlanned", [plan_id, made]:
            return f"{safe(plan_id)} planned: {safe(made['summary'])}"
        case "ReleaseStarted", [plan_id, _]:
            return f"{safe(plan_id)} started"
        case "ReleaseStep", [plan_id, tenant, outcome, _, details]:
            return f"{safe(plan_id)} {safe(tenant)} {outcome}: {safe(details['detail'])}"
        case "ReleaseFinished", [plan_id, outcome, freed, _]:
            return f"{safe(plan_id)} finished, {outcome}: {format_bytes(freed)} came back"
        case "DriftDetected", [item, details]:
            return f"{safe(item)} has drifted: {safe(details['detail'])}"
        case "DriftRepaired", [item, details]:
            return f"{safe(item)} was set again: {safe(details['accepted'])}"
        case "DriftContested", [item, details]:
            return f"{safe(item)} is not set any more: {safe(details['detail'])}"
        case "DriftEnded", [item, details]:
            return f"the drift of {safe(item)} is over: {safe(details['detail'])}"
        case "TrialEnded", [end, reason, _]:
            return f"the trial of a profile has ended, {safe(end)}: {safe(reason)}"
        case "Alert", [_, text]:
            return safe(text)
        case "Changed", [check, _, state, found]:
            return (
                f"check {safe(brief(check))} is {safe(state)}: {safe(found['summary'])}"
                if state
                else f"check {safe(brief(check))} is gone"
            )
    return f"{member} {safe(body)}"


def changes(name: str, interface: str, changed: Mapping[str, Any]) -> str:
    """Changed properties, without the bulky ones."""
    values = ", ".join(
        f"{key}={'?' if value == _UNKNOWN else safe(value)}"
        for key, value in changed.items()
        if not isinstance(value, list | dict)
    )
    return f"{safe(name)} {interface.rsplit('.', 1)[-1]}: {values}" if values else ""
