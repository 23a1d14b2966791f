"""What a verification would do on this machine as it is now. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import WRONG_USE, CommandFailed
from gpusupervisor.cli.shapes import Shape

Kind = Literal["release", "load", "profile", "fans"]
_ENGINE = "org.gpusupervisor1.Engine"


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that is tried."""

    kind: Kind
    target: str
    """Id of the tenant or engine; UUID of the GPU."""
    what: str
    """What is done, for a person."""
    expected: int | None = None
    """Bytes that should come back, or be taken."""
    model: str = ""
    profile: str = ""
    """The document that is set."""
    skipped: str = ""
    """Why it is not tried; empty when it is."""


def plan(objects: Mapping[str, shapes.Interfaces], tenant: str = "") -> list[Step]:
    """The steps: each tenant with memory, and what the helper controls. tenant: only that one, and no hardware.

    Raises CommandFailed for a tenant that there is not.
    """
    tenants = [each for each in shapes.tenants(objects) if tenant in ("", each["id"])]
    if tenant and not tenants:
        known = ", ".join(each["id"] for each in shapes.tenants(objects))
        raise CommandFailed(f"No tenant is called {tenant!r}. There are: {known}.", WRONG_USE)
    engines = {i[_ENGINE]["Id"]: shapes.properties(i[_ENGINE]) for i in objects.values() if _ENGINE in i}
    steps = [step for each in tenants for step in _of_tenant(each, engines.get(each["id"]))]
    if not tenant:
        steps += [_of_profile(each) for each in shapes.profiles(objects)]
        steps += [_of_fans(each) for each in shapes.fans(objects)]
    return steps


def _why_not(tenant: Shape) -> str:
    if tenant["protected"]:
        return "it is protected"
    if tenant["activity"] == "idle" and tenant["release_method"]:
        return "it holds no more than it keeps after a release"
    return f"{tenant['activity']}, {tenant['activity_reason']}"


def _of_tenant(tenant: Shape, engine: Shape | None) -> Iterator[Step]:
    """Its release, and the load of what it has loaded now, which puts it back."""
    name = tenant["id"]
    if not tenant["reclaimable"]:
        if tenant["holding"]:
            yield Step("release", name, "ask it for its memory", skipped=f"nothing to ask for now: {_why_not(tenant)}")
        return
    loaded = _loaded(engine) if engine else []
    again = "" if loaded else "; what it had loaded comes back when it is used next"
    yield Step("release", name, f"ask it for its memory and measure what comes back{again}", tenant["reclaimable"])
    for model in loaded:
        what = f"have it load {model['name']} again, with room made for it, and measure that"
        yield Step("load", name, what, model["held"] or model["needs"], model=model["name"])


def _loaded(engine: Shape) -> list[Shape]:
    """Models that hold memory here and can be loaded by name."""
    if "load" not in engine["capabilities"]:
        return []
    return [each for each in engine["models"] if each["state"] == "loaded" and not each.get("remote")]


def _of_profile(gpu: Shape) -> Step:
    what = "set its present profile once more on trial, go back, and read everything back"
    why = ""
    if gpu["trial"]:
        why = "a profile is on trial already"
    elif not gpu["profile"]:
        why = "no profile is set"
    elif gpu["problem"] or gpu["distrust"]:
        why = gpu["problem"] or gpu["distrust"]
    return Step("profile", gpu["uuid"], what, profile=json.dumps(gpu["profile"]) if gpu["profile"] else "", skipped=why)


def _of_fans(gpu: Shape) -> Step:
    controlled = any(fan["mode"] != "automatic" for fan in gpu["fans"])
    why = "" if controlled else gpu["support_reason"] or "the driver controls them"
    return Step("fans", gpu["uuid"], "compare its fans with what is wanted of them", skipped=why)
