"""The kinds of entries about engines: where they are asked, and that they are gone."""

from dataclasses import dataclass
from logging import INFO

from gpusupervisor.journal.entry import Entry


@dataclass(frozen=True, slots=True)
class EngineFound(Entry):
    """An engine's server was found, or it listens elsewhere than before."""

    message_id = "26263cc2705646c5a3b89058b0b1faac"
    level = INFO
    text = "the server of {tenant} is process {process}, at {endpoint}"
    tenant: str
    engine: str
    process: int
    endpoint: str


@dataclass(frozen=True, slots=True)
class EngineGone(Entry):
    """An engine's server has ended."""

    message_id = "06e9ce2f48e149edbc7a965a33e2a977"
    level = INFO
    text = "the server of {tenant}, process {process}, has ended"
    tenant: str
    engine: str
    process: int


@dataclass(frozen=True, slots=True)
class ModelWarmed(Entry):
    """A model that is used daily was read into RAM, since its tenant's file says so."""

    message_id = "8f0c6b1d7a934e52b6c1f3a85d20e947"
    level = INFO
    text = "{model} of {tenant} is used daily: its {size} were read into RAM in {duration}"
    tenant: str
    model: str
    size: int
    duration: int
