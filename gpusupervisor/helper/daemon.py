"""`gpusupervisor-helper`: the privileged process. Started by the bus when it is called, gone when it is not needed."""

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor import __version__
from gpusupervisor.bus.presence import BusUnavailable
from gpusupervisor.clock import SystemClock
from gpusupervisor.engines.variables import VARIABLES
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES
from gpusupervisor.helper.callers import allowed_users
from gpusupervisor.helper.control import GpuEvent
from gpusupervisor.helper.controllers import Controls, Folders
from gpusupervisor.helper.entries import entry_of
from gpusupervisor.helper.facts import FactTeller, Holders
from gpusupervisor.helper.page_cache.calls import PageCacheCalls
from gpusupervisor.helper.restore_fans import DEFAULT_DIRECTORY
from gpusupervisor.helper.service import HelperService
from gpusupervisor.helper.sleep import SleepWatch
from gpusupervisor.helper.variables import engine_signs, named_variables, tenant_units
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.service import BusLost, BusUnreachable
from gpusupervisor.journal.setup import HELPER, set_up_logging
from gpusupervisor.memory import PROC
from gpusupervisor.notify import Notifier
from gpusupervisor.processes.inside import HOST_NETWORK
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS
from gpusupervisor.tenants.declared import VARIABLES as DECLARED

EXIT_BUS_LOST = 1
TICK = 1.0
"""Seconds between two looks at what is held, and two signs of life to systemd."""
AGAIN = 0.5
"""Seconds until what was told to end is told so again: a library may lose a cancellation, and systemd would wait."""
IDLE_AFTER = 60.0
"""Seconds without a call after which it ends, unless something is held."""

_LOG = logging.getLogger(__name__)


SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
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
    """Tells the uids that may call; may block."""
    tenant_layers: Sequence[Path] = DEFAULT_LAYERS
    sysfs_root: Path = SYSFS_PCI_DEVICES
    network: str = HOST_NETWORK
    """The process whose network is the machine's."""
    idle_after: float = IDLE_AFTER
    tick: float = TICK
    folders: Callable[[], Folders] = unit_folders
    memory: Path = PROC
    """Where the kernel tells how much memory is available."""


class Helper:
    """One life of it."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._clock = SystemClock()
        self._notifier = Notifier(self._clock)
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._service: HelperService | None = None

    async def run(self) -> int:
        """Serve until told to stop, or until nobody needs it; returns the exit code. Raises `BusUnavailable`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._finish, 0)
        surroundings, thread = self._surroundings, NvmlThread(self._clock)
        controls = Controls(
            thread, self._clock, surroundings.sysfs_root, surroundings.folders(), self._tell, surroundings.tick
        )
        teller = FactTeller(
            Holders(thread, self._clock, surroundings.sysfs_root, lambda: controls.given_away.gpus),
            lambda: named_variables(surroundings.tenant_layers) | VARIABLES | DECLARED,
            network=surroundings.network,
            units=lambda: tenant_units(surroundings.tenant_layers),
            signs=lambda: engine_signs(surroundings.tenant_layers),
        )
        page_cache = PageCacheCalls(surroundings.tenant_layers, surroundings.memory)
        allowed = await asyncio.to_thread(surroundings.allowed)
        try:
            await controls.prepare()
            self._service = service = await HelperService.start(
                surroundings.bus_address, teller, controls, page_cache, self._clock, allowed
            )
            try:
                code = await self._serve(service, controls)
            finally:
                self._notifier.stopping()
                await service.stop()
        finally:
            await controls.close()
            await thread.close()
        return code

    async def _serve(self, service: HelperService, controls: Controls) -> int:
        background: list[asyncio.Task[None]] = []
        async with asyncio.TaskGroup() as tasks:

            def spawn(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
                background.append(tasks.create_task(work))
                return background[-1]

            address = self._surroundings.bus_address or os.environ.get("DBUS_SYSTEM_BUS_ADDRESS", SYSTEM_BUS)
            spawn(controls.run(spawn))
            spawn(SleepWatch(address, controls.before_sleep, controls.after_sleep).run())
            spawn(self._tick_for_ever(service, controls))
            spawn(self._notice_loss_of(service))
            self._notifier.ready()
            code = await self._end
            while left := [task for task in background if not task.done()]:
                for task in left:
                    task.cancel()
                await asyncio.wait(left, timeout=AGAIN)
        return code

    def _finish(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    def _tell(self, gpu: str, event: GpuEvent) -> None:
        if (entry := entry_of(gpu, event)) is not None:
            write(entry)
        if self._service is not None:
            self._service.tell(gpu, event)

    async def _tick_for_ever(self, service: HelperService, controls: Controls) -> None:
        while True:
            held = controls.held
            self._notifier.status(f"controls {', '.join(held)}" if held else "nothing is controlled")
            self._notifier.alive()
            idle = asyncio.get_running_loop().time() - service.last_call
            if not held and idle >= self._surroundings.idle_after:
                await self._end_idle(service)
                return
            await asyncio.sleep(self._surroundings.tick)

    async def _end_idle(self, service: HelperService) -> None:
        """Before the name is given up systemd is told: what is called from then on it starts anew."""
        _LOG.debug("nothing is controlled and nobody asks: ending until the next call")
        self._notifier.stopping()
        await service.leave()
        self._finish(0)

    async def _notice_loss_of(self, service: HelperService) -> None:
        write(BusLost(await service.wait_lost()))
        self._finish(EXIT_BUS_LOST)


async def serve(surroundings: Surroundings) -> int:
    """Run the helper to its end; returns its exit code."""
    try:
        return await Helper(surroundings).run()
    except BusUnavailable as error:
        write(BusUnreachable(str(error)))
        return EXIT_BUS_LOST


def main() -> None:
    """Entry point. There is nothing to configure here: it is told what to do over the bus, and believes files."""
    parser = argparse.ArgumentParser(
        prog="gpusupervisor-helper",
        description="The privileged part of gpusupervisor. The bus starts it when it is called.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.parse_args()
    set_up_logging(HELPER)
    sys.exit(asyncio.run(serve(Surroundings())))


if __name__ == "__main__":
    main()
