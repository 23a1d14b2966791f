"""A simulated machine with a card to set."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gpusupervisor.simulation.nvml import SimulatedGpu, World, installed
from tests.helper.profile.station import Station


@pytest.fixture
async def station(tmp_path: Path) -> AsyncIterator[Station]:
    """One card, and a keeper that has not started yet."""
    tmp_path.chmod(0o755)
    with installed(World([SimulatedGpu()])) as world:
        station = Station(tmp_path, world)
        yield station
        await station.close()
