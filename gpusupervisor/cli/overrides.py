"""Tenant files in /etc, written whole or not at all, checked by the service before and put in force after."""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpusupervisor.cli.exits import CommandFailed

if TYPE_CHECKING:
    from gpusupervisor.cli.client import Client

FOLDER = Path("/etc/gpusupervisor/tenants.d")


def can_be_written() -> bool:
    """Whether we may write there."""
    existing = next(each for each in (FOLDER, *FOLDER.parents) if each.exists())
    return os.access(existing, os.W_OK)


def override(name: str) -> Path:
    """A tenant's file, there or not: .toml unless there is one in JSON."""
    json = FOLDER / f"{name}.json"
    return json if json.exists() else FOLDER / f"{name}.toml"


def content(file: Path) -> str | None:
    """Its text; None when it is not there."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CommandFailed(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise CommandFailed(f"{file} cannot be read: it is not text in UTF-8.") from None


async def put(client: "Client", file: Path, before: str | None, text: str) -> list[str]:
    """Check, put in place, reload. before: what was there when the text was made, None for no file.

    Returns what is wrong with the text; nothing is changed then. Raises CommandFailed when it cannot be written, and
    when it is and cannot be put in force.
    """
    problems: list[str] = await client.call("CheckDefinition", "ss", [file.name, text])
    if problems:
        return problems
    if content(file) != before:
        raise CommandFailed(f"{file} was changed by somebody else meanwhile; nothing was written.\n\n{text}")
    _write(file, text, is_new=before is None)
    try:
        await client.call("Reload")
    except CommandFailed as failure:
        if file.name not in str(failure):
            raise CommandFailed(f"{file} is written, and not in force yet: {failure}", failure.exit_code) from None
        restore(file, before)
        return str(failure).splitlines()
    return []


def restore(file: Path, before: str | None) -> None:
    """Put it back as it was; None for no file. Raises CommandFailed."""
    if before is None:
        file.unlink()
    else:
        _write(file, before, is_new=False)


def _write(file: Path, text: str, *, is_new: bool) -> None:
    """In one step, and kept over a power cut; a name of its own until then, which the service does not read.

    A new one never takes the place of a file that has appeared meanwhile.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "w") as written:
                written.write(text)
                written.flush()
                os.fchmod(descriptor, 0o644)
                os.fsync(descriptor)
            if is_new:
                os.link(temporary, file)
            else:
                os.replace(temporary, file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be written: {error.strerror}.") from None
