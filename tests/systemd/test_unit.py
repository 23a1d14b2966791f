"""The shipped units: systemd understands them, and they are as closed as promised."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.system.machine import REPOSITORY

UNITS = sorted(path.name for path in (REPOSITORY / "systemd").glob("*.service.in"))
EXPOSURE = {
    "gpusupervisor.service.in": 1.5,
    "gpusupervisor-helper.service.in": 1.9,
    "gpusupervisor-reader.service.in": 1.9,
}
"""At most this, in the figure of `systemd-analyze security`."""

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A unit as installed below a folder that has the programs it starts."""
    (tmp_path / "app/bin").mkdir(parents=True)
    for name in ("gpusupervisord", "gpusupervisor-helper", "gpusupervisor-reader", "gpusupervisorctl", "python"):
        program = tmp_path / "app/bin" / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    name = str(request.param)
    text = (REPOSITORY / "systemd" / name).read_text()
    for word, value in {"appdir": tmp_path / "app", "docdir": tmp_path / "doc", "bindir": tmp_path / "bin"}.items():
        text = text.replace(f"@{word}@", str(value))
    assert not re.search(r"@[a-z]+@", text)
    path = tmp_path / name.removesuffix(".in")
    path.write_text(text)
    return path


def test_systemd_accepts_every_line_of_the_unit(unit: Path) -> None:
    verified = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True)
    about_it = [line for line in verified.stderr.splitlines() if unit.name in line]
    assert (verified.returncode, about_it) == (0, [])


def test_the_unit_is_as_closed_as_promised(unit: Path) -> None:
    threshold = round(EXPOSURE[f"{unit.name}.in"] * 10)
    measured = subprocess.run(
        ["systemd-analyze", "security", "--no-pager", "--offline=yes", f"--threshold={threshold}", unit],
        capture_output=True,
        text=True,
    )
    assert measured.returncode == 0, measured.stdout


def test_what_the_hardening_must_not_take_away_is_kept() -> None:
    lines = (REPOSITORY / "systemd/gpusupervisor.service.in").read_text().splitlines()
    assert {"DeviceAllow=char-nvidia* rw", "DeviceAllow=char-195 rw"} <= set(lines)
    assert "ProtectProc=default" in lines
    assert "IPAddressAllow=localhost" in lines
    assert not [line for line in lines if line.startswith(("PrivateDevices=", "PrivateUsers=", "PrivateNetwork="))]


def lines_of(unit: str) -> list[str]:
    return (REPOSITORY / f"systemd/{unit}.service.in").read_text().splitlines()


def test_what_has_the_device_and_sys_admin_has_nothing_else() -> None:
    lines = lines_of("gpusupervisor-helper")
    assert "CapabilityBoundingSet=CAP_SYS_ADMIN" in lines
    assert {"PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX", "IPAddressDeny=any"} <= set(lines)
    assert {"DeviceAllow=char-nvidia* rw", "ProtectProc=ptraceable", "ReadOnlyPaths=/proc", "ProtectHome=yes"} <= set(
        lines
    )
    assert not [line for line in lines if line.startswith(("PrivateDevices=", "PrivateUsers=", "User="))]


def test_what_reads_what_users_write_has_no_device_and_is_not_root() -> None:
    lines = lines_of("gpusupervisor-reader")
    capabilities = "CAP_SYS_PTRACE CAP_DAC_READ_SEARCH CAP_FOWNER"
    assert {f"CapabilityBoundingSet={capabilities}", f"AmbientCapabilities={capabilities}"} <= set(lines)
    assert {"User=gpusupervisor-reader", "PrivateDevices=yes", "ReadOnlyPaths=/"} <= set(lines)
    assert {"PrivateNetwork=yes", "RestrictAddressFamilies=AF_UNIX", "IPAddressDeny=any"} <= set(lines)
    assert not [line for line in lines if line.startswith(("DeviceAllow=", "StateDirectory=", "ReadWritePaths="))]
