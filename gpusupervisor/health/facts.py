"""Everything that a self-check may look at, as one immutable value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.arbitration.swaps import Thrash
from gpusupervisor.arbitration.trust import Failure
from gpusupervisor.controls import Controls
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.health.surroundings import UNSEEN, Surroundings
from gpusupervisor.models.fit_book import CardFit
from gpusupervisor.models.residency import Residency
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.settings import Settings
from gpusupervisor.state import EngineStatus
from gpusupervisor.telemetry.status import StoreStatus
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.census import Census
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.hints import Hint

_NOTHING_STORED = StoreStatus("off", "nothing is stored")
Key = tuple[str, ...]
"""What lasts: a word for the kind, then whose."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a look has found, and what is remembered of the looks before. Instants are of the domain clock."""

    now: int
    sample: Sample
    census: Census
    situation: Situation
    definitions: Mapping[str, TenantDefinition]
    activities: Mapping[str, Activity]
    engines: Mapping[str, EngineStatus]
    controls: Controls
    sight: Sight
    settings: Settings
    problems: tuple[str, ...] = ()
    """Of the configuration in force."""
    hints: tuple[Hint, ...] = ()
    """What in the tenant files in force is allowed and hardly meant."""
    refused: tuple[str, ...] = ()
    """Of a reload that was not taken over."""
    declaration_problems: tuple[str, ...] = ()
    """Of system units."""
    users_declaration_problems: tuple[str, ...] = ()
    reloaded: frozenset[str] = frozenset()
    """Tenants that a client had reload at once after a release."""
    failures: Mapping[str, Failure] = field(default_factory=dict)
    """By tenant: releases that brought nothing, or not all."""
    thrashing: tuple[Thrash, ...] = ()
    """Pairs of tenants whose memory goes back and forth."""
    cards: Mapping[str, CardFit] = field(default_factory=dict)
    """By GPU: what it could ever offer, the same figure as everywhere."""
    residencies: Mapping[str, Residency] = field(default_factory=dict)
    """By tenant."""
    telemetry: StoreStatus = _NOTHING_STORED
    surroundings: Surroundings = UNSEEN
    """What is looked at seldom, for it is dear."""
    since: Mapping[Key, int] = field(default_factory=dict)
    """What is so at this look, and since when it has been at every look."""
    steady: Mapping[Key, int] = field(default_factory=dict)
    """Bytes that follow what is measured only when it has moved: fit for a text on D-Bus."""
    bad: frozenset[str] = frozenset()
    """Checks that were degraded or failed at the look before, so that a figure at a threshold does not flap."""

    def lasted(self, *key: str) -> int:
        """Microseconds for which something has been so at every look; 0 when it is not so."""
        return self.now - self.since[key] if key in self.since else 0
