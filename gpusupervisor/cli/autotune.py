"""`gpusupervisorctl autotune`: starts the job, follows it, shows its curve; Ctrl-C cancels it."""

import argparse
import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from dbus_fast import Variant

from gpusupervisor.cli import render
from gpusupervisor.cli.client import BUS_NAME, EXIT_FAILED, Client, CommandFailed, plain
from gpusupervisor.cli.following import cancel, follow

PROFILE = f"{BUS_NAME}.Profile"
TRIAL = "60000000"
"""Microseconds to confirm, in the command that is proposed."""


def add_command(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The command and its arguments."""
    command = commands.add_parser(
        "autotune", help="find the power limit at which an engine makes the most of each joule; nothing is kept"
    )
    command.add_argument("gpu", help="UUID, or how it begins")
    command.add_argument("engine", help="an idle engine on it, which works meanwhile: Ollama or llama.cpp")
    command.add_argument("--model", default="", help="the model it runs; Ollama must be told")
    command.add_argument("--steps", type=int, default=0, help="how many power limits are tried; default: 8")
    command.add_argument("--tokens", type=int, default=0, help="tokens of one run; default: 256")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=autotune)


async def autotune(client: Client, options: argparse.Namespace) -> None:
    """To its end. Raises CommandFailed when it did not succeed, after the curve so far was printed."""
    path = await _gpu(client, options.gpu)
    async with client.signals() as signals:
        job = await client.call("Autotune", "sa{sv}", [options.engine, _options(options)], path=path, interface=PROFILE)
        try:
            shown = await follow(client, signals, job)
        except asyncio.CancelledError:
            shown = await cancel(client, job, "the state before is being set again")
            print(_text(shown, path, as_json=options.json))
            raise
    print(_text(shown, path, as_json=options.json))
    if shown["State"] != "succeeded":
        raise CommandFailed(shown["Detail"], EXIT_FAILED)


async def _gpu(client: Client, wanted: str) -> str:
    """The object of the GPU whose UUID begins so."""
    objects = await client.objects()
    gpus = {path: shown[f"{BUS_NAME}.Gpu"]["Uuid"] for path, shown in objects.items() if f"{BUS_NAME}.Gpu" in shown}
    found = [path for path, uuid in gpus.items() if wanted and uuid.startswith(wanted)]
    if len(found) != 1:
        known = ", ".join(map(render.safe, gpus.values())) or "none"
        raise CommandFailed(f"Not exactly one GPU has a UUID that begins with {wanted!r}. There are: {known}.")
    return found[0]


def _options(options: argparse.Namespace) -> dict[str, Variant]:
    given = {"model": ("s", options.model), "steps": ("u", options.steps), "tokens": ("u", options.tokens)}
    return {name: Variant(signature, value) for name, (signature, value) in given.items() if value}


def _text(job: Mapping[str, Any], path: str, *, as_json: bool) -> str:
    if as_json:
        ended = {"state": job["State"], "detail": job["Detail"], "result": plain(job["Result"])}
        return json.dumps(ended, indent=2, ensure_ascii=False)
    return curve(job["Result"], path)


def curve(result: Mapping[str, Any], path: str) -> str:
    """The points as a table, and how to try the best of them."""
    points: Sequence[Mapping[str, Any]] = result.get("curve", ())
    if not points:
        return "nothing was measured; the card is as it was"
    unit, best = render.safe(result["unit"]), result.get("proposal")
    with_offsets = any("offset_graphics" in point for point in points)
    header = ("LIMIT", *(("OFFSET",) if with_offsets else ()), f"{unit.upper()}S/S", "POWER", f"J/{unit.upper()}",
              "HOTTEST", "")  # fmt: skip
    text = render.table([_row(point, with_offsets, point == best) for point in points], header)
    if best is None:
        return f"{text}\n\nIt ended early; the card is as it was."
    command = ["busctl", "call", BUS_NAME, path, PROFILE]
    tried = shlex.join([*command, "Try", "st", result["profile"], TRIAL])
    kept = shlex.join([*command, "Confirm"])
    return (
        f"{text}\n\nNothing was changed. To try the proposal for a minute, and to keep it:\n\n"
        f"  {render.safe(tried)}\n  {kept}"
    )


def _row(point: Mapping[str, Any], with_offset: bool, best: bool) -> tuple[str, ...]:
    offset = (f"{point.get('offset_graphics', 0):+} MHz",) if with_offset else ()
    return (
        f"{point['power_limit'] / 1000:g} W",
        *offset,
        f"{point['throughput']:.1f}",
        f"{point['power'] / 1000:.0f} W",
        f"{point['energy_per_unit'] / 1000:.2f}",
        f"{point['hottest']} °C",
        "<- the most of each joule" if best else "",
    )
