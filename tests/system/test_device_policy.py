"""The units' device policies, where they bite: a driver that is loaded after the services started is let in.

Without a driver, opening one of its nodes fails with ENXIO where the policy admits it and with EPERM where it does not.
"""

from pathlib import Path

import pytest

from tests.system.machine import REPOSITORY, Machine

DEVICES = "/sys/fs/cgroup/devices"
PROBE = """\
import os, sys
for node in sys.argv[1:]:
    try:
        os.close(os.open(node, os.O_RDWR))
        print("opened")
    except OSError as error:
        print(error.strerror)
"""
UNITS = sorted((REPOSITORY / "systemd").glob("*.service.in"))
NODES = {"/dev/nvidiactl": (195, 255), "/dev/nvidia0": (195, 0), "/dev/nvidia7": (195, 7)}
FORBIDDEN = {"/dev/loop-control": (10, 237), "/dev/uhid": (10, 239)}


def device_lines(unit: Path) -> list[str]:
    """What a unit says of devices."""
    return [line for line in unit.read_text().splitlines() if line.startswith(("DevicePolicy=", "DeviceAllow="))]


@pytest.fixture
def strict(bare_machine: Machine) -> Machine:
    """A machine on which device policies are enforced, with the nodes of a driver that is not loaded."""
    if not Path(DEVICES).is_dir() and not Path("/sys/fs/bpf").is_mount():
        pytest.skip("neither a hierarchy for device policies nor BPF, with which systemd enforces them")
    if Path(DEVICES).is_dir():
        bare_machine.run("mount", "-o", "remount,bind,rw", DEVICES)
        bare_machine.run("systemctl", "daemon-reexec")
    for node, (major, minor) in {**NODES, **FORBIDDEN}.items():
        bare_machine.run("rm", "-f", node)
        bare_machine.run("mknod", "-m", "666", node, "c", str(major), str(minor))
    return bare_machine


def probe(machine: Machine, lines: list[str], nodes: list[str]) -> list[str]:
    """How opening each node ends in a unit with these lines."""
    options = [f"--property={line}" for line in lines]
    command = ("systemd-run", "--quiet", "--wait", "--pipe", "--collect", *options, "python3", "-c", PROBE, *nodes)
    return machine.output(*command).splitlines()


def test_a_driver_that_is_loaded_late_is_let_in_and_nothing_else_is(strict: Machine) -> None:
    closed = probe(strict, ["DevicePolicy=closed"], list(NODES))
    if set(closed) != {"Operation not permitted"}:
        pytest.skip("device policies do not bite in this container")
    assert set(probe(strict, ["DevicePolicy=closed", "DeviceAllow=char-nvidia* rw"], list(NODES))) == {
        "Operation not permitted"
    }, "names alone are resolved at start, when there is no driver"
    with_device = [unit for unit in UNITS if "DeviceAllow=char-nvidia* rw" in unit.read_text()]
    assert len(with_device) >= 2
    for unit in with_device:
        lines = device_lines(unit)
        assert set(probe(strict, lines, list(NODES))) == {"No such device or address"}, unit.name
        assert set(probe(strict, lines, list(FORBIDDEN))) == {"Operation not permitted"}, unit.name
    strict.run("rm", *NODES, *FORBIDDEN)
