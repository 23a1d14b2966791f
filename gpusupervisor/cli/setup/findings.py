"""What was found on a machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpusupervisor.cli.shapes import Shape


@dataclass(frozen=True, slots=True)
class Process:
    """A process that holds VRAM."""

    pid: int
    name: str
    used: int | None
    """Bytes; None when the driver does not say."""
    executable: str = ""
    """Its base name."""
    unit: str = ""
    user_unit: str = ""
    container: str = ""
    ports: tuple[int, ...] = ()
    path: str = ""
    """The executable with its folder; like the command line empty unless who asks may know it."""
    command_line: tuple[str, ...] = ()
    recognised_by: str = ""
    """Empty for one that is nobody's."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant with its definition."""

    id: str
    engine: str
    activity: str
    protected: bool
    holding: int
    holding_is_known: bool
    need: int | None
    endpoint: str
    """Where it is asked; empty when it has no API or is not an engine."""
    reachable: bool
    detail: str
    processes: tuple[Process, ...] = ()
    definition: Mapping[str, Any] = field(default_factory=dict)
    """The effective one; empty where it was not needed."""

    @property
    def url(self) -> str:
        """The address that its file has."""
        return str(self.definition.get("endpoint", {}).get("url", ""))

    @property
    def is_asked_at_rest(self) -> bool:
        """Whether it is asked while it holds no VRAM."""
        return bool(self.definition.get("endpoint", {}).get("own-port"))


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of systemd that is a tenant's."""

    name: str
    of_user: bool
    state: str
    """ActiveState, or "stopped" for one that is only installed."""
    tenant: str
    endpoint: str = ""
    """Where it listens, by its file, its command line or its environment."""
    command_line: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Its environment files that could not be read."""
    command: tuple[str, ...] = ()
    """Its one command as it is written, variables not filled in; empty where it has several, or prefixes."""

    @property
    def runs(self) -> bool:
        """Whether it is started."""
        return self.state in ("active", "reloading", "activating")

    @property
    def place(self) -> str:
        """What it is, for a person."""
        return f"{'user ' if self.of_user else ''}unit {self.name}"


@dataclass(frozen=True, slots=True)
class Findings:
    """All of it."""

    driver: Shape
    """The health check of the driver."""
    gpus: tuple[Shape, ...]
    tenants: Mapping[str, Tenant]
    """By id; those that were seen of, and those whose units are there."""
    names: frozenset[str]
    """The ids of all tenants."""
    units: tuple[Unit, ...]
    strangers: tuple[Process, ...]
    """Who holds VRAM and is nobody's."""
    notes: tuple[str, ...] = ()
    """What could not be looked at, and why."""
