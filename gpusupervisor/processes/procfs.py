"""The files of /proc/PID and of the cgroup tree, read within bounds; what is gone or not permitted reads as nothing."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.processes.identity import ProcessKey

MAX_ARGUMENTS = 64
MAX_COMMAND_LINE = 4096
"""Bytes."""
_MAX_FILE = 64 * 1024
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""What steers a terminal or hides text, bidirectional overrides included."""
_DEAD = frozenset({"Z", "X", "x"})
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says that we need."""

    key: ProcessKey
    parent_pid: int
    comm: str
    cpu_time: int
    """Microseconds, user and system."""


def parse_stat(content: bytes) -> Stat | None:
    """A process that lives; None for a zombie and for text that is no stat line.

    The task name is in parentheses and may itself hold parentheses, spaces and line breaks.
    """
    head, opening, rest = content.partition(b"(")
    comm, closing, tail = rest.rpartition(b")")
    fields = tail.split()
    if not opening or not closing or len(fields) < 20:
        return None
    try:
        pid, parent, start = int(head), int(fields[1]), int(fields[19])
        ticks = int(fields[11]) + int(fields[12])
        state = fields[0].decode("ascii")
    except ValueError:
        return None
    if state in _DEAD:
        return None
    return Stat(ProcessKey(pid, start), parent, without_control(comm), ticks * MICROSECONDS // _TICKS)


def without_control(raw: bytes) -> str:
    """Text that a program wrote, with everything that steers a terminal or hides text replaced."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", raw.decode("utf-8", "replace"))


def _read(path: str, limit: int = _MAX_FILE) -> bytes | None:
    """The first bytes of a file; None when it cannot be read (any more)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, limit)
    except OSError:  # ESRCH: the process went while its file was open
        return None
    finally:
        os.close(descriptor)


class Procfs:
    """One /proc."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def pids(self) -> frozenset[int]:
        """Every process that can be seen."""
        try:
            return frozenset(int(name) for name in os.listdir(self._root) if name.isdecimal())
        except OSError:
            return frozenset()

    def stat(self, pid: int) -> Stat | None:
        """Key, parent and CPU time of a living process."""
        content = _read(f"{self._root}/{pid}/stat", 4096)
        found = parse_stat(content) if content else None
        return found if found and found.key.pid == pid else None

    def cgroup(self, pid: int) -> str:
        """The text of the cgroup file; empty when it cannot be read."""
        lines = (_read(f"{self._root}/{pid}/cgroup") or b"").split(b"\n")
        return "\n".join(without_control(line) for line in lines)

    def uid(self, pid: int) -> int | None:
        """The real user; None when the process is gone. (The folder's owner is root for undumpable processes.)"""
        found = re.search(rb"^Uid:\s+(\d{1,10})\b", _read(f"{self._root}/{pid}/status") or b"", re.MULTILINE)
        return int(found[1]) if found else None

    def command_line(self, pid: int) -> tuple[str, ...]:
        """The arguments, capped in number and length, without control characters."""
        content = (_read(f"{self._root}/{pid}/cmdline", MAX_COMMAND_LINE) or b"").rstrip(b"\0")
        return tuple(without_control(argument) for argument in content.split(b"\0")[:MAX_ARGUMENTS]) if content else ()

    def link(self, pid: int, name: str) -> str | None:
        """Where "exe" or "cwd" leads; empty when there is none (kernel threads), None when not permitted."""
        try:
            target = os.readlink(f"{self._root}/{pid}/{name}".encode())
        except PermissionError:
            return None
        except OSError:
            return ""
        return without_control(target).removesuffix(" (deleted)")
