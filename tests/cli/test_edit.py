"""`gpusupervisorctl edit`: what was edited is checked, put in place whole, and in force; or nothing has changed."""

import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.cli.editing import CUT, editor
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.errors import InvalidConfiguration
from tests.bus.builders import make_state
from tests.bus.conftest import NOBODY, PrivateBus, Result, as_nobody
from tests.bus.fakes import FakeController
from tests.cli.pseudo_terminal import INTERRUPT, PseudoTerminal
from tests.daemon.station import Station

RENDERBOX = 'title = "Renderbox"\npriority = 20\n[match]\nexecutables = ["/opt/renderbox"]\n'
CODE = (
    "import sys; from pathlib import Path; from gpusupervisor.cli import main, overrides; "
    "overrides.FOLDER = Path(sys.argv.pop(1)); main.main()"
)


@dataclass
class Desk:
    """Where tenant files are, an editor that does as it is told, and a bus."""

    folder: Path
    tools: Path
    bus: PrivateBus

    @property
    def editor(self) -> Path:
        return self.tools / "editor"

    def teach(self, script: str) -> None:
        """What the editor does; $1 is the file."""
        self.editor.write_text(f"#!/bin/sh\n{script}\n")
        self.editor.chmod(0o755)

    def command(self, *arguments: str) -> tuple[str, ...]:
        return ("env", f"EDITOR={self.editor}", sys.executable, "-c", CODE, str(self.folder), "edit", *arguments)

    async def edit(self, *arguments: str, uid: int | None = None) -> Result:
        return await self.bus.run(*self.command(*arguments), uid=uid)

    def files(self) -> set[str]:
        return {file.name for file in self.folder.iterdir() if file.stat().st_size}


@pytest.fixture(scope="module")
def station() -> Iterator[Station]:
    one = Station()
    one.describe({"renderbox": RENDERBOX})
    one.daemon().wait_ready()
    yield one
    one.close()


@pytest.fixture
async def desk(station: Station, tmp_path: Path) -> AsyncIterator[Desk]:
    """With the real daemon."""
    yield Desk(station.tenants, tmp_path, station.bus)
    (station.tenants / "renderbox.toml").write_text(RENDERBOX)


async def effective(desk: Desk) -> str:
    shown = await desk.bus.run(sys.executable, "-m", "gpusupervisor.cli.main", "cat", "renderbox")
    return shown.output


async def test_what_was_edited_is_in_force(desk: Desk) -> None:
    desk.teach('cp "$1" "$0.seen"; sed -i \'s/^priority = 20/priority = 70/\' "$1"')
    done = await desk.edit("renderbox")
    file = desk.folder / "renderbox.toml"
    assert (done.status, done.output) == (0, f"{file} is written and in force.\n"), done.errors
    assert file.read_text() == RENDERBOX.replace("20", "70")
    assert file.stat().st_mode & 0o777 == 0o644
    assert "priority = 70" in await effective(desk)
    seen = Path(f"{desk.editor}.seen").read_text()
    assert seen.startswith(f"### {file}: ")
    assert seen.index('title = "Renderbox"') < seen.index(CUT) < seen.index('# title = "Renderbox"  # from')


async def test_a_new_tenant_is_described(desk: Desk) -> None:
    desk.teach('printf \'title = "New"\\n[match]\\nexecutables = ["/opt/new"]\\n\' > "$1"')
    done = await desk.edit("newcomer")
    assert done.status == 0, done.errors
    assert "newcomer.toml" in desk.files()
    (desk.folder / "newcomer.toml").unlink()


async def test_mistakes_are_told_and_change_nothing_where_nobody_can_be_asked(desk: Desk) -> None:
    desk.teach("sed -i 's/^priority = 20/priority = 300/' \"$1\"")
    done = await desk.edit("renderbox")
    assert (done.status, done.output) == (1, "")
    assert "priority" in done.errors.splitlines()[0]
    assert "Nothing was changed. What you wrote:\n\n" in done.errors
    assert "priority = 300" in done.errors
    assert (desk.folder / "renderbox.toml").read_text() == RENDERBOX


async def test_on_a_terminal_a_mistake_can_be_mended(desk: Desk) -> None:
    script = 'if [ -e "$0.twice" ]; then sed -i \'s/300/30/\' "$1"; else touch "$0.twice"; '
    desk.teach(script + "sed -i 's/^priority = 20/priority = 300/' \"$1\"; fi")
    terminal = await PseudoTerminal.run(
        *desk.command("renderbox"), environment={"DBUS_SYSTEM_BUS_ADDRESS": desk.bus.address}
    )
    await terminal.wait_for("Edit again? [Y/n]")
    terminal.press(b"\n")
    assert await terminal.end() == 0, terminal.written
    assert "priority = 30\n" in (desk.folder / "renderbox.toml").read_text()


@pytest.mark.parametrize("keys", [b"n\n", b"\x04"])
async def test_on_a_terminal_one_can_give_up(keys: bytes, desk: Desk) -> None:
    desk.teach("sed -i 's/^priority = 20/priority = 300/' \"$1\"")
    terminal = await PseudoTerminal.run(
        *desk.command("renderbox"), environment={"DBUS_SYSTEM_BUS_ADDRESS": desk.bus.address}
    )
    await terminal.wait_for("Edit again? [Y/n]")
    terminal.press(keys)
    assert await terminal.end() == 1
    assert "Traceback" not in terminal.written
    assert (desk.folder / "renderbox.toml").read_text() == RENDERBOX


