"""The mark of fans that we have taken over, in a runtime directory: it outlives us, but not a boot.

Written before the first manual write, removed when all fans are automatic again. Whoever finds it without us running
gives the fans back: `gpusupervisor.helper.restore_fans`.
"""

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

PREFIX = "fans-"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LARGEST = 4096
"""Bytes of a mark that are read."""
MOST_FANS = 64


@dataclass(frozen=True, slots=True)
class Marked:
    """Fans of one GPU that were taken over."""

    path: Path
    uuid: str
    """Empty when the mark cannot be understood: any fan of any GPU may be meant."""
    fans: tuple[int, ...] = ()
    of_this_boot: bool = True
    """Otherwise it means nothing: the driver has begun anew since."""


class Marker:
    """The mark of one GPU. Writes files: not for the event loop."""

    def __init__(self, directory: Path, uuid: str, left: frozenset[int] = frozenset()) -> None:
        """left: fans that an earlier helper marked and that are not given back yet."""
        self._path = directory / f"{PREFIX}{_file_name(uuid)}.json"
        self._uuid = uuid
        self._fans = left

    def take(self, fans: frozenset[int]) -> None:
        """Mark fans beside those that are marked already; raises OSError when that cannot be written."""
        if fans <= self._fans:
            return
        union = self._fans | fans
        text = json.dumps({"gpu": self._uuid, "boot_id": boot_id(), "fans": sorted(union)})
        descriptor, temporary = tempfile.mkstemp(dir=self._path.parent, prefix=".fans-")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        Path(temporary).replace(self._path)
        self._fans = union

    def clear(self) -> None:
        """All of them are automatic again."""
        self._path.unlink(missing_ok=True)
        self._fans = frozenset()

    @property
    def fans(self) -> frozenset[int]:
        """The fans that are marked."""
        return self._fans


def find_marks(directory: Path) -> tuple[Marked, ...]:
    """Every mark in a directory; none when there is no such directory."""
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.startswith(PREFIX))
    except FileNotFoundError:
        return ()
    return tuple(_read(path) for path in paths)


def boot_id() -> str:
    """Which boot this is; empty when the kernel does not tell."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return ""


def _read(path: Path) -> Marked:
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(LARGEST))
        uuid, boot, fans = told["gpu"], told["boot_id"], told["fans"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Marked(path, "")
    numbers = [fan for fan in fans if type(fan) is int and 0 <= fan < MOST_FANS] if isinstance(fans, list) else []
    if not isinstance(uuid, str) or not numbers:
        return Marked(path, "")
    return Marked(path, uuid, tuple(numbers), of_this_boot=boot in ("", boot_id()))


def _file_name(uuid: str) -> str:
    return "".join(character for character in uuid[:96] if character.isalnum() or character == "-")
