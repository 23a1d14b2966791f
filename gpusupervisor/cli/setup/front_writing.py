"""A proxy put before a person, and into place: files of units, the unit moved behind it, the tenant's file."""

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gpusupervisor.cli import overrides
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.setup.front import Front
from gpusupervisor.cli.setup.item import Outcome
from gpusupervisor.cli.setup.toml_text import CannotExtend
from gpusupervisor.cli.setup.writing import Mode, answer

UNITS = Path("/etc/systemd/system")
PROXYD = (Path("/usr/lib/systemd/systemd-socket-proxyd"), Path("/lib/systemd/systemd-socket-proxyd"))
CURL = Path("/usr/bin/curl")
SYSTEMCTL = "systemctl"
_NOT_WITHOUT_ASKING = "it changes a service, so it is done only when you are asked: run it without --yes"


@dataclass(slots=True)
class FrontItem:
    """One proxy, and what has become of it."""

    front: Front
    tenant_file: Path
    before: str | None = None
    """What is in the tenant's file; None for no file."""
    files: dict[Path, str] = field(default_factory=dict)
    """Units' files and the tenant's last, as they will be; empty when it is left alone."""
    outcome: Outcome = "proposed"
    detail: str = ""


def drafted(front: Front) -> FrontItem:
    """A proxy with its files. Raises CommandFailed where a file cannot be read."""
    item = FrontItem(front, overrides.override(front.tenant))
    item.before = overrides.content(item.tenant_file)
    proxyd = next((each for each in PROXYD if each.exists()), None)
    if proxyd is None or not CURL.exists():
        return _left(item, f"{PROXYD[0].name if proxyd is None else CURL} is not installed")
    units = {UNITS / name: text for name, text in front.unit_files(proxyd).items()}
    there = next((path for path in units if path.exists()), None)
    if there is not None:
        return _left(item, f"there is a {there} already")
    if item.tenant_file.suffix != ".toml" or (item.before is not None and not item.before.strip()):
        return _left(item, f"{item.tenant_file} has to be changed by hand")
    try:
        item.files = {**units, item.tenant_file: front.tenant_text(item.before)}
    except CannotExtend as problem:
        return _left(item, f"{item.tenant_file}: {problem}")
    return item


def _left(item: FrontItem, why: str) -> FrontItem:
    item.outcome, item.detail = "left", why
    return item


class FrontWriter:
    """Goes through proxies one by one."""

    def __init__(self, session: Session, mode: Mode) -> None:
        self._session = session
        self._mode = mode

    async def carry_out(self, fronts: tuple[Front, ...]) -> list[FrontItem]:
        """Show each, ask where a person is to be asked, and put it in place."""
        items: list[FrontItem] = []
        for number, front in enumerate(fronts, 1):
            item = drafted(front)
            items.append(item)
            if not self._session.json:
                from gpusupervisor.cli.screens.setup import proxy

                self._session.show(*proxy(item, number, len(fronts)))
            if item.outcome == "proposed" and self._mode == "yes":
                _left(item, _NOT_WITHOUT_ASKING)
            if item.outcome == "proposed" and self._mode == "ask":
                wanted = await answer(f"Write them, and restart {front.unit} behind it now? [y/n/q] ")
                if wanted == "q":
                    self._session.say("Stopped: nothing more was written.")
                    return items
                if wanted == "n":
                    item.outcome = "declined"
                elif problems := await self._problems(item):
                    item.outcome, item.detail = "failed", " ".join(problems)
                else:
                    await self._put(item)
            if item.outcome != "proposed" and not self._session.json:
                self._session.say(f"-> {item.outcome}: {item.detail}" if item.detail else f"-> {item.outcome}")
        return items

    async def _problems(self, item: FrontItem) -> list[str]:
        """What is wrong with the tenant's file: known before anything is touched."""
        text = item.files[item.tenant_file]
        found: list[str] = await self._session.client.call("CheckDefinition", "ss", [item.tenant_file.name, text])
        return found

    async def _put(self, item: FrontItem) -> None:
        """All of it; when a step fails, what was done is undone, and the engine runs where it did."""
        front, units = item.front, [path for path in item.files if path != item.tenant_file]
        try:
            for path in units:
                _write(path, item.files[path])
            await _systemctl("daemon-reload")
            await _systemctl("stop", front.unit)
            await _systemctl("enable", "--now", f"{front.name}.socket")
            text = item.files[item.tenant_file]
            problems = await overrides.put(self._session.client, item.tenant_file, item.before, text)
        except CommandFailed as failure:
            problems = [str(failure)]
        if problems:
            item.outcome, item.detail = "failed", " ".join([*problems, *await _undone(item, units)])
            return
        item.outcome = "written"
        item.detail = f"{front.name}.socket listens at {front.listen}, and a request starts {front.unit}"


async def _undone(item: FrontItem, units: list[Path]) -> list[str]:
    """Undo it, as far as it was done; return what of that failed."""
    failures: list[str] = []
    if item.before != item.files[item.tenant_file] == overrides.content(item.tenant_file):
        overrides.restore(item.tenant_file, item.before)  # without the proxy nothing would start the unit again
    with suppress(CommandFailed):  # it may not be known yet
        await _systemctl("disable", "--now", f"{item.front.name}.socket")
    for path in units:
        path.unlink(missing_ok=True)
    with suppress(OSError):  # it may have other files
        (UNITS / f"{item.front.unit}.d").rmdir()
    for step in (("daemon-reload",), ("start", item.front.unit)):
        try:
            await _systemctl(*step)
        except CommandFailed as failure:
            failures.append(str(failure))
    return failures


async def _systemctl(*arguments: str) -> None:
    """Have systemd do it. Raises CommandFailed."""
    command = (SYSTEMCTL, "--no-ask-password", *arguments)
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise CommandFailed(f"{SYSTEMCTL} cannot be run: {error.strerror}.") from None
    _, errors = await process.communicate()
    if process.returncode:
        said = " ".join(errors.decode("utf-8", "replace").split())
        raise CommandFailed(f"{' '.join(command[:1] + arguments)} failed: {said or process.returncode}")


def _write(path: Path, text: str) -> None:
    """A new file, never in the place of one that is there. Raises CommandFailed."""
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("x") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}.") from None
