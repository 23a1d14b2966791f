"""`gpusupervisorctl setup` from one end to the other: the real service over a simulated card, real processes, and units
as systemd tells of them.
"""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gpusupervisor.simulation.engines.launch import disguised_python
from tests.bus.conftest import NOBODY, Result, as_nobody
from tests.cli.fake_systemd import FakeSystemd, Unit
from tests.cli.pseudo_terminal import INTERRUPT, PseudoTerminal
from tests.daemon.station import Station, wait_until

CODE = (
    "import sys; from pathlib import Path; from gpusupervisor.cli import main, overrides; "
    "overrides.FOLDER = Path(sys.argv.pop(1)); main.main()"
)
NO_USER_BUS = "DBUS_SESSION_BUS_ADDRESS=unix:path=/nonexistent"
RENDERBOX = """\
# renderbox held 2.0 GiB of VRAM and belonged to no tenant.
title = "renderbox"
# To have room made for it, say what it needs, as in: needs-vram = "8G"

[match]
executables = ["*/renderbox"]
"""


class Machine:
    """An Ollama at another port than usual, and a program that nobody has described."""

    def __init__(self, station: Station) -> None:
        self.station = station
        self.tenants = station.tenants
        (station.tenants / "ollama.toml").unlink()
        executable = disguised_python(station.folder / "bin" / "renderbox")
        station.engine("third_app", "--port", "0", "--hold", "2G", executable=executable)
        self.ollama = station.engine("ollama", "--port", "0")
        port = self.ollama.url.rpartition(":")[2]
        self.units = [
            Unit("ollama.service", command=["/usr/bin/ollama", "serve"], environment=[f"OLLAMA_HOST=127.0.0.1:{port}"]),
            Unit("ssh.service", command=["/usr/sbin/sshd", "-D"]),
            Unit("ollama-old.service", "stopped"),
        ]
        daemon = station.daemon().wait_ready()
        wait_until(lambda: any("2.0 of 24.0" in text for text in daemon.systemd.statuses()), "the memory is seen")

    def command(self, *arguments: str) -> tuple[str, ...]:
        return ("env", NO_USER_BUS, sys.executable, "-c", CODE, str(self.tenants), "setup", *arguments)

    async def setup(self, *arguments: str, uid: int | None = None) -> Result:
        return await self.station.bus.run(*self.command(*arguments), uid=uid)

    async def terminal(self) -> PseudoTerminal:
        address = {"DBUS_SYSTEM_BUS_ADDRESS": self.station.bus.address}
        return await PseudoTerminal.run(*self.command(), environment=address)

    def files(self) -> set[str]:
        """Tenant files that say something, hidden ones too."""
        return {file.name for file in self.tenants.iterdir() if file.stat().st_size}


@pytest.fixture(scope="module")
def machine_of_all() -> Iterator[Machine]:
    station = Station()
    yield Machine(station)
    station.close()


@pytest.fixture
async def machine(machine_of_all: Machine) -> AsyncIterator[Machine]:
    """With its systemd, and as it was before."""
    systemd = await FakeSystemd.on(machine_of_all.station.bus.address, machine_of_all.units)
    yield machine_of_all
    await systemd.leave()
    for name in machine_of_all.files():
        (machine_of_all.tenants / name).unlink()
    assert (await machine_of_all.station.bus.call("/org/gpusupervisor1", "Manager", "Reload")).status == 0


