"""The same script over a simulated card: python tests/hardware/over_simulation.py CARD-DIRECTORY [ARGUMENTS]."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from gpusupervisor.simulation.nvml import Allocation, CardWorld, installed
from tests.hardware import prove


def main(directory: str, *arguments: str) -> int:
    """Its children come here too."""

    def hold(uuid: str, size: int) -> str:
        Allocation(directory).hold(uuid, size)
        return ""

    with installed(CardWorld(directory)):
        return prove.main(arguments, (sys.executable, __file__, directory), hold)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
