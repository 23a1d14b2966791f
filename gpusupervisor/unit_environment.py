"""The files behind a unit: its environment files, and which file says what. Reading them is all that is done here."""

import glob
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpusupervisor.unit_syntax import assigned_by_unit_file, environment_file


@dataclass(frozen=True, slots=True)
class Given:
    """A value with the place that says so."""

    value: str
    source: str


MAX_FILE = 64 * 1024
"""Bytes."""
MAX_FILES = 64


def environment_of(
    unit: str,
    assignments: Sequence[str],
    unit_files: Sequence[str],
    environment_files: Iterable[tuple[str, bool]],
    unset: Iterable[str],
) -> tuple[dict[str, Given], tuple[str, ...]]:
    """What the unit's next start gives its processes, with the files that say so; and the files that cannot be read.

    assignments: the unit's Environment, as systemd has merged it. unit_files: its fragment and drop-ins, in order.
    environment_files: path or pattern, and whether it may be missing. unset: names, or assignments that are undone.
    """
    sources = _assigning(unit_files[:MAX_FILES])
    found: dict[str, Given] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        found[name] = Given(value, sources.get(name, unit))
    unreadable = []
    for path in _paths(environment_files):
        try:
            text = read_bounded(path)
        except FileNotFoundError:
            continue
        except OSError:
            unreadable.append(path)
            continue
        found |= {name: Given(value, path) for name, value in environment_file(text).items()}
    for gone in unset:
        name, equals, value = gone.partition("=")
        if name in found and (not equals or found[name].value == value):
            del found[name]
    return found, tuple(unreadable)


def _assigning(paths: Iterable[str]) -> dict[str, str]:
    """By variable: the last unit file that sets it."""
    found: dict[str, str] = {}
    for path in paths:
        try:
            found |= dict.fromkeys(assigned_by_unit_file(read_bounded(path)), path)
        except OSError:
            continue  # then the unit itself is named as the source
    return found


def _paths(environment_files: Iterable[tuple[str, bool]]) -> list[str]:
    paths: list[str] = []
    for path, _optional in environment_files:
        paths += sorted(glob.glob(path)) if glob.has_magic(path) else [path]
    return paths[:MAX_FILES]


def read_bounded(path: str) -> str:
    """The text of a regular file. Raises OSError, for one that is too large too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no file")
        content = os.read(descriptor, MAX_FILE + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE:
        raise OSError(f"{path} is too large for an environment file")
    return content.decode("utf-8", "replace")
