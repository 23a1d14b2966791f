"""`gpusupervisorctl`: the command line. Every command is a D-Bus call; exit codes:

0 done, 1 the service said no or it failed, 2 wrong use, 3 the service is not running, 4 not allowed.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from gpusupervisor import __version__
from gpusupervisor.cli import engines, render, warm
from gpusupervisor.cli.autotune import add_command
from gpusupervisor.cli.client import BUS_NAME, EXIT_FAILED, ROOT, TENANTS, Client, CommandFailed, plain
from gpusupervisor.quantities import parse_bytes

LONGEST_FILE = 256 * 1024


async def show_status(client: Client, _: argparse.Namespace) -> None:
    """One screen."""
    objects = await client.objects()
    print(
        render.status(
            await client.properties(ROOT, f"{BUS_NAME}.Manager"),
            _of(objects, "Gpu"),
            _of(objects, "Tenant"),
            objects[f"{ROOT}/health"][f"{BUS_NAME}.Health"],
        )
    )


async def show_tenants(client: Client, _: argparse.Namespace) -> None:
    """All of them."""
    print(render.tenant_table(_of(await client.objects(), "Tenant")))


async def show_fans(client: Client, _: argparse.Namespace) -> None:
    """The fans of every GPU."""
    print(render.fans(_gpus(await client.objects(), "Fans")))


async def show_profiles(client: Client, _: argparse.Namespace) -> None:
    """The profile of every GPU, whether it stands, and what could be set."""
    print(render.profiles(_gpus(await client.objects(), "Profile")))


async def make_plan(client: Client, options: argparse.Namespace) -> None:
    """Ask for a plan; nothing is done."""
    made = await client.call("PlanRelease", "sst", [options.gpu, options.tenant, options.size])
    print(render.plan(made))
    if not made["sufficient"]:
        raise CommandFailed("")


async def make_room(client: Client, options: argparse.Namespace) -> None:
    """Plan and carry out."""
    print(render.result(await client.call("MakeRoom", "sst", [options.gpu, options.tenant, options.size])))


async def release(client: Client, options: argparse.Namespace) -> None:
    """Ask one tenant for its memory."""
    ended = await client.call("Release", "s", [options.tenant], path=f"{ROOT}/tenants", interface=TENANTS)
    print(render.result(ended))


async def explain(client: Client, options: argparse.Namespace) -> None:
    """The effective definition with its sources."""
    text = await client.call("Explain", "s", [options.tenant], path=f"{ROOT}/tenants", interface=TENANTS)
    print(render.safe_lines(text))


async def lint(client: Client, options: argparse.Namespace) -> None:
    """Check tenant files, or what is installed."""
    if options.files:
        problems: list[str] = []
        for file in options.files:
            problems += await client.call("CheckDefinition", "ss", [file.name, _read(file)])
    else:
        checks = (await client.objects())[f"{ROOT}/health"][f"{BUS_NAME}.Health"]["Checks"]
        wrong = [c for c in checks if c["id"].startswith("configuration") and c["state"] != "ok"]
        problems = [c["summary"] for c in wrong]
    for problem in problems:
        print(render.safe(problem))
    if problems:
        raise CommandFailed("")
    print("no problems found")


async def monitor(client: Client, _: argparse.Namespace) -> None:
    """Signals as they come, until Ctrl-C."""
    await client.properties(ROOT, f"{BUS_NAME}.Manager")  # or nothing would ever come, and nobody would say why
    async with client.signals() as signals:
        async for message in signals:
            body: Any = plain(message.body)
            if message.member == "PropertiesChanged":
                line = render.changes(message.path or "", body[0], body[1])
            elif message.member in ("InterfacesAdded", "InterfacesRemoved"):
                line = f"{message.member}: {body[0].rsplit('/', 1)[-1]}"
            else:
                line = render.event(message.member or "", body)
            if line:
                print(line, flush=True)


async def set_automatic(client: Client, options: argparse.Namespace) -> None:
    """Act by itself, or only observe."""
    await client.call("SetAutomatic", "b", [options.state == "on"])
    print("automatic" if options.state == "on" else "observe-only: plans are made and shown, nothing is released")


async def reload(client: Client, _: argparse.Namespace) -> None:
    """Read the configuration again."""
    await client.call("Reload")
    print("reloaded")


def _of(objects: dict[str, dict[str, dict[str, Any]]], interface: str) -> list[dict[str, Any]]:
    name = f"{BUS_NAME}.{interface}"
    return [interfaces[name] for _, interfaces in sorted(objects.items()) if name in interfaces]


def _gpus(objects: dict[str, dict[str, dict[str, Any]]], interface: str) -> list[tuple[str, dict[str, Any]]]:
    """Every GPU's name with the properties of one of its interfaces."""
    gpus = [interfaces for _, interfaces in sorted(objects.items()) if f"{BUS_NAME}.Gpu" in interfaces]
    return [(each[f"{BUS_NAME}.Gpu"]["Name"], each[f"{BUS_NAME}.{interface}"]) for each in gpus]


