"""The Debian package in a clean booted machine: installed, upgraded, removed, purged, as apt's dpkg does it."""

import json
import os
import platform
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.system.conftest import BUS_NAME, HELPER_UNIT, ROOT, UNIT
from tests.system.machine import REPOSITORY, SOURCE, Machine
from tests.system.test_controls import call
from tests.system.test_simulated_card import CARD, DROP_INS, OF_HELPER, PYTHON

OVERRIDE = "/etc/gpusupervisor/tenants.d/ollama.toml"
VERSION = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]

for tool in ("dpkg-buildpackage", "dh", "lintian"):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed", allow_module_level=True)


def run(*argv: str, cwd: Path = REPOSITORY) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(wheels: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make deb` builds it."""
    run("make", "deb")
    (built,) = (REPOSITORY / "build/deb").glob("*.deb")
    return Path(shutil.copy(built, tmp_path_factory.mktemp("deb")))


@pytest.fixture(scope="module")
def newer_package(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The next version: the same with another number and one changed file."""
    folder = tmp_path_factory.mktemp("newer")
    run("dpkg-deb", "--raw-extract", str(package), str(folder / "tree"))
    control = folder / "tree/DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {VERSION}+next", control.read_text()))
    readme = next((folder / "tree/usr/share/doc/gpusupervisor").glob("README*"))
    readme.write_bytes(readme.read_bytes() + b"\n")
    run("dpkg-deb", "--root-owner-group", "--build", str(folder / "tree"), str(folder / "next.deb"))
    return folder / "next.deb"


def give(machine: Machine, package: Path) -> str:
    """Copy a package into the machine."""
    inside = f"/var/tmp/{package.name}"
    subprocess.run(
        ["nsenter", f"--target={machine.leader}", "--all", "dd", "status=none", f"of={inside}"],
        input=package.read_bytes(),
        check=True,
    )
    return inside


def dpkg(machine: Machine, *arguments: str) -> None:
    machine.run("dpkg", *arguments, environment={"DEBIAN_FRONTEND": "noninteractive"}, timeout=120)


def serves(machine: Machine) -> bool:
    listed = machine.run("busctl", "call", BUS_NAME, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants", "List", check=False)
    return '"ollama"' in listed.stdout


def main_pid(machine: Machine) -> str:
    return machine.property(UNIT, "MainPID")


def test_lintian_finds_no_error_and_no_warning_that_is_not_explained(package: Path) -> None:
    run("lintian", "--fail-on", "error,warning", "--allow-root", str(package))


def test_the_version_is_the_same_in_all_places(package: Path) -> None:
    assert run("dpkg-parsechangelog", "-l", ".debian/changelog", "-S", "Version").strip() == VERSION
    built = run("dpkg-deb", "--field", str(package), "Version").strip()
    assert built.startswith(f"{VERSION}~"), "and says for which release it is"
    release = platform.freedesktop_os_release()
    assert release["ID"] in built or f"~deb{release['VERSION_ID']}u" in built
    named = f"gpusupervisor_{built}_{run('dpkg', '--print-architecture').strip()}"
    beside = {path.name for path in (REPOSITORY / "build/deb").glob("gpusupervisor_*")}
    assert beside == {f"{named}.deb", f"{named}.changes", f"{named}.buildinfo"}


def test_what_is_for_the_next_release_of_the_system_is_newer(package: Path) -> None:
    built = run("dpkg-deb", "--field", str(package), "Version").strip()
    later = re.sub(r"~(deb|ubuntu)(\d+)", lambda found: f"~{found[1]}{int(found[2]) + 1}", built)
    assert later != built
    run("dpkg", "--compare-versions", later, "gt", built)
    run("dpkg", "--compare-versions", VERSION, "gt", later)


def test_the_python_of_the_next_release_can_run_it(package: Path) -> None:
    contents = run("dpkg-deb", "--contents", str(package))
    bounds = re.findall(r"python3 \((>=|<<) 3\.(\d+)\)", run("dpkg-deb", "--field", str(package), "Depends"))
    (_, least), (_, beyond) = bounds
    assert int(beyond) == int(least) + 3
    for minor in range(int(least), int(beyond)):
        assert f"/usr/lib/gpusupervisor/venv/lib/python3.{minor} -> python3\n" in contents
    for compiled in re.findall(r"(\S+)\.cpython-\S+\.so\n", contents):
        assert f"{compiled}.py\n" in contents, "what this Python alone can load has a plain module beside it"


def test_documents_that_the_unit_and_the_manuals_name_come_along(package: Path) -> None:
    contents = run("dpkg-deb", "--contents", str(package))
    for name in ("README.md", "examples/gpusupervisor.toml", "examples/example.toml.example"):
        assert f"/usr/share/doc/gpusupervisor/{name}\n" in contents


def test_libraries_that_the_release_has_are_shared_and_the_others_travel_along(package: Path) -> None:
    depends = run("dpkg-deb", "--field", str(package), "Depends")
    assert "python3-psutil (>= " in depends
    contents = run("dpkg-deb", "--contents", str(package))
    assert "/site-packages/dbus_fast/" in contents
    assert "/site-packages/psutil/" not in contents


@pytest.fixture
def debian(bare_machine: Machine) -> Machine:
    """A machine that starts services as they are installed, whatever a container's image says."""
    bare_machine.run("rm", "-f", "/usr/sbin/policy-rc.d")
    return bare_machine


def test_installed_upgraded_removed_and_purged(debian: Machine, package: Path, newer_package: Path) -> None:
    machine = debian
    dpkg(machine, "--install", give(machine, package))
    assert machine.output("systemctl", "is-active", UNIT) == "active", "started by the installation itself"
    assert machine.output("systemctl", "is-enabled", UNIT) == "enabled"
    machine.wait_until("it serves", lambda: serves(machine), UNIT)
    assert machine.property(UNIT, "NRestarts") == "0"
    assert machine.output("gpusupervisorctl", "--help").startswith("usage: gpusupervisorctl")
    assert machine.output("stat", "--format=%U:%G %a", "/etc/gpusupervisor/keys") == "root:gpusupervisor 750"

    first = main_pid(machine)
    machine.write(OVERRIDE, "priority = 77\n")
    machine.run("busctl", "call", BUS_NAME, ROOT, f"{BUS_NAME}.Manager", "Reload")
    dpkg(machine, "--install", give(machine, newer_package))
    machine.wait_until("the new version serves", lambda: serves(machine) and main_pid(machine) != first, UNIT)
    shown = machine.output("busctl", "--json=short", "call", BUS_NAME, f"{ROOT}/tenants", f"{BUS_NAME}.Tenants",
                           "Get", "s", "ollama")  # fmt: skip
    assert json.loads(shown)["data"][0]["Priority"]["data"] == 77

    dpkg(machine, "--remove", "gpusupervisor")
    assert machine.property(UNIT, "LoadState") == "not-found"
    assert machine.property(HELPER_UNIT, "ActiveState") == "inactive"
    assert not machine.run("pgrep", "-f", "gpusupervisor/venv", check=False).stdout
    assert machine.output("cat", OVERRIDE) == "priority = 77"
    assert machine.run("test", "-d", "/var/lib/gpusupervisor", check=False).returncode == 0

    dpkg(machine, "--purge", "gpusupervisor")
    folders = ("/etc", "/run", "/usr", "/var/cache", "/var/lib")
    left = machine.output(
        "find", *folders, "-xdev", "-path", SOURCE, "-prune", "-o", "-name", "*gpusupervisor*", "-print"
    )
    assert not left
    assert machine.output("getent", "passwd", "gpusupervisor").endswith("nologin"), "its number stays taken"


def test_removed_while_nothing_runs_and_installed_again(debian: Machine, package: Path) -> None:
    machine = debian
    inside = give(machine, package)
    dpkg(machine, "--install", inside)
    machine.run("systemctl", "disable", "--now", UNIT)
    dpkg(machine, "--remove", "gpusupervisor")
    dpkg(machine, "--install", inside)
    assert machine.run("systemctl", "is-enabled", UNIT, check=False).stdout.strip() == "disabled", "as its admin chose"


PACKAGED = "/usr/lib/gpusupervisor/venv/bin/python"


def fan_on_card(machine: Machine) -> tuple[bool, int]:
    """Whether the first fan is held, and at what, as the card's own file tells without anything of ours installed."""
    (of_gpu,) = json.loads(machine.output("cat", f"{CARD}/settings.json"))["gpus"].values()
    return of_gpu["fans"][0]["manual"], of_gpu["fans"][0]["target"]


@pytest.mark.parametrize("argument", ["--remove", "--purge"])
def test_removed_while_the_helper_holds_a_fan_gives_it_back(debian: Machine, package: Path, argument: str) -> None:
    machine = debian
    dpkg(machine, "--install", give(machine, package))
    machine.run(
        PACKAGED, "-c", f"from gpusupervisor.simulation.nvml import SimulatedCard as C; C({CARD!r}).write_card()"
    )
    for path, program in DROP_INS.items():
        command = f"{PACKAGED} -m gpusupervisor.simulation.{program} --card {CARD}"
        of_helper = OF_HELPER.replace(PYTHON, PACKAGED) if HELPER_UNIT in path else ""
        machine.write(path, f"[Service]\nExecStart=\nExecStart={command}\n{of_helper}")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "stop", UNIT, HELPER_UNIT)
    machine.run("systemctl", "start", UNIT)
    machine.wait_until("the fan is held", lambda: not call(machine, "Fans", "SetFixed", "uu", "0", "60"), UNIT)
    assert fan_on_card(machine) == (True, 60)
    dpkg(machine, argument, "gpusupervisor")
    assert machine.property(HELPER_UNIT, "ActiveState") == "inactive"
    assert not fan_on_card(machine)[0]
