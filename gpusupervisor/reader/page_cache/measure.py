"""How much of a file is in the page cache: by cachestat(2), else by mincore(2), else why it cannot be known. Blocks."""

import errno
import mmap
import os
import re
from pathlib import Path
from typing import Literal

from gpusupervisor.reader.page_cache import system_calls

Method = Literal["cachestat", "mincore"]
WINDOW = 1 << 30
"""Bytes that are mapped at once for mincore(2)."""
CAP_FOWNER = 3


class NotKnowable(Exception):  # noqa: N818  (it names a state)
    """The kernel does not tell; the text says why."""


class Gauge:
    """Measures by the best call that there is here."""

    def __init__(self, status: Path = Path("/proc/self/status")) -> None:
        self.method: Method = "cachestat" if system_calls.has_cachestat() else "mincore"
        self._owns_all = _has_capability(status, CAP_FOWNER)

    def cached(self, descriptor: int) -> int:
        """Bytes of an open regular file that are in RAM. Raises NotKnowable, OSError."""
        status = os.fstat(descriptor)
        if status.st_size == 0:
            return 0
        pages = self._by_cachestat(descriptor) if self.method == "cachestat" else None
        if not pages:  # a stacked filesystem (overlayfs) answers cachestat with 0, as its pages are another file's
            pages = self._by_mincore(descriptor, status)
        return min(pages * mmap.PAGESIZE, status.st_size)

    def _by_cachestat(self, descriptor: int) -> int | None:
        """None where the file's filesystem does not know the call."""
        try:
            return system_calls.cachestat(descriptor)
        except OSError as error:
            if error.errno == errno.EPERM:
                raise NotKnowable(_PERMISSION) from None
            if error.errno == errno.EOPNOTSUPP:
                return None
            raise

    def _by_mincore(self, descriptor: int, status: os.stat_result) -> int:
        """Whoever may not know is told by the kernel that everything is in RAM, so that is looked at before."""
        if not (status.st_uid == os.geteuid() or self._owns_all or _can_write(descriptor)):
            raise NotKnowable(_PERMISSION)
        return sum(
            system_calls.mincore(descriptor, offset, min(WINDOW, status.st_size - offset))
            for offset in range(0, status.st_size, WINDOW)
        )


_PERMISSION = "the kernel tells that only to the file's owner, and to who could write to it"


def _can_write(descriptor: int) -> bool:
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)


def _has_capability(status: Path, number: int) -> bool:
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    return held is not None and bool(int(held[1], 16) >> number & 1)
