"""What the file systems tell of the driver: whether it is loaded, may be opened, and which version is installed.

It wakes no GPU, loads no driver and creates no device node.
"""

import errno
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

Refusal = Literal["", "mode", "policy", "other"]
_REFUSALS: dict[int, Refusal] = {errno.EACCES: "mode", errno.EPERM: "policy"}
LIBRARY = "libnvidia-ml.so.1"
_MAPPED = re.compile(r"(/[^\n]*/libnvidia-ml\.so\.(\d+(?:\.\d+)+))(?: \(deleted\))?$", re.MULTILINE)
"""A line of /proc/self/maps; its file name ends with the driver's version."""


@dataclass(frozen=True, slots=True)
class DeviceAccess:
    """What stands between this process and the driver."""

    module: bool = False
    """The kernel module is loaded, or it cannot be told that it is not."""
    node: bool = False
    """/dev/nvidiactl is there."""
    refusal: Refusal = ""
    """What refuses to have the node opened: its mode and owner (EACCES), the unit's DeviceAllow= (EPERM), or else."""
    detail: str = ""
    """Which node, and the system's words."""
    windows: bool = False
    """The machine is a WSL2 guest: its GPU is reached through /dev/dxg and no kernel module."""


class DriverFiles(Protocol):
    """Where `files()` looks."""

    def access(self) -> DeviceAccess:
        """Whether the control device can be opened."""

    def loaded_library(self) -> str:
        """Version of the libnvidia-ml that this process has mapped; empty when unknown or none is."""

    def installed_library(self) -> str:
        """Version of the libnvidia-ml that a new process would load in its place; empty when unknown."""

    def host_memory(self) -> tuple[int, int]:
        """Bytes of the machine's memory: all, and what is available without swapping."""


class SystemFiles:
    """Those of the machine."""

    def __init__(self, proc: Path = Path("/proc"), dev: Path = Path("/dev")) -> None:
        self._proc = proc
        self._dev = dev

    def access(self) -> DeviceAccess:
        """Read /proc/devices and open the control device, unless that would have the kernel load the driver."""
        node, module = self._dev / "nvidiactl", self._is_loaded()
        if (self._dev / "dxg").exists() and not node.exists():
            refusal, detail = _refusal(self._dev / "dxg")
            return DeviceAccess(refusal=refusal, detail=detail, windows=True)
        if not module or not node.exists():
            return DeviceAccess(module, node.exists())
        refusal, detail = _refusal(node)
        return DeviceAccess(True, True, refusal, detail)

    def loaded_library(self) -> str:
        """From the name of the mapped file."""
        mapped = self._mapped()
        return mapped[1] if mapped else ""

    def installed_library(self) -> str:
        """From where the library's name leads now, beside the mapped file."""
        mapped = self._mapped()
        if mapped is None:
            return ""
        try:
            name = (Path(mapped[0]).parent / LIBRARY).resolve(strict=True).name
        except OSError:
            return ""
        version = name.partition(".so.")[2]
        return version if "." in version else ""

    def host_memory(self) -> tuple[int, int]:
        """As the kernel tells."""
        import psutil  # only machines with unified memory pay for it

        host = psutil.virtual_memory()
        return host.total, host.available

    def _mapped(self) -> tuple[str, str] | None:
        try:
            found = _MAPPED.search((self._proc / "self" / "maps").read_text(errors="replace"))
        except OSError:
            return None
        return (found[1], found[2]) if found else None

    def _is_loaded(self) -> bool:
        try:
            return "nvidia" in (self._proc / "devices").read_text("ascii", "replace")
        except OSError:
            return True


def files() -> DriverFiles:
    """Those of the machine, or what `put` has put in their place."""
    return _files


def put(other: DriverFiles) -> DriverFiles:
    """Let `files` return others, for a library that is simulated; returns those before."""
    global _files
    before, _files = _files, other
    return before


_files: DriverFiles = SystemFiles()


def _refusal(node: Path) -> tuple[Refusal, str]:
    try:
        os.close(os.open(node, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return _REFUSALS.get(error.errno or 0, "other"), f"{node}: {error.strerror}"
    return "", ""
