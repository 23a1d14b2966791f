"""`gpusupervisord`: the service. Puts the parts together, owns the process's life, answers systemd."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from dbus_fast import Variant

from gpusupervisor import __version__
from gpusupervisor.arbitration.events import Event
from gpusupervisor.automatic import AutomaticSwitch
from gpusupervisor.autotune.run import Rules
from gpusupervisor.bus.authority import PolkitAuthority
from gpusupervisor.bus.presence import BusUnavailable
from gpusupervisor.bus.service import AuthorityFactory, BusService
from gpusupervisor.clock import MICROSECONDS, SystemClock
from gpusupervisor.effective import Configuration, load_configuration, telemetry_limits
from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.errors import InvalidConfiguration
from gpusupervisor.films.recorder import ServiceRecorder
from gpusupervisor.films.tape import Tape
from gpusupervisor.gpu.monitor import GpuMonitor
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.power import SYSFS_PCI_DEVICES
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.health.look_around import Roots, look_around
from gpusupervisor.health.surroundings import Surroundings as Around
from gpusupervisor.jobs import Job, Jobs
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.health import DriverUpgraded
from gpusupervisor.journal.messages.service import (
    BusLost,
    BusUnreachable,
    ConfigurationProblem,
    ServiceReady,
    ServiceStopping,
)
from gpusupervisor.journal.setup import SUPERVISOR, set_up_logging
from gpusupervisor.keepers.auto_warmer import AutoWarmer
from gpusupervisor.keepers.autotuner import Autotuner
from gpusupervisor.keepers.model_facts import ModelFacts
from gpusupervisor.keepers.residency_keeper import ResidencyKeeper
from gpusupervisor.notify import Notifier
from gpusupervisor.observatory import Observatory
from gpusupervisor.peers.hardware_client import HardwareClient
from gpusupervisor.peers.privileged_client import PrivilegedClient
from gpusupervisor.peers.unit_client import UnitClient
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.settings import LAYERS as SETTINGS_LAYERS
from gpusupervisor.supervisor import Supervisor
from gpusupervisor.telemetry.service import Telemetry
from gpusupervisor.tenants.catalog import DEFAULT_LAYERS as TENANT_LAYERS

EXIT_BUS_LOST = 1
EXIT_DRIVER_CHANGED = 75
"""EX_TEMPFAIL: the driver was upgraded under us; only a new process can load its new library."""
HELPER_PATIENCE = 5.0
"""Seconds that the first look waits for the helper."""
STORE_PATIENCE = 2.0
"""Seconds that the first look waits for what was learned earlier."""
CLEANING_UP = 12.0
"""Seconds that jobs may take to undo what they did when the service stops; systemd waits for 20 in all."""
DRIFT = {
    "DriftDetected": "drifted",
    "DriftRepaired": "repaired",
    "DriftContested": "contested",
    "DriftEnded": "ended",
}
"""Signals of the helper, and what telemetry calls what they tell."""
WEDGE_TOLERATED = 300 * MICROSECONDS
"""A driver call that hangs longer withholds the watchdog: a restart may cure what reporting it did not."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where the daemon finds the world."""

    bus_address: str | None = None
    """None: the system bus."""
    tenant_layers: Sequence[Path] = TENANT_LAYERS
    settings_layers: Sequence[Path] = SETTINGS_LAYERS
    state_directory: Path | None = None
    sysfs_root: Path = SYSFS_PCI_DEVICES
    authority: AuthorityFactory = field(default=PolkitAuthority)
    sweeps: Rules = field(default_factory=Rules)
    """How sweeps are made."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What looks at the world and has to be closed at the end."""

    thread: NvmlThread
    http: EngineHttp
    hardware: HardwareClient
    hidden: PrivilegedClient
    units: UnitClient
    observatory: Observatory
    telemetry: Telemetry
    residency: ResidencyKeeper
    tape: Tape


