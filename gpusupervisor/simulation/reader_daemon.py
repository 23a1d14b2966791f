"""The real reader beside a simulated card: for tests, never for a machine with a GPU.

    python -m gpusupervisor.simulation.reader_daemon --card DIRECTORY

A process that holds VRAM of the simulated card counts as one that has opened a GPU; everything else is the real thing,
but for what the arguments replace.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from gpusupervisor.journal.setup import READER, set_up_logging
from gpusupervisor.memory import PROC
from gpusupervisor.privileged.callers import allowed_users
from gpusupervisor.privileged.life import IDLE_AFTER
from gpusupervisor.processes.inside import HOST_NETWORK, OWN_NETWORK
from gpusupervisor.reader.daemon import Surroundings, give_up_memory, serve
from gpusupervisor.simulation.nvml.allocation import ALLOCATIONS
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="gpusupervisor.simulation.reader_daemon", description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="card directory of the simulated NVML")
    parser.add_argument("--tenants", type=Path, help="tenant files instead of the shipped ones and those in /etc, /run")
    parser.add_argument("--bus", help="address of a private bus, on which the user who starts this may call")
    parser.add_argument("--idle", type=float, default=IDLE_AFTER, help="seconds after which it exits when not called")
    parser.add_argument("--memory", type=Path, default=PROC, help="with meminfo and pressure/memory in it")
    options = parser.parse_args()
    allocations: Path = options.card / ALLOCATIONS

    def has_opened(pid: int) -> bool:
        return (allocations / f"{pid}.json").exists()

    set_up_logging(READER)
    give_up_memory()
    surroundings = Surroundings(
        bus_address=options.bus,
        allowed=(lambda: frozenset({os.getuid()})) if options.bus else allowed_users,
        tenant_layers=(options.tenants,) if options.tenants else DEFAULT_LAYERS,
        network=OWN_NETWORK if options.bus else HOST_NETWORK,
        has_opened=has_opened,
        idle_after=options.idle,
        tick=min(1.0, options.idle / 4),
        memory=options.memory,
    )
    sys.exit(asyncio.run(serve(surroundings)))


if __name__ == "__main__":
    main()
