"""Whether a process list can be what the driver meant; a scrambled list is refused as a whole."""

from collections.abc import Iterable

from gpusupervisor.gpu.sample import GpuProcess

PREFIX = "attribution unavailable: "
SCRAMBLED_FROM = (535, 43)
SCRAMBLED_BEFORE = (535, 98)
"""Drivers in between fill another structure than every released pynvml but 12.535.77 reads (gpustat issue 161)."""


def problem_of_driver(version: str) -> str:
    """Why process lists of a driver release cannot be believed; empty when they can."""
    if SCRAMBLED_FROM <= _numbers(version) < SCRAMBLED_BEFORE:
        return PREFIX + "drivers 535.43 to 535.97 return scrambled process lists; update the NVIDIA driver"
    return ""


def problem_of_list(processes: Iterable[GpuProcess], *, total: int, pid_max: int) -> str:
    """Why a merged process list cannot be believed; empty when it can.

    total: bytes of the card; pid_max: /proc/sys/kernel/pid_max, one more than the largest PID there can be.
    """
    listed = tuple(processes)
    if any(not 0 < process.pid < pid_max for process in listed):
        return PREFIX + "the driver lists process ids that cannot exist"
    if sum(process.used or 0 for process in listed) > total:
        return PREFIX + "the driver lists processes that hold more memory than the GPU has"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    parts = version.split(".")
    return tuple(int(part) for part in parts) if all(part.isdecimal() for part in parts) else ()
