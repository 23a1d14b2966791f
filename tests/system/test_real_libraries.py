"""The real libraries beneath the installed services, in their own hardened units, on a machine without a driver."""

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nvml_archive import PACKAGES, Library, libraries
from tests.system.conftest import BUS_NAME, HELPER_UNIT, ROOT, UNIT
from tests.system.machine import Machine
from tests.system.test_simulated_card import stop_both

FOLDER = "/usr/lib/nvml-of-a-test"
DROP_INS = [f"/run/systemd/system/{unit}.d/nvml.conf" for unit in (UNIT, HELPER_UNIT)]


@pytest.fixture(scope="module")
def hosted(machine: Machine) -> Iterator[Machine]:
    """Both services load the library that is at FOLDER."""
    found = libraries()
    if isinstance(found, str):
        pytest.skip(f"the real libraries cannot be had: {found}")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver")
    for path in DROP_INS:
        machine.write(path, f"[Unit]\nStartLimitIntervalSec=0\n[Service]\nEnvironment=LD_LIBRARY_PATH={FOLDER}\n")
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "enable", "--quiet", UNIT)
    machine.run("systemctl", "start", UNIT)
    yield machine
    machine.run("rm", "-rf", *DROP_INS, FOLDER)
    machine.run("systemctl", "daemon-reload")
    stop_both(machine)
    machine.run("systemctl", "start", UNIT)


def install(machine: Machine, library: Library) -> None:
    """Put a library where both units look for it, and start them anew."""
    script = f"rm -rf {FOLDER}; mkdir -p {FOLDER}; base64 -d > {FOLDER}/{library.file.name}; " + (
        f"ln -s {library.file.name} {FOLDER}/libnvidia-ml.so.1"
    )
    machine.run("sh", "-ec", script, stdin=base64.b64encode(library.file.read_bytes()).decode())
    stop_both(machine)
    machine.run("systemctl", "start", UNIT)


def is_mapped(machine: Machine, unit: str, library: Library) -> bool:
    """Whether the unit's process has the library, under all that its unit forbids."""
    pid = machine.property(unit, "MainPID")
    return library.file.name in machine.run("cat", f"/proc/{pid}/maps", check=False).stdout


@pytest.mark.parametrize("branch", sorted(PACKAGES))
def test_both_units_load_the_library_and_understand_that_there_is_no_driver(hosted: Machine, branch: str) -> None:
    found = libraries()
    assert isinstance(found, dict)
    library = found[branch]
    install(hosted, library)
    hosted.wait_until("the library is loaded", lambda: is_mapped(hosted, UNIT, library), UNIT)
    state = ("busctl", "get-property", BUS_NAME, ROOT, f"{BUS_NAME}.Manager", "Status")
    hosted.wait_until("that it is understood", lambda: "Driver not loaded" in hosted.output(*state), UNIT)
    helper = ("busctl", "call", f"{BUS_NAME}.Helper", f"{ROOT}/Helper", f"{BUS_NAME}.Helper", "State")
    refused = hosted.run(*helper, check=False)
    assert "Driver not loaded" in refused.stderr
    assert is_mapped(hosted, HELPER_UNIT, library)
    assert hosted.run("test", "-e", "/dev/nvidiactl", check=False).returncode == 1, "nothing is left behind"
    for unit in (UNIT, HELPER_UNIT):
        assert hosted.property(unit, "ActiveState") == "active"
