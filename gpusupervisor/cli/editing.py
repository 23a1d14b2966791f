"""`gpusupervisorctl edit`: a tenant's override in /etc, edited as `systemctl edit` edits a drop-in.

The editor gets a copy with the effective definition as comments. What comes back is checked by the service, put in
place in one step, and reloaded; until then nothing is changed, and a reload that fails because of it puts the old file
back.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gpusupervisor.cli import overrides
from gpusupervisor.cli.asking import ask
from gpusupervisor.cli.exits import DONE, FAILED, NOT_ALLOWED, WRONG_USE, CommandFailed
from gpusupervisor.cli.failures import Place
from gpusupervisor.cli.session import Session

EDITORS = ("editor", "nano", "vim", "vi")
CUT = "### Below this line nothing is kept."
TEMPLATE = """\
# title = "Renderbox"               # its name for people; required
# priority = 50                     # 0 to 100; asked only on behalf of something more important
# needs-vram = "9G"                 # what it needs in total while it works; learned where it is left out

# How its processes are recognised: any of these; * ? [abc] are patterns.
# [match]
# units = ["renderbox.service"]
# executables = ["/opt/renderbox/bin/*"]

# Whether it is working. Without a probe that says so it is never asked.
# [[activity.probes]]
# kind = "sm-utilization"           # or http, prometheus, vram, cpu

# How it is asked for its memory. Without a method it never is.
# [endpoint]
# url = "http://127.0.0.1:9000"
# [[release]]
# method = "http"
# post = "/unload"""
"""The draft for a tenant that no file describes yet."""
_NAME = re.compile(r"[A-Za-z0-9_:@][A-Za-z0-9._:@-]{0,63}", re.ASCII)


async def edit_override(session: Session, name: str) -> int:
    """Edit until it is right or given up; an exit code. Raises CommandFailed before anything is opened or changed."""
    _check_can_edit(session, name)
    file = overrides.override(name)
    before = overrides.content(file)
    draft = _draft(file, before or "", await _effective(session, name))
    with tempfile.TemporaryDirectory(prefix="gpusupervisorctl-") as folder:
        copy = _copy(folder, file, draft)
        offered = _kept(copy)
        while True:
            _open_editor(copy)
            text = _kept(copy)
            if text == offered:
                session.say("Nothing was changed.")
                return DONE
            problems = await _put(session, file, before, text)
            if not problems:
                return DONE
            session.note("\n".join(problems))
            if not await _again():
                session.note(f"Nothing was changed. What you wrote:\n\n{text}")
                return FAILED


def _check_can_edit(session: Session, name: str) -> None:
    if host := getattr(session.options, "host", ""):
        command = Place(host).command(f"sudo gpusupervisorctl edit {name}", terminal=True)
        raise CommandFailed(f"Tenant files are edited on the machine itself: {command}", WRONG_USE)
    if not _NAME.fullmatch(name):
        raise CommandFailed(f"{name!r} cannot be a tenant's id; use letters, digits and . _ : @ -", WRONG_USE)
    if not overrides.can_be_written():
        raise CommandFailed(f"Only root may write {overrides.FOLDER}: sudo gpusupervisorctl edit {name}", NOT_ALLOWED)
    if session.json:
        raise CommandFailed("edit is interactive and has no --json.", WRONG_USE)


async def _effective(session: Session, name: str) -> str:
    """The definition in force; empty for a tenant that is not described yet."""
    from gpusupervisor.cli.client import ROOT, TENANTS

    listed = await session.client.call("List", path=f"{ROOT}/tenants", interface=TENANTS)
    if name not in listed:
        return ""
    text: str = await session.client.call("Explain", "s", [name], path=f"{ROOT}/tenants", interface=TENANTS)
    return text


def _draft(file: Path, before: str, effective: str) -> str:
    """What the editor shows. JSON has no comments, so there it is the file alone."""
    if file.suffix == ".json":
        return before
    if effective:
        head, body = "only what is to differ, key by key", before.strip()
        about = "In force now:\n" + "\n".join(f"# {line}".rstrip() for line in effective.splitlines())
    else:
        head, body = "a new tenant", before.strip() or TEMPLATE
        about = "All keys are in gpusupervisor-tenant(5)."
    return f"### {file}: {head}.\n\n{body}\n\n{CUT}\n### {about}\n"


def _copy(folder: str, file: Path, draft: str) -> Path:
    """A copy of the file's name, so that the editor knows the language."""
    copy = Path(folder, file.name)
    copy.write_text(draft)
    return copy


def _kept(copy: Path) -> str:
    """What was written above the line, without our own comments; ends in a line end unless it is empty."""
    text = (overrides.content(copy) or "").split(CUT, 1)[0]
    kept = "\n".join(line for line in text.splitlines() if not line.startswith("### ")).strip()
    return f"{kept}\n" if kept else ""


def editor(environment: Mapping[str, str], *, on_terminal: bool) -> list[str]:
    """The command of the editor: $SYSTEMD_EDITOR, $EDITOR, $VISUAL, or what is installed and needs a terminal."""
    for variable in ("SYSTEMD_EDITOR", "EDITOR", "VISUAL"):
        if words := shlex.split(environment.get(variable, "")):
            return words
    if not on_terminal:
        raise CommandFailed("There is no terminal to edit on: write the file itself, or set $EDITOR.", WRONG_USE)
    for program in EDITORS:
        if shutil.which(program):
            return [program]
    raise CommandFailed("There is no editor: set $EDITOR.")


def _open_editor(copy: Path) -> None:
    command = editor(os.environ, on_terminal=sys.stdin.isatty() and sys.stdout.isatty())
    try:
        code = subprocess.run([*command, str(copy)], check=False).returncode  # noqa: S603  (the person's own editor)
    except OSError as error:
        raise CommandFailed(f"The editor {command[0]} cannot be started: {error.strerror}") from None
    if code:
        raise CommandFailed(f"The editor {command[0]} ended with {code}; nothing was changed.")


async def _put(session: Session, file: Path, before: str | None, text: str) -> list[str]:
    """Put it in place and in force. Returns what is wrong with the text; nothing is changed then."""
    if not text:
        return [f"It is empty, which would hide the tenant. To go back to what is shipped, remove the file: rm {file}"]
    problems = await overrides.put(session.client, file, before, text)
    if not problems:
        session.say(f"{file} is written and in force.")
    return problems


async def _again() -> bool:
    """Whether the person wants to go on; nobody there does not."""
    if not sys.stdin.isatty():
        return False
    try:
        return await ask("Edit again? [Y/n] ") in ("", "y", "yes")
    except EOFError:
        return False
