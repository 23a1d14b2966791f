"""The same script over a simulated card: python tests/hardware/over_simulation.py CARD-DIRECTORY [ARGUMENTS]."""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpusupervisor.simulation.nvml import Allocation, CardWorld, installed
from tests.hardware import prove

CONTEXT = 300 << 20
"""Bytes that a context keeps."""


class SimulatedTaker:
    """Through the card directory."""

    def __init__(self, directory: str) -> None:
        self._allocation = Allocation(directory)
        self._uuid = ""
        self._size = 0

    def take(self, uuid: str, size: int) -> str:
        """As a process with a context."""
        self._uuid, self._size = uuid, size
        self._allocation.hold(uuid, CONTEXT + size)
        return ""

    def free(self) -> str:
        """The context stays."""
        self._allocation.hold(self._uuid, CONTEXT)
        return ""

    def work(self, seconds: float) -> str:
        """Seen as utilization."""
        self._allocation.hold(self._uuid, CONTEXT + self._size, sm=70)
        time.sleep(seconds)
        self._allocation.hold(self._uuid, CONTEXT + self._size)
        return ""


def main(directory: str, *arguments: str) -> int:
    """Its children come here too."""

    with installed(CardWorld(directory)):
        return prove.main(arguments, (sys.executable, __file__, directory), SimulatedTaker(directory))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
