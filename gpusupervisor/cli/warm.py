"""`gpusupervisorctl warm`: read a model's files into RAM and say how far it is, or what is worth it."""

import argparse
import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from dbus_fast import Message

from gpusupervisor.cli.client import BUS_NAME, ROOT, Client, CommandFailed, plain
from gpusupervisor.cli.render import UNKNOWN, safe, table
from gpusupervisor.quantities import format_bytes, format_duration

ENGINES = f"{ROOT}/engines"
JOB = f"{BUS_NAME}.Job"
EXIT_CANCELLED = 130
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
    loop = asyncio.get_running_loop()
    cancelling: list[asyncio.Task[None]] = []
    async with client.signals() as signals:
        job = str(await client.call("WarmModel", "ss", [engine, model], path=ENGINES, interface=f"{BUS_NAME}.Engines"))
        loop.add_signal_handler(signal.SIGINT, lambda: cancelling.append(loop.create_task(_cancel(client, job))))
        try:
            ended = await _follow(client, job, signals)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
    if ended["State"] == "cancelled":
        raise CommandFailed("cancelled", EXIT_CANCELLED)
    if ended["State"] != "succeeded":
        raise CommandFailed(ended["Detail"])
    result = ended["Result"]
    print(f"{format_bytes(result['size'])} in RAM after {format_duration(result['took'])}")


async def _follow(client: Client, job: str, signals: AsyncIterator[Message]) -> dict[str, Any]:
    """The properties of the job at its end."""
    shown = await client.properties(job, JOB)  # it may have ended before anything was heard of it
    if shown["State"] != "running":
        return shown
    async for message in signals:
        body: Any = plain(message.body)
        if message.path != job:
            continue
        if message.member == "Finished":
            return {"State": body[0], "Detail": body[1], "Result": body[2]}
        if message.member == "PropertiesChanged" and "Progress" in body[1]:
            print(f"{body[1]['Progress']} %", flush=True)
    raise AssertionError("the stream of signals ends with an error")


async def _cancel(client: Client, job: str) -> None:
    with suppress(CommandFailed):  # it has ended meanwhile
        await client.call("Cancel", path=job, interface=JOB)
