"""The catalog: every tenant definition, layered, checked, and able to say where each value came from.

A broken file never takes down the rest: it is passed over, what earlier layers said stands, and the problem is
kept. Nothing here writes.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusupervisor.configuration.document import (
    SUFFIXES,
    DocumentError,
    Problem,
    Table,
    parse_document,
    read_document,
)
from gpusupervisor.configuration.layers import Contribution, Finding, Stacked, Tree, source, stack
from gpusupervisor.configuration.toml_text import toml_text
from gpusupervisor.errors import NoSuchTenant
from gpusupervisor.foreign_text import harmless, unknown_name
from gpusupervisor.tenants.definition import Endpoint, TenantDefinition
from gpusupervisor.tenants.hints import Hint, hint_about_stray, hints_of
from gpusupervisor.tenants.instances import base_and_label
from gpusupervisor.tenants.listening import Address, with_address
from gpusupervisor.tenants.schema import ID, ID_HELP, check_definition, normalize

SHIPPED = Path(__file__).parent / "definitions"
DEFAULT_LAYERS = (SHIPPED, Path("/etc/gpusupervisor/tenants.d"), Path("/run/gpusupervisor/tenants.d"))
"""The later folder wins."""

_SHIPPED_IDS = frozenset(path.stem for path in SHIPPED.glob("*.toml"))

MOST_FILES = 1000
"""Tenants that are read of one folder: every client reads them all, and every look goes through them."""
_BASE_ONLY = ("match", "per-instance")
"""What an instance's own file cannot say: an instance is recognised as its base is."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """All definitions of one load."""

    definitions: Mapping[str, TenantDefinition]
    """By id; what processes are matched against."""
    instances: Mapping[str, TenantDefinition]
    """By tenant id, e.g. "comfyui@8189": the instances that have a file of their own."""
    problems: tuple[Problem, ...]
    trees: Mapping[str, Tree]
    """By file stem: the effective values with their sources."""
    layers: Sequence[Path] = ()
    """The folders that were read."""
    hints: tuple[Hint, ...] = ()
    """What is allowed and hardly meant."""

    def resolve(self, tenant_id: str) -> TenantDefinition:
        """The definition of a tenant, an instance of a per-instance definition too; raises NoSuchTenant."""
        found = self.definitions.get(tenant_id) or self.instances.get(tenant_id)
        if found is not None:
            return found
        base_id, label = base_and_label(tenant_id)
        base = self.definitions.get(base_id)
        if base is None or not base.per_instance or not label or not ID.fullmatch(tenant_id):
            raise NoSuchTenant(unknown_name("tenant", tenant_id, self.definitions))
        return _as_instance(base, tenant_id)

    def explain(self, tenant_id: str) -> str:
        """The effective definition as TOML, every value with the file it came from; raises NoSuchTenant."""
        self.resolve(tenant_id)
        base_id, label = base_and_label(tenant_id)
        head = f"# {tenant_id}" if tenant_id in self.trees else f"# {tenant_id}: instance {label} of {base_id}"
        shipped = f"{SHIPPED}/{base_id}.toml"
        text = toml_text(self.trees.get(tenant_id) or self.trees[base_id])
        if shipped not in text:
            return f"{head}\n{text}"
        return f"{head}\n# shipped: {shipped}\n{text.replace(f'# from {shipped}', '# shipped')}"

    def check_text(self, name: str, text: str) -> tuple[Problem, ...]:
        """What would be wrong with a file of this name (.toml or .json) laid over what is loaded."""
        if not text:
            return ()  # an empty file masks
        stem, _, _ = name.rpartition(".")
        try:
            table = normalize(parse_document(name, text))
        except DocumentError as error:
            return (Problem(name, "", str(error)),)
        base_id, label = base_and_label(stem)
        start = self.trees.get(stem) or (self.trees.get(base_id, {}) if label else {})
        base = self.definitions.get(base_id) if label else None
        return _stack(stem, start, base, [Contribution(name, table)]).problems

    def hints_about(self, name: str, text: str) -> tuple[Hint, ...]:
        """What is allowed and hardly meant in a file of this name, laid over what is loaded; none of a broken one."""
        stem, _, _ = name.rpartition(".")
        if not text or "@" in stem:
            return ()
        try:
            table = normalize(parse_document(name, text))
        except DocumentError:
            return hints_of({}, {stem: name}, _SHIPPED_IDS)
        found = _stack(stem, self.trees.get(stem, {}), None, [Contribution(name, table)])
        definitions = {**self.definitions, **({stem: found.value} if found.value is not None else {})}
        return hints_of(definitions, {stem: name}, _SHIPPED_IDS)


