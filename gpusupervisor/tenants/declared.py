"""Units that declare themselves tenants, with Environment=GPUSUPERVISOR_TENANT=NAME and more of the kind (pure).

Of a system unit the values are root's, as systemd itself tells them: they are one more layer over the tenant's files.
Of a user's unit they are what its processes were started with: they may describe, and lower a priority and a need, and
only of a tenant that is all that unit's. No declaration brings an address to ask or a way to release.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpusupervisor.configuration.document import Problem, Table
from gpusupervisor.configuration.layers import Contribution, Tree, sourced, stack
from gpusupervisor.foreign_text import harmless
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.quantities import format_bytes
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.definition import Match, TenantDefinition
from gpusupervisor.tenants.instances import instance_label, tenant_id
from gpusupervisor.tenants.schema import ID, check_definition

PREFIX = "GPUSUPERVISOR_"
TENANT = f"{PREFIX}TENANT"
PRIORITY = f"{PREFIX}PRIORITY"
PROTECTED = f"{PREFIX}PROTECTED"
NEEDS = f"{PREFIX}NEEDS_VRAM"
KEYS: Mapping[str, str] = {
    f"{PREFIX}TITLE": "title",
    PRIORITY: "priority",
    NEEDS: "needs-vram",
    PROTECTED: "protected",
}
"""The variables beside TENANT, with the keys of a tenant file that they stand for."""
VARIABLES = frozenset({TENANT, *KEYS})

Variables = Mapping[str, str]

_YES = frozenset({"1", "yes", "y", "true", "t", "on"})
"""As systemd reads it."""
_OWN_ACTIVITY: Table = {"probes": [{"kind": "sm-utilization"}, {"kind": "cpu"}, {"kind": "vram"}]}
"""How a tenant that only a unit describes is seen to work: by its own processes' life."""


@dataclass(frozen=True, slots=True)
class Declared:
    """A catalog with what units declare laid over it."""

    catalog: Catalog
    problems: tuple[Problem, ...] = ()


def with_declarations(catalog: Catalog, units: Mapping[str, Variables]) -> Declared:
    """Lay over a catalog what system units declare. units: by name, their GPUSUPERVISOR_ variables."""
    overlay = _Overlay(catalog)
    for unit, variables in sorted(units.items()):
        overlay.take(unit, variables)
    layered = replace(catalog, definitions=overlay.definitions, instances=overlay.instances, trees=overlay.trees)
    return Declared(layered, tuple(overlay.problems))


class _Overlay:
    """What becomes of a catalog while one unit after the other is taken in."""

    def __init__(self, catalog: Catalog) -> None:
        self.definitions = dict(catalog.definitions)
        self.instances = dict(catalog.instances)
        self.trees = dict(catalog.trees)
        self.problems: list[Problem] = []
        self._catalog = catalog
        self._said: dict[tuple[str, str], tuple[str, str]] = {}
        """By tenant and variable: the unit that said something of it, and what."""

    def take(self, unit: str, variables: Variables) -> None:
        """Take in what one unit says."""
        source = f"unit {harmless(unit, 64)}"
        for name in sorted(variables.keys() - VARIABLES):
            known = ", ".join(sorted(VARIABLES))
            self.problems.append(Problem(source, harmless(name, 64), f"is no variable; there are {known}"))
        name = variables.get(TENANT, "")
        if not ID.fullmatch(name) or "@" in name:
            self.problems.append(Problem(source, TENANT, _wrong_name(name)))
            return
        base = self.definitions.get(name)
        values = _values(variables)
        if base is None:
            base = TenantDefinition(name, name, Match())
            self.trees[name] = sourced({"title": name}, source)
            values = {"title": name, "match": {"units": [unit]}, "activity": _OWN_ACTIVITY, **values}
        match = replace(base.match, declared=(*base.match.declared, unit))
        self.definitions[name] = replace(base, match=match)
        tenant = tenant_id(base, instance_label(base, _inhabitant(unit), None))
        self._note_contradictions(source, tenant, variables)
        if values:
            self._describe(source, tenant, name, values)

    def _note_contradictions(self, source: str, tenant: str, variables: Variables) -> None:
        for variable in sorted(KEYS.keys() & variables.keys()):
            other, text = self._said.setdefault((tenant, variable), (source, variables[variable]))
            if text != variables[variable]:
                self.problems.append(Problem(source, variable, f"contradicts what {other} says about {tenant}"))

    def _describe(self, source: str, tenant: str, base_id: str, values: Table) -> None:
        """Lay the values over the tenant; with a mistake in them none counts, and it is protected: what was meant
        may be that it must not be asked."""
        before = replace(self._catalog, definitions=self.definitions, instances=self.instances).resolve(tenant)
        start: Tree = self.trees.get(tenant, self.trees.get(base_id, {}))
        stacked = stack(start, [Contribution(source, values)], lambda table: check_definition(tenant, table))
        if stacked.value is None:
            self.problems += _renamed(stacked.problems)
            after = replace(before, protected=True)
        else:
            self.trees[tenant] = stacked.tree
            said = stacked.value
            after = replace(
                before,
                title=said.title if "title" in values else before.title,
                priority=said.priority,
                needs_vram=said.needs_vram,
                protected=said.protected or before.protected,
                activity=said.activity,
            )
        (self.instances if "@" in tenant else self.definitions)[tenant] = after


