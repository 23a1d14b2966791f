"""Names that the running service knows. busctl asks for them: it is there in an instant, where the libraries that this
program talks D-Bus with would take as long to import as a person notices.
"""

import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpusupervisor.cli.completion.position import Candidate
from gpusupervisor.cli.registry import Completes

PREFIX = "org.gpusupervisor1"
ROOT = "/org/gpusupervisor1"
DEADLINE = 1.0
"""Seconds; a shell that waits for longer is worse than one that knows no names."""
MOST = 1000
"""Names; nobody reads more."""
LONGEST = 256

Values = Mapping[str, Any]
Objects = Mapping[str, Mapping[str, Values]]


def names(kind: Completes, engine: str) -> list[Candidate]:
    """All names of a kind; none while the service does not run."""
    objects = _call(ROOT, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects")
    if not isinstance(objects, Mapping):
        return []
    found = _models(objects, engine) if kind == "model" else SOURCES[kind](objects)
    return [candidate for candidate in found if _fits_a_line(candidate.value)][:MOST]


def _call(path: str, interface: str, member: str) -> Any:  # noqa: ANN401  (a D-Bus value)
    """The answer without its types, or None. Never starts the service."""
    command = ["busctl", "--system", "--json=short", "--auto-start=no", f"--timeout={DEADLINE:g}", "call", PREFIX]
    try:
        done = subprocess.run(  # noqa: S603  (no shell, and nothing that others wrote)
            [*command, path, interface, member],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DEADLINE * 2,
        )
        answer = json.loads(done.stdout)["data"][0] if done.returncode == 0 else None
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return None
    return bare(answer)


def bare(value: object) -> object:
    """A value as busctl writes it, without the types of its variants."""
    if isinstance(value, dict):
        if value.keys() == {"type", "data"}:
            return bare(value["data"])
        return {key: bare(item) for key, item in value.items()}
    return [bare(item) for item in value] if isinstance(value, list) else value


def _each(objects: Objects, interface: str) -> Iterator[Values]:
    name = f"{PREFIX}.{interface}"
    return (interfaces[name] for interfaces in objects.values() if name in interfaces)


def _tenants(objects: Objects) -> Iterable[Candidate]:
    return (Candidate(each["Id"], f"{each['Title']}, {each['Activity']}") for each in _each(objects, "Tenant"))


def _engines(objects: Objects) -> Iterable[Candidate]:
    return (Candidate(each["Id"], each["Engine"]) for each in _each(objects, "Engine"))


def _gpus(objects: Objects) -> Iterable[Candidate]:
    return (Candidate(each["Uuid"], each["Name"]) for each in _each(objects, "Gpu"))


def _jobs(objects: Objects) -> Iterable[Candidate]:
    return (Candidate(str(each["Id"]), f"{each['Kind']}, {each['State']}") for each in _each(objects, "Job"))


def _checks(objects: Objects) -> Iterable[Candidate]:
    return (Candidate(check["id"], check["summary"]) for each in _each(objects, "Health") for check in each["Checks"])


def _models(objects: Objects, engine: str) -> Iterable[Candidate]:
    """Of one engine, or of all; as the engine names them where it is asked for that, else by their files."""
    told = {each["Id"]: [m["name"] for m in each.get("Models", ())] for each in _each(objects, "Engine")}
    if not any(told.values()):
        for model in _call(f"{ROOT}/engines", f"{PREFIX}.Engines", "WarmPlan") or ():
            told.setdefault(model["engine"], []).append(model["model"])
    return [Candidate(name, of) for of, all_names in told.items() if engine in ("", of) for name in all_names]


SOURCES: Mapping[str, Callable[[Objects], Iterable[Candidate]]] = {
    "tenant": _tenants,
    "engine": _engines,
    "gpu": _gpus,
    "job": _jobs,
    "check": _checks,
}
"""By what an argument is declared to complete; models need to be asked for."""


def _fits_a_line(name: str) -> bool:
    """Others chose it: no line ends or anything else that steers a terminal, and nothing taken for an option."""
    return 0 < len(name) <= LONGEST and name.isprintable() and not name.startswith("-")