async def test_what_is_missing_is_proposed_written_in_force_and_not_proposed_again(machine: Machine) -> None:
    url = machine.ollama.url
    shown = await machine.setup("--dry-run")
    assert (shown.status, shown.errors) == (0, "Nothing was written (--dry-run).\n")
    assert machine.files() == set()
    row = next(line for line in shown.output.splitlines() if "unit ollama.service" in line)
    assert row.split()[:4] == ["ollama", "unit", "ollama.service", "running"]
    assert "ssh" not in shown.output
    assert f"    # unit ollama.service listens at {url}, not\n    # http://127.0.0.1:11434\n" in shown.output

    done = await machine.setup("--yes")
    assert (done.status, done.errors) == (0, ""), done.errors
    assert machine.files() == {"ollama.toml", "renderbox.toml"}
    assert f'url = "{url}"\n' in (machine.tenants / "ollama.toml").read_text()
    assert (machine.tenants / "renderbox.toml").read_text().startswith(RENDERBOX)
    assert (machine.tenants / "renderbox.toml").stat().st_mode & 0o777 == 0o644

    before = {name: (machine.tenants / name).stat().st_mtime_ns for name in machine.files()}
    again = await machine.setup("--yes")
    assert again.status == 0
    assert "Nothing to propose.\n" in again.output
    assert f"answers at {url}\n" in again.output
    assert "belongs to no tenant" not in again.output
    assert again.output.endswith("watch it live with gpusupervisorctl top.\n")
    assert {name: (machine.tenants / name).stat().st_mtime_ns for name in machine.files()} == before


async def test_without_a_terminal_nothing_is_written_and_it_says_so(machine: Machine) -> None:
    done = await machine.setup()
    assert (done.status, done.errors) == (
        0, "Nothing was written: there is no terminal to ask on. --yes writes tenant files without asking.\n",
    )  # fmt: skip
    assert machine.files() == set()


async def test_json_has_all_of_it(machine: Machine) -> None:
    shape = json.loads((await machine.setup("--json")).output)
    assert [(each["unit"], each["state"], each["tenant"]) for each in shape["units"]] == [
        ("ollama.service", "active", "ollama")
    ]
    [stranger] = shape["strangers"]
    assert (stranger["name"], stranger["used"]) == ("renderbox", 2 << 30)
    assert [(Path(each["file"]).name, each["outcome"], each["extends"]) for each in shape["proposals"]] == [
        ("ollama.toml", "proposed", False), ("renderbox.toml", "proposed", False),
    ]  # fmt: skip
    done = json.loads((await machine.setup("--json", "--yes")).output)
    assert [each["outcome"] for each in done["proposals"]] == ["written", "written"]
    assert machine.files() == {"ollama.toml", "renderbox.toml"}


async def test_on_a_terminal_each_file_is_asked_for(machine: Machine) -> None:
    terminal = await machine.terminal()
    await terminal.wait_for("Write it? [y/n/q]")
    terminal.press(b"what\n")
    await terminal.wait_for("Write it? [y/n/q]", 2)
    terminal.press(b"n\n")
    await terminal.wait_for("-> declined")
    await terminal.wait_for("Write it? [y/n/q]", 3)
    terminal.press(b"yes\n")
    assert await terminal.end() == 0, terminal.written
    assert f"-> written: {machine.tenants}/renderbox.toml is in force" in terminal.written
    assert machine.files() == {"renderbox.toml"}


@pytest.mark.parametrize(("keys", "code"), [(b"q\n", 0), (b"\x04", 0), (INTERRUPT, 130)])
async def test_on_a_terminal_one_can_stop_and_keeps_what_was_written(keys: bytes, code: int, machine: Machine) -> None:
    terminal = await machine.terminal()
    await terminal.wait_for("Write it? [y/n/q]")
    terminal.press(b"y\n")
    await terminal.wait_for("Write it? [y/n/q]", 2)
    terminal.press(keys)
    assert await terminal.end() == code, terminal.written
    assert "Traceback" not in terminal.written
    assert terminal.written.endswith("\n")
    assert machine.files() == {"ollama.toml"}