def _wrong_name(name: str) -> str:
    if not name:
        return "is missing: it says which tenant the unit is, e.g. GPUSUPERVISOR_TENANT=comfyui"
    return f'is "{harmless(name, 64)}"; allowed: the name of a tenant: letters, digits and . _ : -'


def _inhabitant(unit: str) -> ProcessIdentity:
    """A process of which no more is known than that it is in this unit."""
    return ProcessIdentity(ProcessKey(0, 0), 0, 0, "", unit=unit)


def _values(variables: Variables) -> Table:
    """The variables as the values of a tenant file; what has no such value stays text, which the schema refuses."""
    return {key: _value(name, variables[name]) for name, key in KEYS.items() if name in variables}


def _value(name: str, text: str) -> object:
    if name == PRIORITY and re.fullmatch(r"[0-9]{1,9}", text, re.ASCII):
        return int(text)
    if name == PROTECTED and text.lower() in _YES:
        return True
    return text


def _renamed(problems: Iterable[Problem]) -> list[Problem]:
    """The schema's complaints, of the variables that were meant."""
    names = {key: name for name, key in KEYS.items()}
    return [
        Problem(each.file, names.get(each.key, TENANT), _ONLY_YES if each.key == "protected" else each.message)
        for each in problems
    ]


_ONLY_YES = "can only be yes: a unit can protect itself, but not remove a protection"


def tempered(definition: TenantDefinition, presence: TenantPresence) -> tuple[TenantDefinition, Sequence[Problem]]:
    """The definition with what the one user's unit says that all of the tenant's processes are in."""
    identities = [holder.identity for holder in presence.holders]
    owners = {(each.uid, each.user_unit) if each else (-1, "") for each in identities}
    first = identities[0] if identities else None
    if len(owners) != 1 or first is None or not first.user_unit.endswith(".service"):
        return definition, ()
    variables = _said_by_all(each for each in identities if each)
    if not variables:
        return definition, ()
    source = f"user unit {harmless(first.user_unit, 64)}"
    problems = [
        Problem(source, name, "only a system unit can set this") for name in (TENANT, PROTECTED) if name in variables
    ]
    values = _values({name: text for name, text in variables.items() if name not in (TENANT, PROTECTED)})
    wanted, findings = check_definition("x", {"title": "x", "match": {"units": ["x"]}, **values})
    if wanted is None:
        return definition, (*problems, *_renamed(Problem(source, str(path[0]), text) for path, text in findings))
    if "priority" in values and wanted.priority > definition.priority:
        problems.append(Problem(source, PRIORITY, f"a user's unit can only lower it, to {definition.priority} at most"))
    need = definition.needs_vram
    if need is not None and "needs-vram" in values and (wanted.needs_vram or 0) > need:
        problems.append(Problem(source, NEEDS, f"a user's unit can only lower it, to {format_bytes(need)} at most"))
    return _described(definition, wanted, values), problems


def _described(definition: TenantDefinition, wanted: TenantDefinition, values: Table) -> TenantDefinition:
    """The definition with those of the values that a user may give."""
    priority = min(definition.priority, wanted.priority) if "priority" in values else definition.priority
    idle, need = definition.idle_priority, definition.needs_vram
    asked = wanted.needs_vram if "needs-vram" in values else None
    return replace(
        definition,
        title=wanted.title if "title" in values else definition.title,
        priority=priority,
        idle_priority=None if idle is None else min(idle, priority),
        needs_vram=need if need is None or asked is None else min(need, asked),
        needs_at_most=asked,
    )


def _said_by_all(identities: Iterable[ProcessIdentity]) -> Variables:
    """The variables on which all processes of a unit agree."""
    each = [{(name, text) for name, text in one.environment if name in VARIABLES} for one in identities]
    return dict(set.intersection(*each)) if each else {}
