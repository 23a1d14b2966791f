"""The seam for what only root may read of other users' processes."""

from dataclasses import dataclass
from typing import Literal, Protocol

from gpusupervisor.processes.identity import OwnNetwork, ProcessKey
from gpusupervisor.processes.settings_files import SettingsFile


@dataclass(frozen=True, slots=True)
class PrivilegedFacts:
    """What /proc hides from us; empty where even root found nothing."""

    executable: str
    working_directory: str
    listening_ports: tuple[int, ...]
    """TCP ports on which 127.0.0.1 reaches it; empty too while it does not listen yet."""
    environment: tuple[tuple[str, str], ...] = ()
    """Only the variables that tenant definitions and engines' settings name."""
    listens_elsewhere: bool = False
    """It listens where 127.0.0.1 does not lead."""
    configuration: tuple[SettingsFile, ...] = ()
    """The configuration files that it reads and that are there."""
    network: OwnNetwork | None = None
    """Where it has a network of its own."""
    has_opened_gpu: bool = False
    """It has a device file of the driver open."""


@dataclass(frozen=True, slots=True)
class Sight:
    """How well we see what is hidden."""

    state: Literal["unasked", "ok", "missing", "refused", "failing"]
    """missing: nobody is there to be asked. refused: it does not answer us."""
    detail: str = ""
    """What it answered, for `refused` and `failing`."""


class PrivilegedReader(Protocol):
    """Who reads it for us."""

    def facts(self, key: ProcessKey) -> PrivilegedFacts | None:
        """The hidden facts of exactly this process; None when it is gone or nobody can say yet.

        Asked at every look until it names a port, and must answer at once: who needs time finds out in the background.
        Called from the thread that reads processes.
        """

    def sight(self) -> Sight:
        """How it went so far."""