def load_catalog(
    layers: Sequence[Path] = DEFAULT_LAYERS,
    read: Callable[[Path], Table | None] = read_document,
    only: Collection[str] | None = None,
) -> Catalog:
    """Read all layers; the catalog always comes back, with the problems it has.

    only: the stems of the files to read; None for all. read: a file's table, as `read_document` gives it; whoever
    trusts fewer files raises DocumentError for the others.
    """
    problems: list[Problem] = []
    contributions: dict[str, list[Contribution]] = {}
    own: dict[str, str] = {}
    for layer in layers:
        for stem, paths in sorted(_files_of(layer, problems).items()):
            if only is not None and stem not in only:
                continue
            contribution = _read(stem, paths, problems, read)
            if layer != SHIPPED and "@" not in stem:
                own[stem] = harmless(str(min(paths)), 256)
            if contribution is not None:
                contributions.setdefault(stem, []).append(contribution)
    definitions: dict[str, TenantDefinition] = {}
    instances: dict[str, TenantDefinition] = {}
    trees: dict[str, Tree] = {}
    for stem, stacked_files in sorted(contributions.items(), key=lambda item: ("@" in item[0], item[0])):
        base_id, label = base_and_label(stem)
        base = definitions.get(base_id) if label else None
        stacked = _stack(stem, trees.get(base_id, {}) if label else {}, base, stacked_files)
        problems += stacked.problems
        if stacked.value is not None:
            (instances if label else definitions)[stem] = _with_chosen_url(stacked.value, stacked.tree)
            trees[stem] = stacked.tree
    strays = [each for layer in layers if only is None for each in _strays(layer)]
    hints = (*strays, *hints_of(definitions, own, _SHIPPED_IDS))
    return Catalog(definitions, instances, tuple(problems), trees, tuple(layers), hints)


def _strays(layer: Path) -> list[Hint]:
    """The files of a folder that are not read, though somebody seems to have meant that."""
    try:
        others = sorted(path for path in layer.iterdir() if path.suffix not in SUFFIXES and path.is_file())
    except OSError:
        return []  # said where the files are read
    return [hint for path in others[:MOST_FILES] if (hint := hint_about_stray(path)) is not None]