async def test_ctrl_c_at_the_question_ends_it(desk: Desk) -> None:
    desk.teach("sed -i 's/^priority = 20/priority = 300/' \"$1\"")
    address = {"DBUS_SYSTEM_BUS_ADDRESS": desk.bus.address}
    terminal = await PseudoTerminal.run(*desk.command("renderbox"), environment=address)
    await terminal.wait_for("Edit again? [Y/n]")
    terminal.press(INTERRUPT)
    assert await terminal.end() == 130
    assert "Traceback" not in terminal.written


@pytest.mark.parametrize(
    ("script", "status", "told"),
    [
        ("true", 0, "Nothing was changed."),
        ("exit 3", 1, "ended with 3; nothing was changed"),
        (": > \"$1\"", 1, "It is empty, which would hide the tenant"),
    ],
)  # fmt: skip
async def test_what_is_left_as_it_was_or_given_up_changes_nothing(
    script: str, status: int, told: str, desk: Desk
) -> None:
    desk.teach(script)
    done = await desk.edit("renderbox")
    assert done.status == status
    assert told in done.output + done.errors
    assert (desk.folder / "renderbox.toml").read_text() == RENDERBOX


async def test_an_override_in_json_is_edited_as_it_is(desk: Desk) -> None:
    file = desk.folder / "boxes.json"
    file.write_text('{"title": "Boxes", "match": {"executables": ["/opt/boxes"]}}\n')
    desk.teach("sed -i 's/Boxes/Crates/' \"$1\"")
    done = await desk.edit("boxes")
    assert done.status == 0, done.errors
    assert file.read_text() == '{"title": "Crates", "match": {"executables": ["/opt/boxes"]}}\n'
    file.unlink()


async def test_somebody_elses_change_meanwhile_is_not_lost(desk: Desk) -> None:
    desk.teach(f"echo 'priority = 1' > {desk.folder}/renderbox.toml; sed -i 's/= 20/= 70/' \"$1\"")
    done = await desk.edit("renderbox")
    assert done.status == 1
    assert "was changed by somebody else meanwhile" in done.errors
    assert "priority = 70" in done.errors
    assert (desk.folder / "renderbox.toml").read_text() == "priority = 1\n"


@pytest.mark.parametrize("name", ["../passwd", "a/b", ".hidden", "-x", "x" * 65])
async def test_what_is_no_tenants_name_is_no_file(name: str, desk: Desk) -> None:
    desk.teach("touch \"$0.ran\"")  # fmt: skip
    done = await desk.edit("--", name)
    assert done.status == 2, done.errors
    assert not Path(f"{desk.editor}.ran").exists()


@as_nobody
async def test_who_may_not_write_is_told_before_anything_is_opened(desk: Desk) -> None:
    desk.teach("touch \"$0.ran\"")  # fmt: skip
    done = await desk.edit("renderbox", uid=NOBODY)
    assert done.status == 4
    assert "sudo gpusupervisorctl edit renderbox" in done.errors


@pytest.fixture
def plain_desk(bus: PrivateBus, tmp_path: Path) -> Desk:
    """With a service whose reloads fail as a test wants."""
    folder = tmp_path / "tenants.d"
    folder.mkdir()
    return Desk(folder, tmp_path, bus)


async def accept_everything(_name: str, _text: str) -> tuple[str, ...]:
    return ()


async def test_a_reload_that_fails_because_of_it_puts_the_old_file_back(
    plain_desk: Desk, service: BusService, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        raise InvalidConfiguration("ollama.toml: priority: is too much")

    monkeypatch.setattr(controller, "check_definition", accept_everything)
    monkeypatch.setattr(controller, "reload", refuse)
    service.publish(make_state())
    plain_desk.teach("echo 'priority = 99' > \"$1\"")
    done = await plain_desk.edit("ollama")
    assert done.status == 1
    assert "is too much" in done.errors
    assert plain_desk.files() == set()
    (plain_desk.folder / "ollama.toml").write_text("priority = 3\n")
    assert (await plain_desk.edit("ollama")).status == 1
    assert (plain_desk.folder / "ollama.toml").read_text() == "priority = 3\n"
    assert plain_desk.files() == {"ollama.toml"}


async def test_a_reload_that_fails_because_of_another_file_keeps_it_and_says_so(
    plain_desk: Desk, service: BusService, controller: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        raise InvalidConfiguration("comfyui.toml: title: is missing")

    monkeypatch.setattr(controller, "check_definition", accept_everything)
    monkeypatch.setattr(controller, "reload", refuse)
    service.publish(make_state())
    plain_desk.teach("echo 'priority = 99' > \"$1\"")
    done = await plain_desk.edit("ollama")
    assert done.status == 1
    assert "is written, and not in force yet: comfyui.toml" in done.errors
    assert (plain_desk.folder / "ollama.toml").read_text() == "priority = 99\n"


def test_the_editor_is_the_persons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert editor({"EDITOR": "vim -n", "VISUAL": "x"}, on_terminal=True) == ["vim", "-n"]
    assert editor({"SYSTEMD_EDITOR": "nano", "EDITOR": "vim"}, on_terminal=True) == ["nano"]
    assert editor({"EDITOR": " ", "VISUAL": "emacs"}, on_terminal=False) == ["emacs"], "it may well be a script"
    with pytest.raises(CommandFailed, match="no terminal to edit on"):
        editor({}, on_terminal=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(CommandFailed, match="set \\$EDITOR"):
        editor({}, on_terminal=True)
