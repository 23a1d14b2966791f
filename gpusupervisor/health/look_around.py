"""Reads what the checks want to know of the system around. Passive: it wakes no GPU. Blocking: for a thread."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.foreign_text import harmless
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES, find_devices, read_power
from gpusupervisor.health.surroundings import OpenBy, ProcView, Surroundings

HOST_PID_NAMESPACE = 0xEFFFFFFC
"""Inode of the first PID namespace, fixed in the kernel (include/linux/proc_ns.h, PROC_PID_INIT_INO)."""
MOST_HOLDERS = 16
_HIDEPID = {
    "1": "noaccess", "noaccess": "noaccess",
    "2": "invisible", "invisible": "invisible",
    "4": "ptraceable", "ptraceable": "ptraceable",
}  # fmt: skip
"""As proc(5) has them, numbers on kernels before 5.8."""


@dataclass(frozen=True, slots=True)
class Roots:
    """Where the system is found."""

    proc: Path = Path("/proc")
    dev: Path = Path("/dev")
    sysfs_pci: Path = SYSFS_PCI_DEVICES


def look_around(roots: Roots) -> Surroundings:
    """What the file systems tell; polkit is not asked here."""
    power = tuple(read_power(roots.sysfs_pci, device) for device in find_devices(roots.sysfs_pci))
    could_sleep = any(device.managed and not device.asleep for device in power)
    return Surroundings(
        proc=proc_view(roots.proc),
        power=power,
        open_by=tuple(open_by(roots)) if could_sleep else (),
    )


def proc_view(proc: Path) -> ProcView:
    """How the mount that this process sees hides processes, and whether it sees the machine's at all."""
    return ProcView(_hides(proc), _own_namespace(proc))  # type: ignore[arg-type]  # a word of the table


def open_by(roots: Roots) -> Iterator[OpenBy]:
    """Processes but this one that have a GPU's own device node open, as far as their descriptors may be read."""
    found = 0
    for folder in _numbers(roots.proc):
        if int(folder.name) != os.getpid() and _has_gpu_open(folder / "fd", roots.dev):
            yield OpenBy(int(folder.name), _comm(folder))
            found += 1
            if found == MOST_HOLDERS:
                return


def _numbers(proc: Path) -> list[Path]:
    try:
        return sorted((each for each in proc.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    except OSError:
        return []


def _has_gpu_open(descriptors: Path, dev: Path) -> bool:
    try:
        names = os.listdir(descriptors)
    except OSError:
        return False
    for name in names:
        try:
            target = os.readlink(descriptors / name)
        except OSError:
            continue
        if target.removeprefix(f"{dev}/nvidia").isdigit() and target.startswith(f"{dev}/nvidia"):
            return True
    return False


def _comm(folder: Path) -> str:
    try:
        return harmless((folder / "comm").read_text(errors="replace"), 32)
    except OSError:
        return ""


def _hides(proc: Path) -> str:
    """The hidepid option of the last mount on /proc."""
    try:
        lines = (proc / "self" / "mountinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    options = ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        parts = before.split(" ")
        if separator and len(parts) > 4 and parts[4] == "/proc":
            options = after.rsplit(" ", 1)[-1] if after.startswith("proc ") else ""
    for option in options.split(","):
        name, _, value = option.partition("=")
        if name == "hidepid" and value not in ("0", "off"):
            return _HIDEPID.get(value, "unknown")
    return ""


def _own_namespace(proc: Path) -> bool:
    try:
        status = (proc / "self" / "ns" / "pid").stat()
    except OSError:
        return False
    return not stat.S_ISDIR(status.st_mode) and status.st_ino != HOST_PID_NAMESPACE
