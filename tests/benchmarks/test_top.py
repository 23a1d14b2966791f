"""What the live screen costs while memory moves all the time: the real service over a simulated card, a terminal."""

import asyncio
import itertools
from collections.abc import Iterator

import psutil
import pytest

from gpusupervisor.simulation.nvml import SimulatedGpu
from gpusupervisor.simulation.nvml.allocation import Allocation
from tests.benchmarks.conftest import Report
from tests.cli.conftest import COMMAND
from tests.cli.eavesdropper import Eavesdropper
from tests.cli.pseudo_terminal import PseudoTerminal
from tests.daemon.crowd import MIB, crowd
from tests.daemon.station import Station

pytestmark = pytest.mark.benchmark_suite
WARM_UP, MEASURED = 8.0, 30.0
CARD = SimulatedGpu().uuid


@pytest.mark.parametrize(("busy", "columns", "rows"), [(3, 80, 24), (3, 200, 50), (40, 200, 50)], indirect=["busy"])
async def test_top_while_memory_moves(
    busy: tuple[Station, list[Allocation]], columns: int, rows: int, figure: Report
) -> None:
    station, movers = busy
    eavesdropper = await Eavesdropper.on(station.bus.address)
    moving = asyncio.ensure_future(move(movers))
    environment = {"DBUS_SYSTEM_BUS_ADDRESS": station.bus.address}
    terminal = await PseudoTerminal.run(*COMMAND, "top", environment=environment, columns=columns, rows=rows)
    await terminal.wait_for("mover-1")
    await asyncio.sleep(WARM_UP)
    before, already = await asyncio.to_thread(cpu_seconds, terminal), len(terminal.written)
    await asyncio.sleep(MEASURED)
    used = await asyncio.to_thread(cpu_seconds, terminal) - before
    written = len(terminal.written) - already
    terminal.press(b"q")
    assert await terminal.end() == 0
    moving.cancel()
    await eavesdropper.close()
    name = f"top, {len(movers)} tenants that move, {columns}x{rows}"
    figure(name, 100 * used / MEASURED, "% core", 2)
    figure(f"{name}: written a second", written / MEASURED / 1024, "KiB", 16)
    figure(f"{name}: calls in any second", 1 / eavesdropper.closest, "", 1.01)


def cpu_seconds(terminal: PseudoTerminal) -> float:
    user, system, *_ = psutil.Process(terminal.pid).cpu_times()
    return float(user + system)


@pytest.fixture
def busy(request: pytest.FixtureRequest) -> Iterator[tuple[Station, list[Allocation]]]:
    """A daemon, and processes that hold memory, one a tenant."""
    with crowd(request.param) as (station, movers, _):
        yield station, movers


async def move(movers: list[Allocation]) -> None:
    """What everybody holds goes up and down by more than the dead band, and never stands still."""
    for turn in itertools.count():
        await asyncio.to_thread(hold, movers, turn)
        await asyncio.sleep(0.37)


def hold(movers: list[Allocation], turn: int) -> None:
    for number, mover in enumerate(movers):
        mover.hold(CARD, (50 + (turn * 5 + number) % 7 * 90) * MIB, sm=50)
