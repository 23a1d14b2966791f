"""Where a file has data. Holes never have to be read from a disk, however large they are."""

import errno
import os
from collections.abc import Iterator


def data_of(descriptor: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a regular file that hold data, between two offsets. Raises OSError.

    A file system that does not know holes has data everywhere, and so has a file that is written to meanwhile.
    """
    while start < end:
        try:
            data = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a hole up to the end
                return
            if error.errno != errno.EINVAL:
                raise
            yield start, end
            return
        if data >= end:
            return
        hole = min(os.lseek(descriptor, data, os.SEEK_HOLE), end)
        if hole <= data:  # cut short since
            return
        yield data, hole
        start = hole
