"""Whether a process list can be what the driver meant; a scrambled list is refused as a whole."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpusupervisor.gpu.sample import GpuProcess

PREFIX = "attribution unavailable: "
UPDATE = "update the NVIDIA driver"
SCRAMBLED_FROM = (535, 43)
SCRAMBLED_BEFORE = (535, 98)
"""Drivers in between fill another structure than every released pynvml but 12.535.77 reads (gpustat issue 161)."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a process list, or a part of it, is not to be had or not to be believed."""

    text: str
    remedy: str


def doubt_of_driver(version: str) -> Doubt | None:
    """Why process lists of a driver release cannot be believed; None when they can."""
    if SCRAMBLED_FROM <= _numbers(version) < SCRAMBLED_BEFORE:
        return Doubt(PREFIX + "drivers 535.43 to 535.97 return scrambled process lists", UPDATE)
    return None


def doubt_of_list(processes: Iterable[GpuProcess], *, total: int, pid_max: int) -> Doubt | None:
    """Why a merged process list cannot be believed; None when it can.

    total: bytes of the card; pid_max: /proc/sys/kernel/pid_max, one more than the largest PID there can be.
    """
    listed = tuple(processes)
    if any(not 0 < process.pid < pid_max for process in listed):
        return Doubt(PREFIX + "the driver lists process ids that cannot exist", UPDATE)
    if sum(process.used or 0 for process in listed) > total:
        return Doubt(PREFIX + "the driver lists processes that hold more memory than the GPU has", UPDATE)
    return None


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
