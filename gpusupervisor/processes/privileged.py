"""The seam for what only root may read of other users' processes."""

from dataclasses import dataclass
from typing import Protocol

from gpusupervisor.processes.identity import ProcessKey


@dataclass(frozen=True, slots=True)
class PrivilegedFacts:
    """What /proc hides from us; empty where even root found nothing."""

    executable: str
    working_directory: str
    listening_ports: tuple[int, ...]


class PrivilegedReader(Protocol):
    """Who reads it for us."""

    def facts(self, key: ProcessKey) -> PrivilegedFacts | None:
        """The hidden facts of exactly this process; None when it is gone or nobody can say yet.

        Asked at every look until it answers, and must answer at once: who needs time finds out in the background.
        """
