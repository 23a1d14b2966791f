"""The real daemon over a simulated card: for tests and the demo, never for a machine with a GPU.

    python -m gpusupervisor.simulation.daemon --card DIRECTORY

Everything is the real thing but NVML, and what its arguments replace.
"""

import argparse
import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from dbus_fast.aio import MessageBus

from gpusupervisor.autotune.run import Rules
from gpusupervisor.bus.authority import PolkitAuthority
from gpusupervisor.bus.objects import Call
from gpusupervisor.bus.service import AuthorityFactory
from gpusupervisor.daemon import Surroundings, serve
from gpusupervisor.health.surroundings import PolkitSeen
from gpusupervisor.journal.setup import SUPERVISOR, set_up_logging
from gpusupervisor.settings import LAYERS as SETTINGS_LAYERS
from gpusupervisor.simulation.nvml import CardWorld, installed
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS as TENANT_LAYERS
from gpusupervisor.tenants.catalog import SHIPPED

BRIEF = Rules(settle=50_000, longest_run=4_000_000, shortest_run=50_000, margin=1_000_000, period=20_000)


class AnybodyMay:
    """On a private bus every caller is the user who started it."""

    def __init__(self, bus: MessageBus) -> None:
        pass

    async def require(self, call: Call, action: str, details: Mapping[str, str]) -> None:
        """Always."""

    async def seen(self) -> PolkitSeen:
        """It is there."""
        return PolkitSeen("answers")

    async def close(self) -> None:
        """Nothing to end."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="gpusupervisor.simulation.daemon", description=__doc__)
    parser.add_argument("--card", type=Path, required=True, help="card directory of the simulated NVML")
    parser.add_argument(
        "--tenants", type=Path, help="tenant files over the shipped ones, instead of those in /etc, /run"
    )
    parser.add_argument("--settings", type=Path, help="settings file instead of those in /usr/lib, /etc and /run")
    parser.add_argument("--bus", help="address of a private bus on which everybody may do everything")
    parser.add_argument("--brief", action="store_true", help="runs of an autotune may be as short as a test wants them")
    options = parser.parse_args()
    set_up_logging(SUPERVISOR)
    authority: AuthorityFactory = AnybodyMay if options.bus else PolkitAuthority
    state_directory = os.environ.get("STATE_DIRECTORY")
    surroundings = Surroundings(
        bus_address=options.bus,
        tenant_layers=(SHIPPED, options.tenants) if options.tenants else TENANT_LAYERS,
        settings_layers=(options.settings,) if options.settings else SETTINGS_LAYERS,
        state_directory=Path(state_directory) if state_directory else None,
        sysfs_root=options.card / "sysfs",
        authority=authority,
        sweeps=BRIEF if options.brief else Rules(),
    )
    with installed(CardWorld(options.card)):
        code = asyncio.run(serve(surroundings))
    sys.exit(code)


if __name__ == "__main__":
    main()