def _read(file: Path) -> str:
    try:
        if file.stat().st_size > LONGEST_FILE:
            raise CommandFailed(f"{file} is too large for a tenant file.")
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}") from None


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="gpusupervisorctl",
        description="See and steer who holds the GPU's memory.",
        epilog="Exit codes: 0 done, 1 refused or failed, 2 wrong use, 3 the service is not running, 4 not allowed.",
    )
    top.add_argument("--version", action="version", version=__version__)
    commands = top.add_subparsers(metavar="COMMAND")
    top.set_defaults(run=show_status)

    commands.add_parser("status", help="cards, holders, who is busy and why, health (default)").set_defaults(
        run=show_status
    )
    commands.add_parser("tenants", help="every tenant: activity, holding, need").set_defaults(run=show_tenants)
    engines.add_commands(commands)
    commands.add_parser("fans", help="every fan: what is wanted of it, and whether it follows").set_defaults(
        run=show_fans
    )
    commands.add_parser("profile", help="power and clocks: what is set, whether it stands, what can be").set_defaults(
        run=show_profiles
    )
    for name, run, what in (
        ("plan", make_plan, "show what would be released, and who is in the way; nothing is done"),
        ("make-room", make_room, "plan, carry it out, and measure"),
    ):
        command = commands.add_parser(name, help=what)
        command.add_argument("tenant", nargs="?", default="", help="for whom; what it holds already counts")
        command.add_argument("--size", type=_size, default=0, help='bytes, e.g. "13G"; default: what the tenant needs')
        command.add_argument("--gpu", default="", help="UUID; default: the only one, or the tenant's")
        command.set_defaults(run=run)
    add_command(commands)
    command = commands.add_parser("release", help="ask a tenant for its memory, and measure what comes back")
    command.add_argument("tenant")
    command.set_defaults(run=release)
    command = commands.add_parser("cat", help="a tenant's effective definition, every value with its source")
    command.add_argument("tenant")
    command.set_defaults(run=explain)
    command = commands.add_parser(
        "lint", help="check tenant files before installing them; without one, what is installed"
    )
    command.add_argument("files", nargs="*", type=Path)
    command.set_defaults(run=lint)
    warm.add_command(commands)
    commands.add_parser("monitor", help="signals as they come, until Ctrl-C").set_defaults(run=monitor)
    command = commands.add_parser("automatic", help="let it act by itself, or only observe")
    command.add_argument("state", choices=("on", "off"))
    command.set_defaults(run=set_automatic)
    commands.add_parser("reload", help="read the configuration again").set_defaults(run=reload)
    return top


async def _run(options: argparse.Namespace) -> None:
    async with Client() as client:
        await options.run(client, options)


def main() -> None:
    """Entry point."""
    options = parser().parse_args()
    try:
        asyncio.run(_run(options))
        sys.stdout.flush()
    except CommandFailed as failure:
        if str(failure):
            print(render.safe_lines(failure), file=sys.stderr)
        sys.exit(failure.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's end fails once more
        sys.exit(EXIT_FAILED)


if __name__ == "__main__":
    main()
