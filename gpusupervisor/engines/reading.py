"""What an engine is set to as a whole: its settings, its version, and what could not be seen of them (pure)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpusupervisor.engines.configured import LAUNCHERS, Unit, by_process, by_unit, is_direct
from gpusupervisor.engines.interpret import ApiFacts, interpret
from gpusupervisor.engines.setting import Setting
from gpusupervisor.engines.table import Table
from gpusupervisor.processes.identity import ProcessIdentity

NOT_FOUND = (
    "it answers, but its process was not found, so what it was started with is not known: no system unit runs it, and "
    "no process that listens there is recognised as it"
)


@dataclass(frozen=True, slots=True)
class Reading:
    """All that is known of one engine's settings."""

    settings: tuple[Setting, ...] = ()
    version: str = ""
    unit: str = ""
    """The system unit that runs it; empty when none does."""
    hidden: tuple[str, ...] = ()
    """What may say more and could not be read."""
    needs_reload: bool = False
    """Its unit's files have changed since systemd read them."""
    found: bool = False
    """Its process or its unit is known."""

    @property
    def pending(self) -> tuple[str, ...]:
        """Names of the settings that wait for a restart."""
        return tuple(setting.name for setting in self.settings if setting.pending)

    @property
    def problem(self) -> str:
        """What is not known of what a reachable engine is set to; empty when nothing is unknown."""
        if not self.found:
            return NOT_FOUND
        return f"{', '.join(self.hidden)} could not be read" if self.hidden else ""


def read(table: Table, server: ProcessIdentity | None, unit: Unit | None, api: ApiFacts) -> Reading:
    """Put together what the server's process, its unit and its API say."""
    running = by_process(table, server) if server is not None else None
    configured = by_unit(table, unit) if unit is not None else None
    decides = server is not None and unit is not None and is_direct(unit, server)
    settings = interpret(table, running, configured, api, unit_decides=decides)
    hidden: list[str] = []
    if server is not None and "environment" in server.hidden and table.variables():
        hidden.append("the environment of its process")
    if server is not None:
        hidden += (file.path for file in server.configuration if not file.readable)
    if unit is not None and (running is None or not running.complete):
        hidden += unit.unreadable
    return Reading(
        settings=settings,
        version=api.version,
        unit=unit.name if unit is not None else "",
        hidden=tuple(hidden),
        needs_reload=unit is not None and unit.needs_reload,
        found=server is not None or unit is not None,
    )


def server_among(pids: Sequence[int], identities: Mapping[int, ProcessIdentity]) -> ProcessIdentity | None:
    """The outermost of a unit's processes that is not a shell or another launcher; the first of two side by side."""
    known = [identities[pid] for pid in pids if pid in identities]
    known.sort(key=lambda identity: len(identity.ancestors))
    return next((identity for identity in known if not is_launcher(identity)), None)


def is_launcher(identity: ProcessIdentity) -> bool:
    """Whether it only runs another program."""
    program = identity.executable or "".join(identity.command_line[:1])
    return program.rsplit("/", 1)[-1] in LAUNCHERS
