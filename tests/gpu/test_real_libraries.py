"""The real libraries of six driver branches: what they have, and how their errors are understood, without a driver."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpusupervisor.gpu.symbols import SYMBOLS
from tests.nvml_archive import PACKAGES, Library, libraries

LOOK = """
import json
from gpusupervisor.clock import SystemClock
from gpusupervisor.gpu.driver_access import files
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.session import DriverSession
reader = NvmlReader(SystemClock())
session = DriverSession(reader, SystemClock(), SYSFS_PCI_DEVICES)
sample = session.sample(fresh_processes=True, utilization=False, needed=True)
status = sample.driver
told = {"state": status.state, "detail": status.detail, "remedy": status.remedy}
told |= {
    "library": reader.library_version(), "loaded": files().loaded_library(), "installed": files().installed_library()}
session.close()
print(json.dumps(told))
"""
NODE = Path("/dev/nvidiactl")


@pytest.fixture(scope="module", params=sorted(PACKAGES))
def library(request: pytest.FixtureRequest) -> Library:
    found = libraries()
    if isinstance(found, str):
        pytest.skip(f"the real libraries cannot be had: {found}")
    return found[request.param]


def release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def test_the_library_has_what_the_table_says_and_nothing_more_is_needed(library: Library) -> None:
    loaded = ctypes.CDLL(str(library.file))
    for symbol in SYMBOLS:
        expected = not symbol.since or release(library.version) >= release(symbol.since)
        assert hasattr(loaded, symbol.name) is expected, f"{symbol.name} in {library.version}"


def look(library: Library, *before: str) -> dict[str, str]:
    """How the supervisor sees the driver with this library, in a process of its own."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library.file.parent)}
    done = subprocess.run([*before, sys.executable, "-c", LOOK], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def without_mknod() -> tuple[str, ...]:
    """Before a command: as root the library creates the driver's device node where it may."""
    if os.geteuid() == 0 and shutil.which("setpriv"):
        return ("setpriv", "--bounding-set=-mknod", "--inh-caps=-mknod", "--no-new-privs")
    return ()


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="this machine has a driver")
@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="setpriv is not installed")
def test_without_a_driver_the_error_is_understood_and_nothing_is_left_behind(library: Library) -> None:
    before = NODE.exists()
    told = look(library, *without_mknod())
    assert told["state"] == "missing", told
    assert "Driver not loaded" in told["detail"]
    assert "modprobe nvidia" in told["remedy"]
    assert "nvml" not in told["detail"]
    assert told["loaded"] == told["installed"] == told["library"] == library.version
    assert NODE.exists() is before
