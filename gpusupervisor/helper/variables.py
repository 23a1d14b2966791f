"""Which environment variables may be told: those that tenant definitions name, and only definitions of root's."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusupervisor.configuration.document import SUFFIXES, DocumentError, parse_document
from gpusupervisor.helper.profile.root_files import RootFolder, UntrustedFile
from gpusupervisor.tenants.schema import VARIABLE

AT_MOST = 64
KEYS = ("host-variable", "port-variable")
"""Of `[endpoint]`: what names a variable."""


def named_variables(layers: Sequence[Path], owner: int = 0) -> frozenset[str]:
    """The names in all files of the layers that only root could have written; what cannot be used names none.

    A name that a later layer replaces stays allowed: what is told of it nobody asks for.
    """
    found = {name for layer in layers for name in _names_in(layer, owner) if VARIABLE.fullmatch(name)}
    return frozenset(sorted(found)[:AT_MOST])


def _names_in(layer: Path, owner: int) -> Iterator[str]:
    folder = RootFolder(layer, owner)
    try:
        files = [name for name in os.listdir(layer) if name.endswith(SUFFIXES) and not name.startswith(".")]
    except OSError:
        return
    for file in sorted(files):
        try:
            text = folder.read(file)
            endpoint = parse_document(file, text).get("endpoint") if text else None
        except (UntrustedFile, DocumentError, OSError):
            continue  # the supervisor's own check of the configuration says what is wrong with it
        for key in KEYS:
            name = endpoint.get(key) if isinstance(endpoint, dict) else None
            if isinstance(name, str):
                yield name
