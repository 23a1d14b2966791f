"""Which processes have opened a GPU, as their open files show. No device and no driver library is needed for it.

A process cannot hold VRAM without an open device file of the driver. Some that have one hold no VRAM: anybody who may
open the device can be counted, and gains that facts about the own process reach the supervisor.
"""

import os
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from itertools import islice
from pathlib import Path

from gpusupervisor.processes.procfs import Procfs

MOST_DESCRIPTORS = 4096
"""Open files of one process that are examined; a driver opens its device files early."""
MOST_DESCENDANTS = 256
"""Processes that are examined for one ancestor."""
LONGEST = 2.0
"""Seconds for all processes of one call."""
_DEVICES = "/dev/nvidia"

HasOpened = Callable[[int], bool]
"""Takes a PID; returns whether the process has opened a GPU."""


def device_majors(proc: Path = Path("/proc")) -> frozenset[int]:
    """Return the major numbers of the driver's character devices; empty without a driver."""
    try:
        lines = (proc / "devices").read_text("ascii", "replace").partition("Block devices:")[0].splitlines()
    except OSError:
        return frozenset()
    entries = (line.split() for line in lines)
    return frozenset(int(entry[0]) for entry in entries if len(entry) == 2 and entry[1].startswith("nvidia"))


def has_opened_gpu(proc: Path, majors: Set[int], pid: int) -> bool:
    """Return whether a process has a device file of the driver open; False if it is gone or hidden from us.

    Only links below /dev are followed, and only to stat(2) them: nothing is opened, and no file system of a user's can
    make this hang.
    """
    try:
        with os.scandir(f"{proc}/{pid}/fd") as entries:
            return any(_is_gpu(entry.path, majors) for entry in islice(entries, MOST_DESCRIPTORS))
    except OSError:
        return False


def holders_among(asked: Iterable[int], proc: Procfs, has_opened: HasOpened) -> frozenset[int]:
    """Return those PIDs that have opened a GPU, or have a descendant that has: a server's settings are with the server.

    PID 1 counts only by itself. Blocks for at most about `LONGEST` seconds; what was not examined by then is left out.
    """
    until = time.monotonic() + LONGEST
    children: Mapping[int, list[int]] | None = None
    found = set()
    for pid in asked:
        if time.monotonic() > until:
            break
        if has_opened(pid):
            found.add(pid)
        elif pid > 1:
            children = _children(proc) if children is None else children
            if any(has_opened(each) and time.monotonic() < until for each in _descendants(pid, children)):
                found.add(pid)
    return frozenset(found)


def _is_gpu(link: str, majors: Set[int]) -> bool:
    try:
        if not os.readlink(link).startswith(_DEVICES):
            return False
        status = os.stat(link)
    except OSError:
        return False  # closed since the folder was read
    return stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in majors


def _children(proc: Procfs) -> dict[int, list[int]]:
    children = defaultdict(list)
    for pid in proc.pids():
        if found := proc.stat(pid):
            children[found.parent_pid].append(pid)
    return children


def _descendants(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    found: list[int] = []
    pending = list(children.get(pid, ()))
    while pending and len(found) < MOST_DESCENDANTS:
        found.append(pending.pop())
        pending += children.get(found[-1], ())
    return found
