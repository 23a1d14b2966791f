"""When the process list of a GPU is read again, how the three lists become one, and how utilisation joins it.

Reading the lists takes the driver 4.5 ms where reading the memory takes 0.01 ms, under a lock that games wait for too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.gpu.plausibility import Doubt
from gpusupervisor.gpu.sample import GpuMemory, GpuProcess, ProcessKind

MOVED = 16 * 1024 * 1024
"""Bytes of change in occupied memory since the last list after which it is read again."""
STALE = 5 * MICROSECONDS
"""Age after which it is read again in any case."""
SHARED_STALE = 2 * MICROSECONDS
"""The same for memory that is shared with the host, where nothing else shows that a process grows."""
PERCENT = 100

ListedProcess = tuple[int, int | None, ProcessKind]
"""PID, bytes or None, and the list it stood in."""


@dataclass(frozen=True, slots=True)
class ProcessList:
    """The processes of one GPU as they were read last."""

    processes: tuple[GpuProcess, ...]
    read_at: int
    occupied: int
    """Of `occupied` when the list was read."""
    doubt: Doubt | None = None
    """Why there is nothing in it."""
    gap: Doubt | None = None
    """What is not in it."""


def must_read(last: ProcessList | None, *, memory: GpuMemory, now: int, fresh: bool) -> bool:
    """Whether the list has to be read again, or the last one still stands."""
    if fresh or last is None:
        return True
    moved = abs(occupied(memory) - last.occupied) >= MOVED
    return moved or not 0 <= now - last.read_at <= (SHARED_STALE if memory.shared else STALE)


def occupied(memory: GpuMemory) -> int:
    """Bytes whose change shows that processes took or gave back memory.

    0 for shared memory: host programs move it all the time, and of the GPU's share nothing but the list tells.
    """
    return 0 if memory.shared else memory.total - memory.free


def merge(listed: Iterable[ListedProcess]) -> tuple[GpuProcess, ...]:
    """One entry per PID, ordered by PID.

    A process that computes and draws stands in two lists with the same total, so the larger value counts, never the
    sum. A size that one list knows beats an unknown one; unknown in all stays unknown.
    """
    sizes: dict[int, int | None] = {}
    kinds: dict[int, set[ProcessKind]] = {}
    for pid, used, kind in listed:
        known = [size for size in (sizes.get(pid), used) if size is not None]
        sizes[pid] = max(known, default=None)
        kinds.setdefault(pid, set()).add(kind)
    return tuple(GpuProcess(pid, sizes[pid], frozenset(kinds[pid])) for pid in sorted(sizes))


def latest_utilization(samples: Iterable[tuple[int, int, int]]) -> Mapping[int, int | None]:
    """PID to percent, from (pid, timestamp, percent): the latest of each PID.

    More than 100 is garbage and dropped; a PID of which there is nothing else is unknown (None), not idle.
    """
    latest: dict[int, tuple[int, int]] = {}
    garbage: dict[int, int | None] = {}
    for pid, timestamp, percent in samples:
        if percent > PERCENT:
            garbage[pid] = None
        else:
            latest[pid] = max(latest.get(pid, (0, 0)), (timestamp, percent))
    return {**garbage, **{pid: percent for pid, (_, percent) in latest.items()}}


def with_utilization(
    processes: tuple[GpuProcess, ...], percents: Mapping[int, int | None] | None
) -> tuple[GpuProcess, ...]:
    """The processes with their share of SM time; one without a sample did nothing. None: not supported."""
    if percents is None:
        return processes
    return tuple(replace(process, sm_utilization=percents.get(process.pid, 0)) for process in processes)
