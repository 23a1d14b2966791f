"""Reading a model's files into the page cache, a part at a time. Blocks for a tenth of a second, not more.

Whoever wants a model warm asks for one part after the other: when it stops asking, because it was cancelled or has
died, nothing goes on. The data are sent to /dev/null, which copies nothing and is the one way of reading at an offset
that lockdown.py leaves: readahead(2) and posix_fadvise(WILLNEED) of more than the device's own window are cut short by
the kernel without an error, and are no faster (tests/benchmarks/test_warm_up.py).
"""

import os
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from gpusupervisor.errors import InvalidArgument, WontFit
from gpusupervisor.memory import Memory
from gpusupervisor.quantities import format_bytes
from gpusupervisor.reader.page_cache.extents import data_of
from gpusupervisor.reader.page_cache.residency import FileSeen, ModelSeen
from gpusupervisor.reader.page_cache.scan import opened_beneath, why

PART = 0.1
"""Seconds that one part may take."""
BLOCK = 512 * 1024
REMEMBERED = 8
"""Warm-ups that are under way."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After one part."""

    position: int
    """Bytes that are read; where the next part begins."""
    stopped: str = ""
    """Why it should not go on; empty when it may."""


class WarmUps:
    """The warm-ups that are under way. One thread at a time."""

    def __init__(self, memory: Callable[[], Memory | None], owner: int = 0) -> None:
        self._memory = memory
        self._owner = owner
        self._models: OrderedDict[tuple[str, str], ModelSeen] = OrderedDict()

    def begin(self, tenant: str, model: ModelSeen) -> int:
        """Take a model's files down; returns their bytes. Raises InvalidArgument, WontFit when they would not stay."""
        if model.problem and not model.files:
            raise InvalidArgument(f"{model.name} cannot be read into RAM: {model.problem}")
        memory = self._memory()
        if memory is None:
            raise WontFit("How much memory is available cannot be read from /proc/meminfo, so nothing is read into it")
        missing = model.cached is None or model.cached < model.size
        if missing and (model.size > memory.spare or memory.shortage):
            raise WontFit(
                f"{model.name} has {format_bytes(model.size)} of files, which would not stay in RAM: "
                f"{format_bytes(memory.available)} are available, and {format_bytes(memory.margin)} must stay free"
                + (f", and {memory.shortage}" if memory.shortage else "")
            )
        self._models[tenant, model.name] = model
        self._models.move_to_end((tenant, model.name))
        if len(self._models) > REMEMBERED:
            self._models.popitem(last=False)
        return model.size

    def go_on(self, tenant: str, name: str, position: int, most: int) -> Progress:
        """Read on from a position for a tenth of a second, `most` bytes at most. Raises InvalidArgument."""
        model = self._models.get((tenant, name))
        if model is None:
            raise InvalidArgument(f"The reader knows of no warm-up of {name}: it was restarted since, so begin again")
        memory = self._memory()
        if memory is not None and (shortage := memory.shortage):
            return Progress(position, shortage)
        until, wanted = time.monotonic() + PART, min(position + most, model.size)
        try:
            with opened_beneath(model.directory, self._owner) as beneath:
                start = 0
                for file in model.files:
                    end = start + file.size
                    if position < min(end, wanted):
                        with beneath.file(file.path) as descriptor:
                            offset = self._read(descriptor, file, position - start, wanted - start, until)
                        position = start + offset
                    if position >= wanted or time.monotonic() >= until:
                        break
                    start = end
        except OSError as error:
            raise InvalidArgument(
                f"A file of {name} cannot be read any more ({why(error)}), so the warm-up was stopped"
            ) from error
        if position >= model.size:
            del self._models[tenant, name]
        return Progress(position)

    def _read(self, descriptor: int, file: FileSeen, offset: int, wanted: int, until: float) -> int:
        """Read a file on to `wanted` or its end, holes left out; return how far it has come."""
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino, status.st_size) != (file.device, file.inode, file.size):
            raise InvalidArgument("A file of the model was replaced since its warm-up began, so that was stopped")
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        end = min(file.size, wanted)
        with open(os.devnull, "wb", buffering=0) as nowhere:
            for start, stop in data_of(descriptor, offset, end):
                offset = start
                while offset < stop:
                    if time.monotonic() >= until:
                        return offset
                    got = os.sendfile(nowhere.fileno(), descriptor, offset, min(BLOCK, stop - offset))
                    if not got:
                        raise InvalidArgument(_SHORTER)
                    offset += got
        if os.fstat(descriptor).st_size < end:
            raise InvalidArgument(_SHORTER)
        return end


_SHORTER = "A file of the model became shorter while it was read, so the warm-up was stopped"
