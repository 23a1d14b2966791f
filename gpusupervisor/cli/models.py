"""Commands about models: list them, load and unload one; a load is followed by its job's signals."""

import argparse
from typing import Any

from gpusupervisor.cli import render
from gpusupervisor.cli.client import BUS_NAME, ROOT, Client, CommandFailed
from gpusupervisor.quantities import format_bytes, format_duration

ENGINES = f"{BUS_NAME}.Engines"
JOB = f"{BUS_NAME}.Job"
_UNKNOWN = 2**64 - 1


async def show_models(client: Client, options: argparse.Namespace) -> None:
    """The models of one engine, or of all."""
    objects = await client.objects()
    cards = [interfaces[f"{BUS_NAME}.Gpu"] for interfaces in objects.values() if f"{BUS_NAME}.Gpu" in interfaces]
    engines = [each[f"{BUS_NAME}.Engine"] for _, each in sorted(objects.items()) if f"{BUS_NAME}.Engine" in each]
    shown = [engine for engine in engines if not options.engine or engine["Id"] == options.engine]
    if options.engine and not shown:
        raise CommandFailed(f"No engine is called {options.engine!r}.")
    for engine in shown:
        for line in _engine(engine):
            print(render.safe(line))
    for card in cards:
        if card["FitSummary"]:
            print(render.safe(f"{card['Name']}: {card['FitSummary']}"))


async def load(client: Client, options: argparse.Namespace) -> None:
    """Load a model and follow the job to its end."""
    async with client.signals() as signals:
        path = await _engines(client, "LoadModel", options)
        job = await client.properties(path, JOB)
        said = ""
        while job["State"] == "running":
            if job["Detail"] != said:
                said = job["Detail"]
                print(render.safe(f"{job['Progress']:3} %  {said}"), flush=True)
            async for message in signals:
                if message.path == path:
                    break
            job = await client.properties(path, JOB)
    if job["State"] != "succeeded":
        raise CommandFailed(job["Detail"] or f"The load was {job['State']}.")
    result: dict[str, Any] = job["Result"]
    spilled = "; part of it is in system memory all the same" if result["spilled"] else ""
    took, speed = format_duration(result["duration"]), format_bytes(result["speed"])
    print(f"loaded: {format_bytes(result['taken'])} of VRAM in {took}, {speed}/s{spilled}")


async def unload(client: Client, options: argparse.Namespace) -> None:
    """Unload a model of an idle engine."""
    result = await _engines(client, "UnloadModel", options)
    print(render.safe(f"{result['detail']} ({format_duration(result['duration'])})"))


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The commands of this module."""
    command = commands.add_parser("models", help="the engines' models: what is loaded, what fits")
    command.add_argument("engine", nargs="?", default="")
    command.set_defaults(run=show_models)
    for name, run, what in (
        ("load", load, "have an engine load a model: room is made first, and what it takes is measured"),
        ("unload", unload, "have an idle engine unload a model, and measure what comes back"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("engine")
        command.add_argument("model")
        command.set_defaults(run=run)


async def _engines(client: Client, member: str, options: argparse.Namespace) -> Any:  # noqa: ANN401  (a D-Bus value)
    body = [options.engine, options.model]
    return await client.call(member, "ss", body, path=f"{ROOT}/engines", interface=ENGINES)


def _engine(engine: dict[str, Any]) -> list[str]:
    lines = [f"{engine['Id']}: {len(engine['Models'])} models" + (f" ({p})" if (p := engine["ModelsProblem"]) else "")]
    for model in engine["Models"]:
        needs = "?" if model["needs"] == _UNKNOWN else f"{format_bytes(model['needs'])} ({model['needs_source']})"
        state = f"{model['state']}, spilled" if model["spilled"] else model["state"]
        lines.append(f"  {model['name']}  {state}  needs {needs}  {model['fit']}: {model['fit_detail']}")
    return lines
