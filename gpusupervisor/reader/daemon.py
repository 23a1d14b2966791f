"""`gpusupervisor-reader`: reads what is hidden from the supervisor. Started by the bus on demand; exits when idle."""

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor import __version__
from gpusupervisor.bus.names import READER_NAME, READER_PATH
from gpusupervisor.bus.presence import BusUnavailable
from gpusupervisor.clock import SystemClock
from gpusupervisor.engines.variables import VARIABLES
from gpusupervisor.journal import setup as journal
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import BusUnreachable
from gpusupervisor.memory import PROC
from gpusupervisor.privileged.callers import allowed_users
from gpusupervisor.privileged.life import EXIT_BUS_LOST, IDLE_AFTER, TICK, Life
from gpusupervisor.privileged.service import Face, PrivilegedService
from gpusupervisor.processes.inside import HOST_NETWORK
from gpusupervisor.reader.fact_calls import FactCalls
from gpusupervisor.reader.facts import FactTeller
from gpusupervisor.reader.holders import HasOpened, device_majors, has_opened_gpu
from gpusupervisor.reader.interface import READER
from gpusupervisor.reader.lockdown import Unsupported, lock
from gpusupervisor.reader.page_cache.calls import PageCacheCalls
from gpusupervisor.reader.variables import engine_signs, named_variables, tenant_units
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS
from gpusupervisor.tenants.declared import VARIABLES as DECLARED

_LOG = logging.getLogger(__name__)

FACE = Face(READER_NAME, READER_PATH, READER, journal.READER)


def opened_gpu(pid: int) -> bool:
    """Return whether a process of this machine has opened a GPU."""
    return has_opened_gpu(PROC, device_majors(PROC), pid)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the reader finds the world."""

    bus_address: str | None = None
    """None: the system bus."""
    allowed: Callable[[], frozenset[int]] = allowed_users
    """Returns the uids that may call; may block."""
    tenant_layers: Sequence[Path] = DEFAULT_LAYERS
    network: str = HOST_NETWORK
    """The process whose network is the machine's."""
    has_opened: HasOpened = opened_gpu
    idle_after: float = IDLE_AFTER
    tick: float = TICK
    memory: Path = PROC
    """Has meminfo and pressure/memory in it."""


async def serve(surroundings: Surroundings) -> int:
    """Run the reader to its end; return its exit code."""
    life = Life(SystemClock(), surroundings.idle_after, surroundings.tick)
    layers = surroundings.tenant_layers
    teller = FactTeller(
        surroundings.has_opened,
        lambda: named_variables(layers) | VARIABLES | DECLARED,
        network=surroundings.network,
        units=lambda: tenant_units(layers),
        signs=lambda: engine_signs(layers),
    )
    handlers = {**FactCalls(teller).handlers(), **PageCacheCalls(layers, surroundings.memory).handlers()}
    allowed = await asyncio.to_thread(surroundings.allowed)
    try:
        service = await PrivilegedService.start(surroundings.bus_address, FACE, lambda _: handlers, allowed)
    except BusUnavailable as error:
        write(BusUnreachable(str(error)))
        return EXIT_BUS_LOST
    try:
        return await life.serve(service, lambda _: None, tuple, "reads on request")
    finally:
        life.notifier.stopping()
        await service.stop()


def give_up_memory() -> None:
    """Lock the process down; without a filter for this architecture, log that and go on. Before any thread starts."""
    try:
        lock()
    except Unsupported as machine:
        _LOG.warning("no filter of system calls for %s: a flaw in the reader could expose processes' memory", machine)


def main() -> None:
    """Entry point. It takes no configuration: callers name processes and models, root's files everything else."""
    parser = argparse.ArgumentParser(
        prog="gpusupervisor-reader",
        description="The part of gpusupervisor that reads what is hidden from it. The bus starts it when it is called.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.parse_args()
    journal.set_up_logging(journal.READER)
    give_up_memory()
    sys.exit(asyncio.run(serve(Surroundings())))


if __name__ == "__main__":
    main()
