"""What an engine is set to, out of what its process, its unit and its API say (pure)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpusupervisor.engines.configured import Configured
from gpusupervisor.engines.setting import Setting
from gpusupervisor.engines.table import Facts, Known, Table
from gpusupervisor.foreign_text import harmless
from gpusupervisor.unit_environment import Given

NOT_SET = "(not set)"
SET = "(set)"
"""What is shown of a secret, and of a flag without a value that waits for a restart."""
LONGEST_VALUE = 256


@dataclass(frozen=True, slots=True)
class ApiFacts:
    """What the engine itself answered."""

    version: str = ""
    told: Mapping[str, Given] = field(default_factory=dict)
    """By the setting's name; the source is the path that was asked."""


NOT_ASKED = ApiFacts()


@dataclass(frozen=True, slots=True)
class _Places:
    """The three places at which one setting may be given."""

    running: Given | None
    unit: Given | None
    told: Given | None

    def in_force(self, *, looked_into: bool) -> Given | None:
        """What counts now. The unit's word is taken where the process cannot be looked into, or there is none."""
        if self.running is not None:
            same = self.unit is not None and self.unit.value == self.running.value
            return self.unit if same else self.running
        return self.told or (None if looked_into else self.unit)

    def waiting(self, *, looked_into: bool, unit_complete: bool) -> Given | None:
        """What the next start will change."""
        now, then = self.running, self.unit
        if then is not None:
            changed = now.value != then.value if now is not None else looked_into
            return then if changed else None
        return Given(NOT_SET, now.source) if now is not None and unit_complete else None


def interpret(
    table: Table, running: Configured | None, unit: Configured | None, api: ApiFacts, *, unit_decides: bool
) -> tuple[Setting, ...]:
    """The settings that are given, and the defaults that are worth telling, in the table's order.

    running: None while no process runs. unit_decides: the process is what the unit started itself, so that a
    difference between the two can only be a change that waits for a restart.
    """
    looked_into = running is not None and running.complete
    places = {
        known.name: _Places(
            running.given.get(known.name) if running else None,
            unit.given.get(known.name) if unit else None,
            api.told.get(known.name),
        )
        for known in table.settings
    }
    in_force = {name: given for name, each in places.items() if (given := each.in_force(looked_into=looked_into))}
    values = {name: given.value for name, given in in_force.items()}
    made = []
    for known in table.settings:
        waits = None
        if running is not None and unit is not None and unit_decides:
            waits = places[known.name].waiting(looked_into=looked_into, unit_complete=unit.complete)
        if waits is not None or known.name in in_force:
            made.append(_given(known, in_force.get(known.name), waits, values, api.version))
        elif looked_into:
            made.append(_by_default(known, Facts("", values, api.version)))
    return tuple(setting for setting in made if setting is not None)


def _given(
    known: Known, in_force: Given | None, waits: Given | None, values: Mapping[str, str], version: str
) -> Setting | None:
    """A setting that is given, or will be."""
    pending = ""
    if waits is not None:
        shown = harmless(waits.value, LONGEST_VALUE)
        pending = shown if shown and (not known.secret or shown == NOT_SET) else SET
    if in_force is not None:
        meaning = _meaning(known, Facts(in_force.value, values, version))
        value = SET if known.secret else in_force.value
        return _setting(known.name, value, in_force.source, meaning, pending) if meaning or pending else None
    if waits is None:
        return None
    meaning = _meaning(known, Facts(waits.value, {**values, known.name: waits.value}, version))
    return _setting(known.name, "", waits.source, f"after a restart: {meaning}" if meaning else "", pending)


def _by_default(known: Known, facts: Facts) -> Setting | None:
    """A setting that nobody has given, where its documented default is worth telling."""
    default = known.default(facts)
    if default is None:
        return None
    return Setting(known.name, default, "default", known.means(replace(facts, value=default)))


def _meaning(known: Known, facts: Facts) -> str:
    """What follows from a value that was given; one that the engine cannot read has the default's effect."""
    if known.understood(facts.value):
        return known.means(facts)
    default = known.default(facts)
    otherwise = f": {known.means(replace(facts, value=default))}" if default is not None else ""
    return f"the engine cannot read this value and goes by its default{otherwise}"


def _setting(name: str, value: str, source: str, meaning: str, pending: str) -> Setting:
    """All of it fit to be shown: a meaning may quote a value."""
    shown = (harmless(text, LONGEST_VALUE) for text in (value, source, meaning, pending))
    return Setting(name, *shown)
