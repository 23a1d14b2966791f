"""Commands about engines: which there are, and what one is set to."""

import argparse
from collections.abc import Iterable
from typing import Any

from gpusupervisor.cli.client import BUS_NAME, ROOT, Client
from gpusupervisor.cli.render import safe, table

ENGINES = f"{BUS_NAME}.Engines"
Properties = dict[str, Any]


async def show_engines(client: Client, _: argparse.Namespace) -> None:
    """All of them, a line each."""
    objects = await client.objects()
    print(engine_table(each[f"{BUS_NAME}.Engine"] for each in objects.values() if f"{BUS_NAME}.Engine" in each))


async def show_engine(client: Client, options: argparse.Namespace) -> None:
    """One of them, with its settings."""
    print(engine(await client.call("Get", "s", [options.engine], path=f"{ROOT}/engines", interface=ENGINES)))


def engine_table(engines: Iterable[Properties]) -> str:
    """One line an engine; those that answer or run first."""
    rows = [
        (each["Id"], each["Version"] or "-", each["Endpoint"] or "-", each["Detail"] or "reachable")
        for each in sorted(engines, key=lambda each: (not each["Reachable"], not each["Settings"], each["Id"]))
    ]
    return table(rows, ("ENGINE", "VERSION", "ENDPOINT", ""))


def engine(shown: Properties) -> str:
    """What it is, and each setting with what it means."""
    where = f"{safe(shown['Endpoint'])}, " if shown["Endpoint"] else ""
    lines = [
        f"{safe(shown['Id'])}: {safe(shown['Engine'])} {safe(shown['Version'])}".rstrip(),
        f"  {where}{'reachable' if shown['Reachable'] else safe(shown['Detail'])}",
    ]
    if shown["Unit"]:
        lines.append(f"  unit {safe(shown['Unit'])}")
    for setting in shown["Settings"]:
        value = f" = {safe(setting['value'])}" if setting["value"] else ""
        lines += ["", f"{safe(setting['name'])}{value}  ({safe(setting['source'])})"]
        if setting["pending"]:
            lines.append(f"  ! after a restart: {safe(setting['pending'])}")
        if setting["meaning"]:
            lines.append(f"  {safe(setting['meaning'])}")
    if not shown["Settings"]:
        lines += ["", "no settings are known"]
    return "\n".join(lines)


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The commands of this module."""
    every = commands.add_parser("engines", help="every engine: version, endpoint, whether it answers")
    every.set_defaults(run=show_engines)
    one = commands.add_parser("engine", help="what an engine is set to, and what that means for sharing the card")
    one.add_argument("engine")
    one.set_defaults(run=show_engine)
