"""What a film is made of, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gpusupervisor.arbitration.learned import FactKind

VERSION = 1
"""Of the format."""

Picture = Mapping[str, object]
"""What changes at one moment: the tables "gpus", "processes", "http" and "units" as they are written."""


@dataclass(frozen=True, slots=True)
class Learned:
    """What the service had learned before the film begins."""

    kind: FactKind
    tenant: str
    gpu: str
    value: int
    model: str = ""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line."""

    title: str = ""
    about: str = ""
    started_at: int = 0
    """Wall-clock microseconds (Unix epoch)."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """As in gpusupervisor.toml."""
    tenants: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    """Laid over the shipped definitions, by file stem."""
    answers: Mapping[str, object] = field(default_factory=dict)
    """Answers that lines name."""
    learned: tuple[Learned, ...] = ()
    acts: bool | None = None
    """Whether requests are sent; None: if anything in the film reacts to them."""
    lasts: int | None = None
    """Microseconds; None: to its last line."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is different from this moment on."""

    at: int
    """Microseconds after the beginning."""
    picture: Picture
    line: int


@dataclass(frozen=True, slots=True)
class Reaction:
    """What changes when an engine is asked for its memory."""

    since: int
    address: str
    having: str
    """Text that the request must have in it; empty for any."""
    after: int
    picture: Picture
    line: int


Deed = Literal["release", "make-room", "observe", "automatic"]


@dataclass(frozen=True, slots=True)
class Command:
    """What a person does."""

    at: int
    deed: Deed
    tenant: str
    size: int
    line: int


@dataclass(frozen=True, slots=True)
class Expectation:
    """What is right."""

    what: str
    """E.g. "busy", "starved", "asked"."""
    wrong: bool
    """The opposite is right: "not busy"."""
    since: int
    until: int
    always: bool
    """Throughout that time, and not at some moment of it."""
    tenant: str
    details: Mapping[str, object]
    line: int
    text: str
    """As it is written, for people."""


@dataclass(frozen=True, slots=True)
class Film:
    """A whole film."""

    name: str
    header: Header
    changes: tuple[Change, ...]
    reactions: tuple[Reaction, ...] = ()
    commands: tuple[Command, ...] = ()
    expectations: tuple[Expectation, ...] = ()

    @property
    def acts(self) -> bool:
        """Whether requests for memory are sent to the film's engines."""
        return bool(self.reactions) if self.header.acts is None else self.header.acts

    @property
    def lasts(self) -> int:
        """Microseconds."""
        if self.header.lasts is not None:
            return self.header.lasts
        ends = (
            *(change.at for change in self.changes),
            *(command.at for command in self.commands),
            *(expectation.until for expectation in self.expectations),
        )
        return max(ends, default=0) + 1_000_000
