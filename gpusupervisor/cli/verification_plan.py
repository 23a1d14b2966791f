"""What a verification would do on this machine as it is now. Pure."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from gpusupervisor.cli import shapes
from gpusupervisor.cli.exits import WRONG_USE, CommandFailed
from gpusupervisor.cli.shapes import Shape

Kind = Literal["release", "load", "hand-off", "profile", "fans"]
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


def plan(objects: Mapping[str, shapes.Interfaces], tenant: str = "", *, hand_off: bool = False) -> list[Step]:
    """The steps: each tenant with memory, and what the helper controls. tenant: only that one, and no hardware.

    hand_off: before that a model is loaded for which somebody has to give way. Raises CommandFailed for a tenant that
    there is not.
    """
    tenants = [each for each in shapes.tenants(objects) if tenant in ("", each["id"])]
    if tenant and not tenants:
        known = ", ".join(each["id"] for each in shapes.tenants(objects))
        raise CommandFailed(f"No tenant is called {tenant!r}. There are: {known}.", WRONG_USE)
    engines = {i[_ENGINE]["Id"]: shapes.properties(i[_ENGINE]) for i in objects.values() if _ENGINE in i}
    steps = [step for each in tenants for step in _of_tenant(each, engines.get(each["id"]))]
    if hand_off:
        steps.insert(0, _hand_off(tenants, engines))
    if not tenant:
        steps += [_of_profile(each) for each in shapes.profiles(objects)]
        steps += [_of_fans(each) for each in shapes.fans(objects)]
    return steps


def loaded_models(objects: Mapping[str, shapes.Interfaces]) -> list[tuple[str, str]]:
    """Engine and name of every model that holds memory now and can be loaded by name."""
    engines = [shapes.properties(i[_ENGINE]) for i in objects.values() if _ENGINE in i]
    return [(engine["id"], model["name"]) for engine in engines for model in _loaded(engine)]


def _hand_off(tenants: list[Shape], engines: Mapping[str, Shape]) -> Step:
    """The smallest model for which there is room only after a release, of an engine that is idle and can unload it."""
    idle = [engines[each["id"]] for each in tenants if each["id"] in engines and each["activity"] == "idle"]
    able = [engine for engine in idle if {"load", "unload"} <= set(engine["capabilities"])]
    found = [
        (model["needs"], engine["id"], model["name"])
        for engine in able
        for model in engine["models"]
        if model["fit"] == "after-release" and model["state"] != "loaded" and model["needs"]
    ]
    if not found:
        why = "no model of an idle engine needs more memory than is free and would fit after a release"
        return Step("hand-off", "", "load a model for which another application gives way", skipped=why)
    needs, engine_id, name = min(found)
    what = (
        f"have it load {name}, for which an idle application has to give up its memory, and measure that; "
        "then unload it, and load again what was there"
    )
    return Step("hand-off", engine_id, what, needs, model=name)


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
