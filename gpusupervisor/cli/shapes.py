"""The JSON that commands print, from the values of the D-Bus face. Stable; screens draw from it too. Pure.

Keys are the D-Bus names in snake_case. Sizes are bytes; times and durations are microseconds, times of the realtime
clock; what is not known is null. Texts are as the service gives them. Keys may be added, none is removed or changes its
meaning.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

Shape = dict[str, Any]
Interfaces = Mapping[str, Mapping[str, Any]]

_PREFIX = "org.gpusupervisor1."
_ALL_ONES = 2**64 - 1
_NOBODY = 2**32 - 1
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BY_NAME = {"TenantHoldings", "Holdings"}
"""Properties whose keys are names, and stay as they are."""


@lru_cache(maxsize=1024)
def snake(name: str) -> str:
    """ActivitySince -> activity_since, zero-rpm-below -> zero_rpm_below."""
    return _HUMP.sub("_", name).lower().replace("-", "_")


def known(value: Any) -> Any:  # noqa: ANN401  (a D-Bus value)
    """A value with null for what is not known, and its own dictionaries' keys in snake_case."""
    if isinstance(value, Mapping):
        return {snake(key): known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [known(item) for item in value]
    return None if value == _ALL_ONES and not isinstance(value, bool) else value


def properties(values: Mapping[str, Any]) -> Shape:
    """The properties of one interface."""
    return {
        snake(name): {key: known(item) for key, item in value.items()} if name in _BY_NAME else known(value)
        for name, value in values.items()
    }


def _each(objects: Mapping[str, Interfaces], interface: str) -> list[Shape]:
    name = _PREFIX + interface
    return [properties(interfaces[name]) for _, interfaces in sorted(objects.items()) if name in interfaces]


def status(manager: Mapping[str, Any], objects: Mapping[str, Interfaces]) -> Shape:
    """`status`: the manager's properties, gpus, tenants, health and jobs that run."""
    return {
        **properties(manager),
        "gpus": gpus(objects),
        "tenants": tenants(objects),
        "health": health(objects),
        "jobs": [each for each in jobs(objects) if each["state"] == "running"],
    }


def gpus(objects: Mapping[str, Interfaces]) -> list[Shape]:
    """Every GPU."""
    return _each(objects, "Gpu")


def tenants(objects: Mapping[str, Interfaces]) -> list[Shape]:
    """`tenants`: every tenant, present or not."""
    return _each(objects, "Tenant")


def engines(objects: Mapping[str, Interfaces]) -> list[Shape]:
    """`engines`: every engine, whether it runs or not."""
    return _each(objects, "Engine")


def health(objects: Mapping[str, Interfaces]) -> Shape:
    """`health`: state, summary, and every check."""
    return _each(objects, "Health")[0]


def jobs(objects: Mapping[str, Interfaces]) -> list[Shape]:
    """`jobs`: every job, the oldest first."""
    found = [job(i[f"{_PREFIX}Job"]) for i in objects.values() if f"{_PREFIX}Job" in i]
    return sorted(found, key=lambda each: int(each["id"]))


def job(values: Mapping[str, Any]) -> Shape:
    """`job`, and what following one gives: its properties; started_by is null when it began by itself."""
    shape = properties(values)
    return {**shape, "started_by": None if shape["started_by"] == _NOBODY else shape["started_by"]}


def fans(objects: Mapping[str, Interfaces]) -> list[Shape]:
    """`fans`: for every GPU uuid, name, and the properties of its fans."""
    return _of_gpus(objects, "Fans")


def profiles(objects: Mapping[str, Interfaces]) -> list[Shape]:
    """`profile`: for every GPU uuid, name, and its profile; the profiles themselves as objects, null without one."""
    found = _of_gpus(objects, "Profile")
    for each in found:
        each.update({key: _document(each[key]) for key in ("profile", "accepted", "trial")})
    return found


def _of_gpus(objects: Mapping[str, Interfaces], interface: str) -> list[Shape]:
    found = [i for _, i in sorted(objects.items()) if f"{_PREFIX}{interface}" in i and f"{_PREFIX}Gpu" in i]
    return [
        {
            "uuid": each[f"{_PREFIX}Gpu"]["Uuid"],
            "name": each[f"{_PREFIX}Gpu"]["Name"],
            **properties(each[_PREFIX + interface]),
        }
        for each in found
    ]


def _document(text: str) -> object:
    """A profile as the service stores it; the text itself should it ever not be JSON."""
    import json  # most commands need it for nothing

    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def event(stored: Mapping[str, Any]) -> Shape:
    """`events`: kind, at, tenant, gpu and plan, each null where it has none, and details as an object."""
    details = _document(stored["details"])
    known_details = details if isinstance(details, dict) else {"text": details}
    return {
        "kind": stored["kind"],
        "at": stored["at"],
        **{key: stored[key] or None for key in ("tenant", "gpu", "plan")},
        "details": known(known_details),
    }


def fact(learned: Mapping[str, Any]) -> Shape:
    """`learned`: kind, tenant, gpu and model (null: it is of none), value, learned_at, source, application, stored."""
    keys = ("kind", "tenant", "value", "learned_at", "source", "stored")
    return {key: learned[key] for key in keys} | {key: learned[key] or None for key in ("gpu", "model", "application")}


def history(name: str, gpu: str, tenant: str, points: Sequence[Sequence[int]]) -> Shape:
    """`history`: for each series its name, gpu and tenant, null where it is of none, and points."""
    keys = ("begin", "least", "mean", "most")
    return {
        "series": name,
        "gpu": gpu or None,
        "tenant": tenant or None,
        "points": [dict(zip(keys, known(point), strict=True)) for point in points],
    }


ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "ReleasePlanned": ("plan_id", "plan"),
    "ReleaseStarted": ("plan_id", "plan"),
    "ReleaseStep": ("plan_id", "tenant", "outcome", "freed", "details"),
    "ReleaseFinished": ("plan_id", "outcome", "freed", "details"),
    "Changed": ("id", "old", "new", "check"),
    "Finished": ("state", "detail", "result"),
    "Alert": ("cause", "text"),
    "DriftDetected": ("item", "details"),
    "DriftRepaired": ("item", "details"),
    "DriftContested": ("item", "details"),
    "DriftEnded": ("item", "details"),
    "TrialEnded": ("end", "reason", "results"),
}
"""The names of the arguments of each signal, as the interfaces document them."""


def signal(path: str, interface: str, member: str, body: Sequence[Any]) -> Shape:
    """`monitor`: for each signal path, interface, signal and its arguments by name; before them comes received_at."""
    head: Shape = {"path": path, "interface": interface, "signal": member}
    match member, body:
        case "PropertiesChanged", [of, changed, gone]:
            return {**head, "of": of, "changed": properties(changed), "invalidated": [snake(name) for name in gone]}
        case "InterfacesAdded", [added, interfaces]:
            return {**head, "object": added, "interfaces": {name: properties(i) for name, i in interfaces.items()}}
        case "InterfacesRemoved", [removed, names]:
            return {**head, "object": removed, "interfaces": list(names)}
        case "NameOwnerChanged", [_, _, owner]:
            return {**head, "running": bool(owner)}
    names = ARGUMENTS.get(member, ())
    if len(names) != len(body):
        return {**head, "arguments": known(body)}
    return {**head, **{name: known(value) for name, value in zip(names, body, strict=True)}}
