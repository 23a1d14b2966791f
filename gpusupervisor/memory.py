"""The machine's memory: how much is available, and whether it is short of it."""

import re
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SMALLEST_MARGIN = 512 * 1024 * 1024
PRESSURE_TOLERATED = 10.0
"""Percent of the last 10 s in which something had to wait for memory (`some avg10` of the kernel's PSI)."""

_FIGURE = re.compile(r"^(MemTotal|MemAvailable):\s*([0-9]{1,15}) kB$", re.MULTILINE | re.ASCII)
_PRESSURE = re.compile(r"^some avg10=([0-9]{1,3}\.[0-9]{2}) ", re.MULTILINE | re.ASCII)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes."""

    total: int
    available: int
    """Without swapping, what is cached of files included."""
    pressure: float | None = None
    """Percent; None where the kernel does not say."""

    @property
    def margin(self) -> int:
        """What is left to everybody else: a tenth, and 512 MiB at least."""
        return max(SMALLEST_MARGIN, self.total // 10)

    @property
    def spare(self) -> int:
        """What files may fill."""
        return max(0, self.available - self.margin)

    @property
    def shortage(self) -> str:
        """Why nothing more is to be read into it; empty when there is no reason."""
        if self.pressure is not None and self.pressure > PRESSURE_TOLERATED:
            return "programs have to wait for memory"
        return "" if self.spare else "too little memory is available"


def read_memory(proc: Path = PROC) -> Memory | None:
    """As the kernel tells; None when it does not. Blocks for as long as /proc does."""
    try:
        found = {name: int(size) * 1024 for name, size in _FIGURE.findall((proc / "meminfo").read_text())}
    except OSError:
        return None
    if found.keys() < {"MemTotal", "MemAvailable"}:
        return None
    return Memory(found["MemTotal"], found["MemAvailable"], _read_pressure(proc / "pressure/memory"))


def _read_pressure(file: Path) -> float | None:
    try:
        some = _PRESSURE.search(file.read_text())
    except OSError:  # no file in old kernels; not readable where it was left out at boot
        return None
    return float(some[1]) if some else None
