"""What one look at a tenant's model files may cost, whatever their owner has put there."""

import time
from dataclasses import dataclass, field

LONGEST = 5.0
"""Seconds for finding and measuring all files of a tenant."""
MOST_ENTRIES = 20_000
"""Files and folders that are listed."""
MOST_BYTES = 1 << 44
"""Bytes of data (holes not counted) that are measured: 16 TiB."""


@dataclass(slots=True)
class Budget:
    """What is left of it. Spent by listing, by reading manifests and by measuring; never refilled."""

    entries: int = MOST_ENTRIES
    bytes: int = MOST_BYTES
    until: float = field(default_factory=lambda: time.monotonic() + LONGEST)
    cut: str = ""
    """What ran out first, as text for users; empty while nothing has."""

    def allow_entry(self) -> bool:
        """Return whether one more entry may be listed. What was listed before may still be measured."""
        self.entries -= 1
        if self.entries < 0:
            self.cut = self.cut or f"there are more than {MOST_ENTRIES} files, and the rest was not looked at"
            return False
        return self.allow()

    def allow(self, size: int = 0) -> bool:
        """Return whether the look may go on, with `size` bytes more to measure. Once it may not, it never may again."""
        self.bytes -= size
        if self.bytes < 0:
            self.cut = self.cut or f"there is more than {MOST_BYTES >> 40} TiB of files, and the rest was not measured"
            return False
        if time.monotonic() > self.until:
            self.cut = self.cut or f"to examine the files takes longer than {LONGEST:g} s, and the rest was left out"
            return False
        return True
