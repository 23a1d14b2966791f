"""How much of a file is in the page cache: by cachestat(2), else by mincore(2), else why it cannot be known. Blocks."""

import errno
import mmap
import os
import re
from pathlib import Path
from typing import Literal

from gpusupervisor.reader.page_cache import system_calls
from gpusupervisor.reader.page_cache.budget import Budget
from gpusupervisor.reader.page_cache.extents import data_of

Method = Literal["cachestat", "mincore"]
WINDOW = 1 << 30
"""Bytes that are mapped at once for mincore(2)."""
CAP_FOWNER = 3


class NotKnowable(Exception):  # noqa: N818  (it names a state)
    """The kernel does not tell; the text says why."""


class Gauge:
    """Measures by the best call that there is here, within a budget."""

    def __init__(self, budget: Budget | None = None, status: Path = Path("/proc/self/status")) -> None:
        self.budget = budget or Budget()
        self.method: Method = "cachestat" if system_calls.has_cachestat() else "mincore"
        self._owns_all = _has_capability(status, CAP_FOWNER)

    def cached(self, descriptor: int) -> int:
        """Return the bytes of an open regular file that need not be read from its disk: those in RAM, and holes.

        Raises NotKnowable, also when the budget is spent, and OSError.
        """
        status = os.fstat(descriptor)
        missing = 0
        for start, end in data_of(descriptor, 0, status.st_size):
            if not self.budget.allow(end - start):
                raise NotKnowable(self.budget.cut)
            missing += max(0, end - start - self._cached_of(descriptor, status, start, end))
        return status.st_size - missing

    def _cached_of(self, descriptor: int, status: os.stat_result, start: int, end: int) -> int:
        """Bytes of one range that are in RAM."""
        start -= start % mmap.PAGESIZE
        pages = self._by_cachestat(descriptor, start, end) if self.method == "cachestat" else None
        if not pages:  # a stacked filesystem (overlayfs) answers cachestat with 0, as its pages are another file's
            pages = self._by_mincore(descriptor, status, start, end)
        return pages * mmap.PAGESIZE

    def _by_cachestat(self, descriptor: int, start: int, end: int) -> int | None:
        """None where the file's filesystem does not know the call."""
        try:
            return system_calls.cachestat(descriptor, start, end - start)
        except OSError as error:
            if error.errno == errno.EPERM:
                raise NotKnowable(_PERMISSION) from None
            if error.errno == errno.EOPNOTSUPP:
                return None
            raise

    def _by_mincore(self, descriptor: int, status: os.stat_result, start: int, end: int) -> int:
        """To those who may not know, the kernel says that everything is in RAM; so permission is checked before."""
        if not (status.st_uid == os.geteuid() or self._owns_all or _can_write(descriptor)):
            raise NotKnowable(_PERMISSION)
        pages = 0
        for offset in range(start, end, WINDOW):
            if not self.budget.allow():
                raise NotKnowable(self.budget.cut)
            pages += system_calls.mincore(descriptor, offset, min(WINDOW, end - offset))
        return pages


_PERMISSION = "the kernel tells that only to the file's owner, and to who could write to it"


def _can_write(descriptor: int) -> bool:
    return os.access(f"/proc/self/fd/{descriptor}", os.W_OK, effective_ids=True)


def _has_capability(status: Path, number: int) -> bool:
    held = re.search(r"^CapEff:\s*([0-9a-f]+)$", status.read_text(), re.MULTILINE)
    return held is not None and bool(int(held[1], 16) >> number & 1)