def _files_of(layer: Path, problems: list[Problem]) -> dict[str, list[Path]]:
    """The files of a folder by stem. A folder that is not there has none."""
    found: dict[str, list[Path]] = {}
    try:
        for path in layer.iterdir():
            if path.suffix in SUFFIXES and not path.name.startswith("."):
                found.setdefault(path.stem, []).append(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        problems.append(Problem(str(layer), "", f"the folder cannot be read: {error.strerror}"))
    if len(found) > MOST_FILES:
        text = f"there are files of {len(found)} tenants: only the first {MOST_FILES} by name are read"
        problems.append(Problem(str(layer), "", text))
        return {stem: found[stem] for stem in sorted(found)[:MOST_FILES]}
    return found


def _read(
    stem: str, paths: list[Path], problems: list[Problem], read: Callable[[Path], Table | None]
) -> Contribution | None:
    """What one layer says of one tenant; None, with the problem recorded, when that cannot be used."""
    path = min(paths)
    shown = harmless(str(path), 256)
    if not ID.fullmatch(stem):
        problems.append(Problem(shown, "", f"the file's name is the tenant's id; allowed: {ID_HELP}"))
        return None
    if len(paths) > 1:
        names = " and ".join(sorted(each.name for each in paths))
        problems.append(Problem(shown, "", f"{names} are both there: keep one of them; neither is used"))
        return None
    try:
        table = read(path)
    except DocumentError as error:
        problems.append(Problem(shown, "", str(error)))
    except FileNotFoundError:
        return None  # removed since the folder was listed
    else:
        return Contribution(shown, None if table is None else normalize(table))
    return None


def _stack(
    stem: str, start: Tree, base: TenantDefinition | None, files: Sequence[Contribution]
) -> Stacked[TenantDefinition]:
    """The layers of one file name, over `start`; an instance's must have a base to be an instance of."""
    base_id, label = base_and_label(stem)
    if not label:
        return stack(start, files, lambda table: check_definition(stem, table))
    if base is None or not base.per_instance:
        reason = "has per-instance = false" if base else "does not exist"
        message = f'is for an instance of "{base_id}", which {reason}: the file is passed over'
        return Stacked({}, None, tuple(Problem(each.file, "", message) for each in files if each.table is not None))
    misplaced = [
        Problem(each.file, key, f'an instance is recognised as its base is: put this into "{base_id}"')
        for each in files
        for key in _BASE_ONLY
        if key in (each.table or {})
    ]
    wrong = {problem.file for problem in misplaced}
    usable = [each for each in files if each.file not in wrong]
    stacked = stack(start, usable, lambda table: _check_instance(base, stem, table))
    return replace(stacked, problems=(*misplaced, *stacked.problems))


def _check_instance(
    base: TenantDefinition, tenant_id: str, table: Table
) -> tuple[TenantDefinition | None, Sequence[Finding]]:
    definition, findings = check_definition(tenant_id, table)
    if definition is None:
        return None, findings
    own_url = definition.endpoint != base.endpoint
    title = definition.title if definition.title != base.title else _as_instance(base, tenant_id).title
    endpoint = definition.endpoint if own_url else _as_instance(base, tenant_id).endpoint
    return replace(definition, title=title, endpoint=endpoint), findings


def _with_chosen_url(definition: TenantDefinition, tree: Tree) -> TenantDefinition:
    """A URL that somebody has written stands, whatever a shipped file says of where else processes may listen."""
    if definition.endpoint is None or _is_shipped(tree, "url"):
        return replace(definition, endpoint_is_usual=definition.endpoint is not None)
    endpoint = definition.endpoint
    if _is_shipped(tree, "host-variable"):
        endpoint = replace(endpoint, host_variable="")
    if _is_shipped(tree, "port-variable"):
        endpoint = replace(endpoint, port_variable="")
    if _is_shipped(tree, "host-flags"):
        endpoint = replace(endpoint, host_flags=())
    return replace(definition, endpoint=endpoint)


def _is_shipped(tree: Tree, key: str) -> bool:
    return Path(source(tree, ("endpoint", key))).parent == SHIPPED


def _as_instance(base: TenantDefinition, tenant_id: str) -> TenantDefinition:
    """The base under the instance's name, implied; a label that is a port is the port of its endpoint."""
    _, label = base_and_label(tenant_id)
    port = int(label) if re.fullmatch(r"[1-9][0-9]{0,4}", label) and int(label) < 1 << 16 else None
    endpoint = base.endpoint
    if endpoint is not None and _names_a_port(endpoint) and port is not None:
        endpoint = replace(endpoint, url=with_address(endpoint.url, Address("", port)))
    return replace(base, id=tenant_id, title=f"{base.title} ({label})", endpoint=endpoint, is_implied=True)


def _names_a_port(endpoint: Endpoint) -> bool:
    return bool(endpoint.port_flags or endpoint.host_flags or endpoint.host_variable or endpoint.port_variable)
