"""What an engine says of its models, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

ModelState = Literal["loaded", "loading", "asleep", "not-loaded", "unknown"]
Ability = Literal["list", "resident", "load", "unload"]
"""Tell the models there are; tell which of them are loaded; load one by name; unload one by name."""
ABILITIES: tuple[Ability, ...] = ("list", "resident", "load", "unload")


@dataclass(frozen=True, slots=True)
class Listed:
    """One model, in its engine's words. Bytes; None: it does not say."""

    name: str
    """As the engine's API takes it."""
    state: ModelState = "unknown"
    size: int | None = None
    """Of its files."""
    wants: int | None = None
    """What it would hold with all of it in VRAM, as the engine reckons."""
    held: int | None = None
    """What it holds in VRAM, as the engine reckons."""
    pinned: bool = False
    remote: bool = False
    """It runs on another machine and needs no VRAM here."""
    failed: str = ""
    """Why its last load failed, where the engine says so afterwards."""
    context: int | None = None
    """Tokens of context that it is loaded with."""
    file: str = ""
    """Absolute path of its weights, as its engine names it: a claim, by which nothing is ever opened."""

    @property
    def spilled(self) -> bool:
        """Part of it is in system memory."""
        return self.state == "loaded" and self.wants is not None and self.held is not None and self.held < self.wants


@dataclass(frozen=True, slots=True)
class Listing:
    """What was learned by one look."""

    models: tuple[Listed, ...] = ()
    problems: tuple[str, ...] = ()
    """Which parts are unknown, and why; empty when all was answered."""
    cannot: Mapping[Ability, str] = field(default_factory=dict)
    """What this instance cannot do, with the reason, beside what its kind of engine never can."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine answered to a load or an unload. Never proof of anything: the caller measures."""

    outcome: Literal["done", "started", "out-of-memory", "refused", "failed"]
    """started: it goes on in the background, and the list of models tells how. refused: it did not try. failed: it may
    have tried."""
    detail: str = ""
    """What it said, fit for a person."""
