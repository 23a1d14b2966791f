"""Of which processes, and which environment variables of them, may be told: by tenant definitions of root's only."""

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from gpusupervisor.configuration.document import SUFFIXES, DocumentError, Table, parse_document
from gpusupervisor.privileged.root_files import RootFolder, UntrustedFile
from gpusupervisor.reader.page_cache.definitions import read_trusted
from gpusupervisor.tenants.catalog import load_catalog
from gpusupervisor.tenants.schema import VARIABLE
from gpusupervisor.tenants.signs import EngineSigns, signs_of

AT_MOST = 64
KEYS = ("host-variable", "port-variable", "tls-variable", "prefix-variable")
"""Of `[endpoint]`: what names a variable."""


def named_variables(layers: Sequence[Path], owner: int = 0) -> frozenset[str]:
    """The names in all files of the layers that only root could have written; what cannot be used names none.

    A name that a later layer replaces stays allowed: what is told of it nobody asks for.
    """
    endpoints = (table.get("endpoint") for layer in layers for table in _tables_in(layer, owner))
    names = (endpoint.get(key) for endpoint in endpoints if isinstance(endpoint, dict) for key in KEYS)
    found = {name for name in names if isinstance(name, str) and VARIABLE.fullmatch(name)}
    return frozenset(sorted(found)[:AT_MOST])


def tenant_units(layers: Sequence[Path], owner: int = 0) -> frozenset[str]:
    """Patterns of the system units in which tenants run, by the same files."""
    matches = (table.get("match") for layer in layers for table in _tables_in(layer, owner))
    units = (match.get("units") for match in matches if isinstance(match, dict))
    found = {name for names in units if isinstance(names, list) for name in names if isinstance(name, str)}
    return frozenset(found)


def engine_signs(layers: Sequence[Path], owner: int = 0) -> EngineSigns:
    """What engines look like, by the same files, laid over each other as the supervisor does."""
    return signs_of(load_catalog(layers, partial(read_trusted, owner=owner)).definitions.values())


def _tables_in(layer: Path, owner: int) -> Iterator[Table]:
    folder = RootFolder(layer, owner)
    try:
        files = [name for name in os.listdir(layer) if name.endswith(SUFFIXES) and not name.startswith(".")]
    except OSError:
        return
    for file in sorted(files):
        try:
            text = folder.read(file)
            table = parse_document(file, text) if text else None
        except (UntrustedFile, DocumentError, OSError):
            continue  # the supervisor's own check of the configuration says what is wrong with it
        if table is not None:
            yield table