async def test_a_persons_file_is_extended_only_when_the_person_is_asked_and_sees_what_changes(machine: Machine) -> None:
    theirs = "# mine\npriority = 70\n\n[endpoint]  # odd\nport-flags = []\n"
    file = machine.tenants / "ollama.toml"
    file.write_text(theirs)
    done = await machine.setup("--yes")
    assert done.status == 0
    assert "-> left: a file that is there is extended only when you are asked: run it without --yes" in done.output
    assert file.read_text() == theirs
    terminal = await machine.terminal()
    await terminal.wait_for("Extend the file? [y/n/q]")
    assert f'+url = "{machine.ollama.url}"' in terminal.written
    assert " priority = 70" in terminal.written
    assert file.read_text() == theirs
    terminal.press(b"y\n")
    assert await terminal.end() == 0, terminal.written
    reason = f"# unit ollama.service listens at {machine.ollama.url}, not\n# http://127.0.0.1:11434\n"
    assert file.read_text() == theirs.replace("odd\n", f'odd\n{reason}url = "{machine.ollama.url}"\n')


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("renderbox.toml", "", "the file is empty, which hides the tenant"),
        ("renderbox.toml", "title = 3\n", "there is a file already"),
        ("renderbox.json", "{ broken", "there is a file already"),
    ],
)
async def test_a_file_that_is_there_is_left_alone(name: str, text: str, told: str, machine: Machine) -> None:
    file = machine.tenants / name
    file.write_text(text)
    done = await machine.setup("--yes")
    assert f"-> left: {told}" in done.output
    assert file.read_text() == text
    assert not (machine.tenants / "renderbox.toml").exists() or name == "renderbox.toml"
    file.unlink()


@as_nobody
async def test_who_may_not_write_sees_everything_and_is_told(machine: Machine) -> None:
    done = await machine.setup("--yes", uid=NOBODY)
    assert done.status == 4
    assert done.errors.endswith("takes root. Run: sudo gpusupervisorctl setup --yes\n")
    assert 'executables = ["*/renderbox"]' in done.output
    looked = await machine.setup("--dry-run", uid=NOBODY)
    assert (looked.status, looked.errors) == (0, "Nothing was written (--dry-run).\n")
    assert machine.files() == set()


async def test_without_a_systemd_the_rest_is_found_all_the_same(machine_of_all: Machine) -> None:
    done = await machine_of_all.setup("--dry-run")
    assert done.status == 0
    assert "! System services were not checked: systemd does not answer." in done.output
    assert "renderbox.toml" in done.output


async def test_when_the_service_does_not_run_it_says_what_to_do(tmp_path: Path, machine_of_all: Machine) -> None:
    done = await machine_of_all.station.bus.run(
        "env", f"DBUS_SYSTEM_BUS_ADDRESS=unix:path={tmp_path}/none", sys.executable, "-c", CODE, str(tmp_path), "setup"
    )
    assert (done.status, done.output) == (3, "")
    assert done.errors.startswith("No system bus to talk to")


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from gpusupervisor.cli import overrides

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

class Client:
    async def call(self, member, *_):
        if member == sys.argv[2]:
            die()
        return []

if hasattr(os, sys.argv[2]):
    setattr(os, sys.argv[2], die)
folder = Path(sys.argv[1])
before = overrides.content(folder / "old.toml")
asyncio.run(overrides.put(Client(), folder / "old.toml", before, "b" * 100_000))
"""


@pytest.mark.parametrize("where", ["CheckDefinition", "fchmod", "fsync", "replace", "Reload"])
def test_killed_in_the_middle_it_leaves_the_old_file_or_the_new_one(where: str, tmp_path: Path) -> None:
    (tmp_path / "old.toml").write_text("a" * 50_000)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), where], check=False)
    assert done.returncode == -signal.SIGKILL
    visible = {file.name: file.read_text() for file in tmp_path.iterdir() if not file.name.startswith(".")}
    assert visible == {"old.toml": "b" * 100_000 if where == "Reload" else "a" * 50_000}


@pytest.mark.parametrize("where", ["CheckDefinition", "fchmod", "fsync", "link", "Reload"])
def test_killed_in_the_middle_a_new_file_is_there_whole_or_not_at_all(where: str, tmp_path: Path) -> None:
    code = KILLED.replace("old.toml", "new.toml")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), where], check=False)
    assert done.returncode == -signal.SIGKILL
    visible = {file.name: file.read_text() for file in tmp_path.iterdir() if not file.name.startswith(".")}
    assert visible == ({"new.toml": "b" * 100_000} if where == "Reload" else {})
