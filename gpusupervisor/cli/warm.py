"""`gpusupervisorctl warm`: read a model's files into RAM and say how far it is, or what is worth it."""

import argparse
import asyncio
from collections.abc import Mapping
from typing import Any

from gpusupervisor.cli.client import BUS_NAME, ROOT, Client, CommandFailed
from gpusupervisor.cli.following import cancel, follow
from gpusupervisor.cli.render import UNKNOWN, safe, table
from gpusupervisor.quantities import format_bytes, format_duration

ENGINES = f"{ROOT}/engines"
HEADER = ("ENGINE", "MODEL", "SIZE", "IN RAM", "")


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    command = commands.add_parser("warm", help="read a model's files into RAM; without one, what is worth it")
    command.add_argument("engine", nargs="?", default="")
    command.add_argument("model", nargs="?", default="", help="as its engine names it")
    command.set_defaults(run=run)


async def run(client: Client, options: argparse.Namespace) -> None:
    """Warm a model, or show the plan."""
    if not options.engine:
        await _show_plan(client)
    elif options.model:
        await _warm(client, options.engine, options.model)
    else:
        raise CommandFailed(f"Which model of {safe(options.engine)}? gpusupervisorctl warm shows them.")


async def _show_plan(client: Client) -> None:
    rows = [
        (safe(each["engine"]), safe(each["model"]), format_bytes(each["size"]), _share(each), safe(each["reason"]))
        for each in await client.call("WarmPlan", path=ENGINES, interface=f"{BUS_NAME}.Engines")
    ]
    print(table(rows, HEADER) if rows else "no model files are known: [models] of a tenant file says where they are")


def _share(step: Mapping[str, Any]) -> str:
    if step["cached"] == UNKNOWN:
        return "?"
    return f"{step['cached'] * 100 // step['size'] if step['size'] else 100} %"


async def _warm(client: Client, engine: str, model: str) -> None:
    """Start the job and follow it to its end; Ctrl-C cancels it."""
    async with client.signals() as signals:
        job = await client.call("WarmModel", "ss", [engine, model], path=ENGINES, interface=f"{BUS_NAME}.Engines")
        try:
            ended = await follow(client, signals, job)
        except asyncio.CancelledError:
            await cancel(client, job, "what was read so far stays in RAM")
            raise
    if ended["State"] != "succeeded":
        raise CommandFailed(ended["Detail"])
    result = ended["Result"]
    print(f"{format_bytes(result['size'])} in RAM after {format_duration(result['took'])}")
