"""The real helper over a simulated card: for tests, never for a machine with a GPU.

    python -m gpusupervisor.simulation.helper_daemon --card DIRECTORY

Everything is the real thing but NVML, and what its arguments replace.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from gpusupervisor.helper import restore_fans
from gpusupervisor.helper.controllers import Folders
from gpusupervisor.helper.daemon import Surroundings, give_up_tracing, serve, unit_folders
from gpusupervisor.helper.units import LAYERS
from gpusupervisor.journal.setup import HELPER, set_up_logging
from gpusupervisor.privileged.callers import allowed_users
from gpusupervisor.privileged.life import IDLE_AFTER
from gpusupervisor.simulation.nvml import CardWorld, installed


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="gpusupervisor.simulation.helper_daemon", description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="card directory of the simulated NVML")
    parser.add_argument("--bus", help="address of a private bus, on which the user who starts this may call")
    parser.add_argument("--idle", type=float, default=IDLE_AFTER, help="seconds after which it ends when not called")
    parser.add_argument("--folder", type=Path, help="with state and runtime in it, instead of those of the unit")
    parser.add_argument("--restore-fans", action="store_true", help="only do what the unit does after it was killed")
    options = parser.parse_args()
    if options.restore_fans:
        with installed(CardWorld(options.card)):
            sys.exit(restore_fans.main([str(options.folder / "runtime")] if options.folder else []))
    set_up_logging(HELPER)
    give_up_tracing()
    own = Folders(options.folder / "state", options.folder / "runtime", os.getuid()) if options.folder else None
    surroundings = Surroundings(
        bus_address=options.bus,
        allowed=(lambda: frozenset({os.getuid()})) if options.bus else allowed_users,
        sysfs_root=options.card / "sysfs",
        idle_after=options.idle,
        tick=min(1.0, options.idle / 4),
        folders=(lambda: own) if own else unit_folders,
        tenant_layers=(options.folder / "tenants",) if options.folder else LAYERS,
        owner=os.getuid(),
    )
    with installed(CardWorld(options.card)):
        code = asyncio.run(serve(surroundings))
    sys.exit(code)


if __name__ == "__main__":
    main()
