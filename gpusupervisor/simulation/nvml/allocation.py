"""What one process holds on the simulated cards, told to whoever simulates them through a file."""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

ALLOCATIONS = "allocations"


class Allocation:
    """The holdings of one process; they count for as long as that very process lives."""

    def __init__(self, directory: Path | str, pid: int | None = None) -> None:
        """directory: the card directory. pid: the holder, this process by default."""
        self._pid = os.getpid() if pid is None else pid
        self._file = Path(directory) / ALLOCATIONS / f"{self._pid}.json"
        self._start_time = start_time(self._pid)
        self._holds: dict[str, dict[str, object]] = {}

    def hold(self, uuid: str, size: int | None, *, kinds: Sequence[str] = ("compute",), sm: int = 0) -> None:
        """Hold exactly so many bytes on a GPU from now on. None: the driver does not say how many."""
        self._holds[uuid] = {"gpu": uuid, "bytes": size, "kinds": list(kinds), "sm": sm}
        self._write()

    def release(self, uuid: str | None = None) -> None:
        """Give back what is held on one GPU, or everything."""
        if uuid is None:
            self._holds.clear()
        else:
            self._holds.pop(uuid, None)
        self._write()

    def _write(self) -> None:
        if not self._holds:
            self._file.unlink(missing_ok=True)
            return
        text = {"pid": self._pid, "start_time": self._start_time, "holds": list(self._holds.values())}
        write_atomically(self._file, json.dumps(text))


def start_time(pid: int) -> int:
    """Start time of a process in clock ticks after boot; raises ProcessLookupError when there is no such process."""
    return stat_fields(pid)[1]


def stat_fields(pid: int) -> tuple[str, int]:
    """State letter and start time of a process; raises ProcessLookupError when there is no such process."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"there is no process {pid}") from None
    fields = raw[raw.rindex(b")") + 2 :].split()
    return fields[0].decode(), int(fields[19])


def write_atomically(path: Path, text: str) -> None:
    """Replace a file as a whole; readers see the old text or the new, and any user may read it."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    Path(temporary).chmod(0o644)
    Path(temporary).replace(path)
