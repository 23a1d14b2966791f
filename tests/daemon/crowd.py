"""Many tenants at once: a daemon, and a process for each that holds memory and does nothing else."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from gpusupervisor.simulation.nvml import SimulatedGpu
from gpusupervisor.simulation.nvml.allocation import Allocation
from tests.daemon.station import Daemon, Station

MIB = 1024**2
_DEFINITION = """\
title = "Mover {number}"
[match]
command-lines = ["sleep 86400.{number:03}*"]
"""


@contextmanager
def crowd(size: int, *gpus: SimulatedGpu, settings: str = "") -> Iterator[tuple[Station, list[Allocation], Daemon]]:
    """Tenants mover-0, mover-1, … hold 500 MiB each, dealt out to the cards in turn."""
    station = Station(*gpus)
    station.settings.write_text(f'reserve = "0"\n{settings}')
    station.describe({f"mover-{number}": _DEFINITION.format(number=number) for number in range(size)})
    processes = [subprocess.Popen(["sleep", f"86400.{number:03}"]) for number in range(size)]
    cards = [gpu.uuid for gpu in gpus or (SimulatedGpu(),)]
    try:
        movers = [Allocation(station.card.directory, process.pid) for process in processes]
        for number, mover in enumerate(movers):
            mover.hold(cards[number % len(cards)], 500 * MIB)
        yield station, movers, station.daemon().wait_ready()
    finally:
        for process in processes:
            process.kill()
            process.wait()
        station.close()
