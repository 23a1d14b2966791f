"""The same payload in the sandbox of each privileged service: what it could do if it were taken over."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.conftest import HELPER_UNIT, READER_UNIT, UNIT, USER, machine, wheels  # noqa: F401  (fixtures)
from tests.system.machine import Machine, why_not
from tests.system.test_simulated_card import PYTHON

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a machine can be booted"),
]
PAYLOAD, ANSWER, VICTIMS = "/usr/local/share/payload.py", "/run/payload.json", "/run/victims"
VICTIM = f"""
import ctypes, os, pathlib, time
secret = ctypes.create_string_buffer(b"0123456789abcdef")
pathlib.Path("{VICTIMS}", str(os.getpid())).write_text(str(ctypes.addressof(secret)))
time.sleep(3600)
"""
KINDS = {"root": (), "root without capabilities": ("CapabilityBoundingSet=",), "a user": (f"User={USER}",)}
"""Victims, each a unit: what distinguishes it."""
DROP_IN = """\
[Unit]
StartLimitIntervalSec=0
[Service]
Type=oneshot
Restart=no
ExecStartPre=
ExecStart=
ExecStart={command}
ExecStopPost=
StandardOutput=truncate:{answer}
"""
DENIED = {"EPERM", "EACCES", "EROFS", "ENOENT", "ENOSYS", "EAFNOSUPPORT", "ESRCH", "EBADF"}
"""ENOENT and ESRCH: it is hidden. Any other error would mean that only the arguments were wrong."""


@pytest.fixture(scope="module")
def victims(machine: Machine) -> Iterator[dict[str, tuple[int, int]]]:  # noqa: F811
    """By kind: the PID and the address of a secret. PID 1 is one of them, at an address where its program is."""
    machine.run("install", "-d", "-m", "1777", VICTIMS)
    found = {}
    for number, (kind, options) in enumerate(KINDS.items()):
        unit = f"victim-{number}.service"
        properties = [f"--property={option}" for option in options]
        machine.run("systemd-run", "--quiet", "--collect", f"--unit={unit}", *properties, PYTHON, "-c", VICTIM)
        pid = machine.property(unit, "MainPID")
        machine.run("timeout", "30", "sh", "-c", f"until [ -s {VICTIMS}/{pid} ]; do sleep 0.1; done")
        address = machine.output("cat", f"{VICTIMS}/{pid}")
        found[kind] = (int(pid), int(address))
    stack = next(line for line in machine.output("cat", "/proc/1/maps").splitlines() if line.endswith("[stack]"))
    found["PID 1"] = (1, int(stack.partition("-")[2].split()[0], 16) - 64)
    for number, (name, major) in enumerate({"nvidia0": "195", "a-disk": "259"}.items()):
        machine.run("mknod", "-m", "666", f"/dev/{name}", "b" if number else "c", major, "0", check=False)
    yield found
    for number in range(len(KINDS)):
        machine.run("systemctl", "stop", f"victim-{number}.service")


def attempted(machine: Machine, unit: str, victims: dict[str, tuple[int, int]]) -> dict[str, str]:  # noqa: F811
    """Run the payload in the place of a unit's own program."""
    machine.write(PAYLOAD, (Path(__file__).parent / "payload.py").read_text())
    quoted = json.dumps(victims).replace('"', '\\"')
    service = unit.removeprefix("gpusupervisor-").removesuffix(".service")
    command = f'{PYTHON} {PAYLOAD} "{quoted}" gpusupervisor.{service}.lockdown'
    drop_in = f"/run/systemd/system/{unit}.d/payload.conf"
    machine.write(drop_in, DROP_IN.format(command=command, answer=ANSWER))
    try:
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "stop", UNIT, unit)
        machine.run("systemctl", "start", unit)
        return dict(json.loads(machine.output("cat", ANSWER)))
    except AssertionError as error:
        raise AssertionError(f"{error}\n{machine.run('cat', ANSWER, check=False).stdout}") from None
    finally:
        machine.run("rm", "-f", drop_in, ANSWER)
        machine.run("systemctl", "daemon-reload")


def test_outside_of_a_sandbox_the_payload_gets_its_way(machine: Machine, victims: dict[str, tuple[int, int]]) -> None:  # noqa: F811
    """Or its failures would prove nothing."""
    machine.write(PAYLOAD, (Path(__file__).parent / "payload.py").read_text())
    told = json.loads(machine.output(PYTHON, PAYLOAD, json.dumps({"root": victims["root"]})))
    ways = ("read memory", "write memory", "process_vm_readv", "process_vm_writev", "overwrite below its root")
    assert {told[f"root: {way}"] for way in ways} == {"done"}, told
    machine.run("rm", "-f", "/etc/taken", "/usr/taken")
    machine.run("chmod", "640", "/etc/shadow")


def got(told: dict[str, str], *but: str) -> dict[str, str]:
    """What was not denied, but for attempts that may succeed."""
    return {name: how for name, how in told.items() if how not in DENIED and name not in but}


def devices_are_denied(machine: Machine) -> bool:  # noqa: F811
    """Whether units' DeviceAllow= has an effect at all; in a container of a host with cgroups v1 it has none."""
    run = ("systemd-run", "--quiet", "--wait", "--pipe", "--property=DevicePolicy=closed", "cat", "/dev/nvidia0")
    return "not permitted" in machine.run(*run, check=False).stderr


def test_what_parses_what_users_write_touches_no_process_no_file_and_no_device(
    machine: Machine,  # noqa: F811
    victims: dict[str, tuple[int, int]],
) -> None:
    told = attempted(machine, READER_UNIT, victims)
    opened = () if devices_are_denied(machine) else ("gpu by the root of PID 1", "disk by the root of PID 1")
    assert got(told, *opened) == {}
    assert told["gpu"] == "ENOENT", "it has a /dev of its own"
    assert told["request to a driver"] == "EPERM", "so an open device is of no use"
    assert machine.property(READER_UNIT, "DevicePolicy") == "closed"


def test_what_has_the_device_touches_no_process_and_no_file_and_no_other_device(
    machine: Machine,  # noqa: F811
    victims: dict[str, tuple[int, int]],
) -> None:
    told = attempted(machine, HELPER_UNIT, victims)
    assert got(told, "gpu", "request to a driver", *SIGNALS) == {}
    assert told["gpu"] == "ENXIO", "it may open it, and there is none"


SIGNALS = tuple(f"{kind}: signal" for kind in ("root", "root without capabilities", "PID 1"))
"""Root may signal root's processes on kernels before 6.12."""
