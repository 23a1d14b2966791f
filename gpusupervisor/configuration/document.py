"""One configuration file as a plain table: TOML or JSON, bounded in size and shape before anything looks at it."""

import json
import math
import os
import stat
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from gpusupervisor.foreign_text import harmless

Table = dict[str, object]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 12
MAX_ITEMS = 512
"""Entries of one list or table."""
MAX_TEXT = 4096
"""Characters of one string."""
SUFFIXES = (".toml", ".json")


class DocumentError(Exception):
    """A file that cannot be used at all; the text says why."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a configuration file."""

    file: str
    key: str
    """Path of the key, e.g. "release[0].json"; empty when the file as a whole is meant."""
    message: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.message) if part)


def read_document(path: Path) -> Table | None:
    """The table in a file; None when it masks (is empty or /dev/null, as systemd has it). Raises DocumentError,
    and FileNotFoundError when there is no such file (a dangling link is an error: somebody meant something).
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError as error:
        if path.is_symlink():
            raise DocumentError("is a link to nowhere") from error
        raise
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from error
    try:
        status = os.fstat(descriptor)
        if os.path.realpath(path) == os.devnull or (stat.S_ISREG(status.st_mode) and status.st_size == 0):
            return None
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError("is not a regular file (an empty file or a link to /dev/null masks)")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise DocumentError(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > MAX_BYTES:
        raise DocumentError(f"is longer than {MAX_BYTES // 1024} KiB")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DocumentError(f"is not UTF-8 (byte {error.start})") from error
    return parse_document(path.name, text)


def parse_document(name: str, text: str) -> Table:
    """The table in a text; the suffix of `name` says whether it is TOML or JSON. Raises DocumentError."""
    if len(text) > MAX_BYTES:
        raise DocumentError(f"is longer than {MAX_BYTES // 1024} KiB")
    try:
        if name.endswith(".toml"):
            table: object = tomllib.loads(text)
        elif name.endswith(".json"):
            table = json.loads(text, object_pairs_hook=_without_duplicates)
        else:
            raise DocumentError("the name must end in .toml or .json")
    except RecursionError as error:
        raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        language = "TOML" if name.endswith(".toml") else "JSON"
        raise DocumentError(f"is not {language}: {harmless(str(error))}") from error
    if not isinstance(table, dict):
        raise DocumentError("must be a table (a JSON object) at the top")
    _check_shape(table)
    return table


def _without_duplicates(pairs: list[tuple[str, object]]) -> Table:
    table = dict(pairs)
    if len(table) != len(pairs):
        counted = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counted.items() if count > 1)
        raise ValueError(f"the key {harmless(twice, 64)!r} is there twice")
    return table


def _check_shape(table: Table) -> None:
    """Refuse what is too deep, too long, or has no meaning in both TOML and JSON."""
    pending: list[tuple[object, int]] = [(table, 1)]
    while pending:
        value, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise DocumentError(f"is nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict | list):
            if len(value) > MAX_ITEMS:
                raise DocumentError(f"has a list or table of more than {MAX_ITEMS} entries")
            children = [*value, *value.values()] if isinstance(value, dict) else value
            pending.extend((child, depth + 1) for child in children)
        else:
            _check_scalar(value)


def _check_scalar(value: object) -> None:
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise DocumentError(f"has a text of more than {MAX_TEXT} characters")
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise DocumentError("has a text that is not Unicode (a lone surrogate)")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise DocumentError("has a number that is not finite")
    elif value is None:
        raise DocumentError("has a null, which TOML does not know: leave the key out")
    elif not isinstance(value, int):
        raise DocumentError("has a date or time, which no key takes")
