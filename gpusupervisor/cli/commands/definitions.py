"""`cat`, `edit` and `lint`: how tenants are described."""

import os
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from gpusupervisor.cli.exits import DONE, FAILED, CommandFailed
from gpusupervisor.cli.reading import read
from gpusupervisor.cli.registry import Command, argument
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.text import folded, safe_lines

if TYPE_CHECKING:
    from rich.text import Text

    from gpusupervisor.cli.client import Client

LONGEST_FILE = 256 * 1024


async def explain(session: Session) -> None:
    """The effective definition, every value with its source."""
    from gpusupervisor.cli.client import ROOT, TENANTS

    name = session.options.tenant
    text = await session.client.call("Explain", "s", [name], path=f"{ROOT}/tenants", interface=TENANTS)
    if session.json:
        return session.emit({"id": name, "definition": text})
    if not session.console.is_terminal:
        return session.say(text)
    from rich.text import Text

    shown = Text("\n").join(_with_quiet_source(line) for line in safe_lines(text).splitlines())
    return session.console.print(shown, soft_wrap=True)


def _with_quiet_source(line: str) -> "Text":
    """A line with where its value comes from in the background."""
    from rich.text import Text

    value, mark, source = line.rpartition("  # ")
    return Text.assemble(value, (mark + source, "dim")) if mark else Text(line, "dim" if line.startswith("#") else "")


async def edit(session: Session) -> int:
    """Open the override in the editor, check it, put it in place, reload."""
    from gpusupervisor.cli.editing import edit_override

    return await edit_override(session, session.options.tenant)


async def lint(session: Session) -> int:
    """Check tenant files, or what is installed. Ends with `exits.FAILED` when something is wrong.

    Files are checked here, over what is installed on this machine, so that no service is needed.
    """
    files: list[str] = session.options.files
    host: str = getattr(session.options, "host", "")
    if files and not host:
        problems = await _of_files(files, _checked_here)
    else:
        from gpusupervisor.cli.client import Client

        async with Client(host) as client:
            if files:
                problems = await _of_files(files, partial(_checked_there, client))
            else:
                problems = await _of_what_is_installed(client)
    if session.json:
        session.emit({"problems": problems})
    else:
        session.say(folded("\n".join(problems) or "No problems found.", sys.stdout))
    return FAILED if problems else DONE


async def _of_files(files: list[str], check: Callable[[str, str], Awaitable[list[str]]]) -> list[str]:
    problems: list[str] = []
    for file in files:
        problems += await check(os.path.basename(file), read(file, "tenant file", LONGEST_FILE))
    return problems


async def _checked_there(client: "Client", name: str, text: str) -> list[str]:
    problems: list[str] = await client.call("CheckDefinition", "ss", [name, text])
    return problems


async def _checked_here(name: str, text: str) -> list[str]:
    """By the service's own rules, in a process of its own: the command line shares no code with the service."""
    import asyncio
    import json

    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "gpusupervisor.tenants.examine", "--", name, stdin=pipe, stdout=pipe, stderr=pipe
    )
    told, trouble = await child.communicate(text.encode())
    if child.returncode != 0:
        why = trouble.decode(errors="replace").strip().rpartition("\n")[2] or "it takes too long"
        raise CommandFailed(f"{name} cannot be checked: {why}")
    problems: list[str] = json.loads(told)
    return problems


async def _of_what_is_installed(client: "Client") -> list[str]:
    from gpusupervisor.cli.shapes import health

    checks = health(await client.objects())["checks"]
    return [each["summary"] for each in checks if each["id"].startswith("configuration") and each["state"] != "ok"]


_NAME = argument("tenant", metavar="NAME", help="its id", completes="tenant")

COMMANDS = (
    Command("cat", "show a tenant's definition, each value with its source", explain, (_NAME,)),
    Command("edit", "edit a tenant's overrides, check and apply them", edit, (_NAME,)),
    Command(
        "lint",
        "check tenant files, or the installed ones",
        lint,
        (argument("files", metavar="FILE", help=".toml or .json", completes="file", nargs="*"),),
        connects=False,
    ),
)
