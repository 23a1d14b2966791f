"""Checks one tenant file, in a process of its own: `python -m gpusupervisor.tenants.examine NAME [LAYER...]`.

The text comes on standard input, the problems leave as a list in JSON. Parsers are not bounded in time: a few kilobytes
can occupy them for hours. So the process bounds itself, and is killed when that is too little.
"""

import argparse
import json
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

CPU_SECONDS = 3
MOST_MEMORY = 1 << 30
"""Bytes of address space."""
LONGEST = 1 << 20
"""Bytes that are read; a file that is too long is one all the same, and is said to be."""


def main() -> None:
    """Entry point."""
    with suppress(PermissionError):  # setpriority is not among the system calls that the service's unit allows
        os.nice(10)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    parser = argparse.ArgumentParser(description="Check a tenant file that comes on standard input.")
    parser.add_argument("name", metavar="NAME", help="the file's name, which ends in .toml or .json")
    parser.add_argument("layers", metavar="LAYER", nargs="*", type=Path, help="folders; the later one wins")
    options = parser.parse_args()
    text = sys.stdin.buffer.read(LONGEST).decode()
    json.dump(problems(options.name, text, options.layers), sys.stdout)


def problems(name: str, text: str, layers: Sequence[Path]) -> list[str]:
    """What would be wrong with a file of this name over what lies in the folders; none given: in the usual ones."""
    from gpusupervisor.tenants.catalog import DEFAULT_LAYERS, load_catalog
    from gpusupervisor.tenants.instances import base_and_label

    stem, _, _ = name.rpartition(".")
    catalog = load_catalog(layers or DEFAULT_LAYERS, only={stem, base_and_label(stem)[0]})
    found = catalog.check_text(name, text)
    if not found:
        catalog = load_catalog(layers or DEFAULT_LAYERS)
    hints = (hint for hint in catalog.hints_about(name, text) if not hint.meant)
    return [*map(str, found), *map(str, hints)]


if __name__ == "__main__":
    main()
