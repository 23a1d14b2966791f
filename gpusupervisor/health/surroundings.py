"""What the checks know of the system around: read seldom, off the event loop, and kept as a value."""

from dataclasses import dataclass
from typing import Literal

from gpusupervisor.gpu.power import DevicePower


@dataclass(frozen=True, slots=True)
class ProcView:
    """How much of /proc is to be seen."""

    hides: Literal["", "invisible", "noaccess", "ptraceable", "unknown"] = ""
    """The hidepid of the mount where it hides processes; empty when it does not."""
    own_namespace: bool = False
    """This process is in a PID namespace of its own, as in a container: the driver's PIDs mean nothing in it."""


@dataclass(frozen=True, slots=True)
class OpenBy:
    """A process that has a GPU's device node open."""

    pid: int
    name: str


PolkitState = Literal["unasked", "answers", "startable", "missing", "silent", "refusing"]


@dataclass(frozen=True, slots=True)
class PolkitSeen:
    """How polkit is."""

    state: PolkitState = "unasked"
    """startable: it does not run, and the bus starts it when it is called. silent: it runs and does not answer.
    refusing: it answers, and gave no verdict when it was last asked for one."""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """All of it."""

    proc: ProcView = ProcView()
    polkit: PolkitSeen = PolkitSeen()
    power: tuple[DevicePower, ...] = ()
    """Of every GPU that the nvidia driver has."""
    open_by: tuple[OpenBy, ...] = ()
    """Who has a GPU open, as far as this user may see; looked for only while a GPU is awake that could sleep."""


UNSEEN = Surroundings()