class Daemon:
    """One life of the service."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._clock = SystemClock()
        self._notifier = Notifier(self._clock)
        self._bus: BusService | None = None
        self._telemetry: Telemetry | None = None
        self._jobs = Jobs(self._clock, self._show_job)
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._reload_asked = asyncio.Event()
        self._status = ""

    async def run(self) -> int:
        """Serve until told to stop, or until there is no way on; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._finish, 0)
        configuration = await asyncio.to_thread(self._load)
        for problem in configuration.problems:
            write(ConfigurationProblem(problem))
        parts = self._assemble(configuration)
        self._telemetry = parts.telemetry
        self._telemetry.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                return await self._serve(configuration, parts, tasks)
        finally:
            await parts.observatory.close()
            await parts.http.aclose()
            if self._bus is not None:
                await self._bus.stop()
            await parts.telemetry.close()

    def _assemble(self, configuration: Configuration) -> _Parts:
        hidden, units = PrivilegedClient(self._clock), UnitClient()
        processes = ProcessReader(privileged=hidden)
        tape = Tape(self._clock, processes.proc)
        thread, http, hardware = NvmlThread(self._clock), EngineHttp(heard=tape.heard), HardwareClient()
        monitor = GpuMonitor(
            NvmlReader(self._clock),
            thread,
            self._clock,
            sysfs_root=self._surroundings.sysfs_root,
            given_away=lambda: hardware.given_away,
        )
        observatory = Observatory(monitor, processes, http, configuration.catalog, self._clock, units, witness=tape)
        telemetry = Telemetry(self._surroundings.state_directory, telemetry_limits(configuration.settings), self._clock)
        residency = ResidencyKeeper(self._clock, ModelFacts(telemetry))
        return _Parts(thread, http, hardware, hidden, units, observatory, telemetry, residency, tape)

    async def _serve(self, configuration: Configuration, parts: _Parts, tasks: asyncio.TaskGroup) -> int:
        """Be on the bus, say READY, and work in the background until the end; returns the exit code."""
        switch = AutomaticSwitch(self._surroundings.state_directory, configuration.settings.automatic)
        supervisor = self._supervisor(configuration, parts, switch, tasks)
        where, authority = self._surroundings.bus_address, self._surroundings.authority
        recorder = ServiceRecorder(
            parts.tape, lambda: supervisor.settings, lambda: parts.observatory.catalog, parts.telemetry.facts.all
        )
        bus = await BusService.start(
            where,
            supervisor,
            parts.hardware,
            self._jobs,
            __version__,
            self._clock,
            authority,
            parts.telemetry,
            recorder,
        )
        self._bus = bus
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._reload_asked.set)
        bus.publish(supervisor.before_first_tick())
        self._notifier.ready()
        write(ServiceReady(__version__, len(configuration.catalog.definitions), "yes" if switch.on else "no"))
        warmer = AutoWarmer(
            self._clock,
            parts.residency,
            lambda: parts.observatory.catalog.definitions,
            lambda: supervisor.settings.warm_budget,
            lambda: switch.on,
        )
        works = (
            parts.hardware.follow_for_ever(bus.connection, self._announce_control, supervisor.shown),
            self._tick_for_ever(bus, supervisor, parts),
            self._notice_loss_of(bus),
            self._reload_when_asked(supervisor),
            parts.residency.keep_up_for_ever(bus.connection),
            warmer.warm_for_ever(),
            supervisor.watch_least_for_ever(),
            parts.hidden.look_up_for_ever(bus.connection, parts.observatory.variables),
            parts.units.follow_for_ever(bus.connection, supervisor.shown),
        )
        background = [tasks.create_task(work) for work in works]
        try:
            return await self._end
        finally:  # also when one of the works has failed
            write(ServiceStopping(__version__))
            self._notifier.stopping()
            await self._jobs.close(CLEANING_UP)  # while all that they use still works
            for task in background:
                task.cancel()
            supervisor.abandon_plans()
            await supervisor.close()

    def _supervisor(
        self, configuration: Configuration, parts: _Parts, switch: AutomaticSwitch, tasks: asyncio.TaskGroup
    ) -> Supervisor:
        return Supervisor(
            configuration,
            self._load,
            parts.observatory,
            parts.http,
            self._clock,
            switch,
            self._announce,
            tasks,
            Autotuner(parts.hardware, parts.http, self._clock, self._surroundings.sweeps),
            lambda: parts.hardware.controls,
            look_around=self._look_around,
            residency=parts.residency,
            telemetry=parts.telemetry,
            stop_unit=parts.hardware.release_unit,
        )

    def _finish(self, code: int) -> None:
        if not self._end.done():
            self._end.set_result(code)

    def _announce(self, event: Event) -> None:
        if self._telemetry is not None:
            self._telemetry.note(event)
        if self._bus is not None:
            self._bus.emit(event)

    def _announce_control(self, gpu: str, member: str, body: Sequence[object]) -> None:
        """An event of what the helper controls, as its signal named it."""
        if self._telemetry is not None and member in DRIFT:
            item, details = cast("tuple[str, Mapping[str, Variant]]", body)
            self._telemetry.note_drift(gpu, item, DRIFT[member], {name: each.value for name, each in details.items()})
        if self._bus is not None:
            self._bus.emit_control(gpu, member, body)

    async def _look_around(self) -> Around:
        """What the self-checks want to know of the system."""
        roots = Roots(sysfs_pci=self._surroundings.sysfs_root)
        seen = await asyncio.to_thread(look_around, roots)
        return seen if self._bus is None else replace(seen, polkit=await self._bus.authority_seen())

    def _show_job(self, job: Job) -> None:
        if self._telemetry is not None:
            self._telemetry.note_job(job)
        if self._bus is not None:
            self._bus.show_job(job)

    async def _tick_for_ever(self, bus: BusService, supervisor: Supervisor, parts: _Parts) -> None:
        """Before the first look it must be known what is given away, for to look would be to touch it.

        What was learned earlier should be, too: decisions without it are poorer, not wrong.
        """
        for answer, patience in (
            (parts.hardware.answered, HELPER_PATIENCE),
            (parts.telemetry.recalled, STORE_PATIENCE),
        ):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience):
                    await answer.wait()
        driver_answered, answered = False, False
        while True:
            state = await supervisor.tick()
            bus.publish(state)
            self._status = state.status
            self._notifier.status(self._status)
            wedged = parts.thread.wedged_since
            if wedged is None or self._clock.now() - wedged < WEDGE_TOLERATED:
                self._notifier.alive()
            answers = state.sample.driver.state == "ok"
            if answers and not answered:
                parts.hardware.ask_again()
            answered = answers
            driver_answered |= answers
            if driver_answered and state.sample.driver.state == "mismatch":
                write(DriverUpgraded())
                self._finish(EXIT_DRIVER_CHANGED)
            await supervisor.pause()

    async def _notice_loss_of(self, bus: BusService) -> None:
        write(BusLost(await bus.wait_lost()))
        self._finish(EXIT_BUS_LOST)

    async def _reload_when_asked(self, supervisor: Supervisor) -> None:
        """On SIGHUP. READY is sent whatever comes of it, or systemd would wait."""
        while True:
            await self._reload_asked.wait()
            self._reload_asked.clear()
            self._notifier.reloading()
            try:
                await supervisor.reload()
                self._notifier.status(self._status, urgent=True)
            except InvalidConfiguration as error:
                self._notifier.status(f"reload failed: {error}", urgent=True)
            self._notifier.ready()

    def _load(self) -> Configuration:
        return load_configuration(self._surroundings.settings_layers, self._surroundings.tenant_layers)


async def serve(surroundings: Surroundings) -> int:
    """Run the daemon to its end; returns its exit code."""
    try:
        return await Daemon(surroundings).run()
    except BaseExceptionGroup as group:
        unavailable, rest = group.split(BusUnavailable)
        if rest is not None or unavailable is None:
            raise
        write(BusUnreachable(str(unavailable.exceptions[0])))
        return EXIT_BUS_LOST


def main() -> None:
    """Entry point. Everything is configured by files and by systemd's environment."""
    parser = argparse.ArgumentParser(
        prog="gpusupervisord", description="The gpusupervisor service. systemd starts it; see gpusupervisorctl."
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.parse_args()
    set_up_logging(SUPERVISOR)
    state_directory = os.environ.get("STATE_DIRECTORY")
    surroundings = Surroundings(state_directory=Path(state_directory) if state_directory else None)
    sys.exit(asyncio.run(serve(surroundings)))


if __name__ == "__main__":
    main()
