"""`gpusupervisor-helper`: changes hardware settings. Started by the bus on demand; exits when it controls nothing."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dbus_fast.aio import MessageBus

from gpusupervisor import __version__
from gpusupervisor.bus.names import HELPER_NAME, HELPER_PATH
from gpusupervisor.bus.objects import Handlers
from gpusupervisor.bus.presence import BusUnavailable
from gpusupervisor.clock import SystemClock
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES
from gpusupervisor.helper.control import GpuEvent
from gpusupervisor.helper.controllers import Controls, Folders
from gpusupervisor.helper.departures import Departures
from gpusupervisor.helper.entries import entry_of
from gpusupervisor.helper.hardware_calls import HardwareCalls, signal_of
from gpusupervisor.helper.interface import HELPER
from gpusupervisor.helper.lockdown import Unsupported, lock
from gpusupervisor.helper.restore_fans import DEFAULT_DIRECTORY
from gpusupervisor.helper.sleep import SleepWatch
from gpusupervisor.helper.units import LAYERS, UnitCalls
from gpusupervisor.journal import setup as journal
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import BusUnreachable
from gpusupervisor.privileged.callers import allowed_users
from gpusupervisor.privileged.life import EXIT_BUS_LOST, IDLE_AFTER, SYSTEM_BUS, TICK, Life, Spawn
from gpusupervisor.privileged.service import Face, PrivilegedService

_LOG = logging.getLogger(__name__)

FACE = Face(HELPER_NAME, HELPER_PATH, HELPER, journal.HELPER)
DEFAULT_STATE = "/var/lib/gpusupervisor-helper"


def unit_folders() -> Folders:
    """The folders that the unit gives."""
    state, runtime = os.environ.get("STATE_DIRECTORY"), os.environ.get("RUNTIME_DIRECTORY")
    return Folders(Path(state or DEFAULT_STATE), Path(runtime or DEFAULT_DIRECTORY))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the helper finds the world."""

    bus_address: str | None = None
    """None: the system bus."""
    allowed: Callable[[], frozenset[int]] = allowed_users
    """Returns the uids that may call; may block."""
    sysfs_root: Path = SYSFS_PCI_DEVICES
    idle_after: float = IDLE_AFTER
    tick: float = TICK
    folders: Callable[[], Folders] = unit_folders
    tenant_layers: Sequence[Path] = LAYERS
    """Where root's own tenant files are."""
    owner: int = 0
    """Whose they must be; root's but in tests."""


class Helper:
    """One run of the helper."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._clock = SystemClock()
        self._life = Life(self._clock, surroundings.idle_after, surroundings.tick)
        self._service: PrivilegedService | None = None

    async def run(self) -> int:
        """Serve until ended or idle; return the exit code. Raises `BusUnavailable`."""
        surroundings, thread = self._surroundings, NvmlThread(self._clock)
        controls = Controls(
            thread, self._clock, surroundings.sysfs_root, surroundings.folders(), self._tell, surroundings.tick
        )
        allowed = await asyncio.to_thread(surroundings.allowed)

        def handlers(bus: MessageBus) -> Handlers:
            hardware = HardwareCalls(controls, self._clock, Departures(bus)).handlers()
            return {**hardware, **UnitCalls(bus, surroundings.tenant_layers, surroundings.owner).handlers()}

        try:
            await controls.prepare()
            self._service = service = await PrivilegedService.start(surroundings.bus_address, FACE, handlers, allowed)
            try:
                return await self._serve(service, controls)
            finally:
                self._life.notifier.stopping()
                await service.stop()
        finally:
            await controls.close()
            await thread.close()

    async def _serve(self, service: PrivilegedService, controls: Controls) -> int:
        address = self._surroundings.bus_address or os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", SYSTEM_BUS)

        def begin(spawn: Spawn) -> None:
            spawn(controls.run(spawn))
            spawn(SleepWatch(address, controls.before_sleep, controls.after_sleep).run())

        return await self._life.serve(service, begin, lambda: controls.held, "nothing is controlled")

    def _tell(self, gpu: str, event: GpuEvent) -> None:
        if (entry := entry_of(gpu, event)) is not None:
            write(entry)
        if self._service is not None:
            self._service.emit(*signal_of(gpu, event))


async def serve(surroundings: Surroundings) -> int:
    """Run the helper to its end; return its exit code."""
    try:
        return await Helper(surroundings).run()
    except BusUnavailable as error:
        write(BusUnreachable(str(error)))
        return EXIT_BUS_LOST


def give_up_tracing() -> None:
    """Lock the process down; where the kernel cannot, log that and go on. Before any thread starts."""
    try:
        lock()
    except Unsupported as why:
        _LOG.warning("Landlock is not available (%s): a flaw in the helper could reach root's other processes", why)


def main() -> None:
    """Entry point. It takes no configuration: callers say what to set, root's files what may be."""
    parser = argparse.ArgumentParser(
        prog="gpusupervisor-helper",
        description="The privileged part of gpusupervisor. The bus starts it when it is called.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.parse_args()
    journal.set_up_logging(journal.HELPER)
    give_up_tracing()
    sys.exit(asyncio.run(serve(Surroundings())))


if __name__ == "__main__":
    main()
