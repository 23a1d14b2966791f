"""Configuration files that a process reads, as far as they set what is on a closed list of keys.

A process may name any file. Hence only files are read that are its own user's, or root's and everybody's to read; of
these only the listed keys are told, of secrets only that they are set.
"""

import configparser
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Form = Literal["ini", "yaml", "json"]
MAX_FILE = 64 * 1024
"""Bytes of one file."""
MAX_FILES = 4
MAX_VALUE = 256
"""Characters of one value."""
_MANY = 64
"""Values that a key with "*" may gather."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that a program reads if it is there."""

    path: str
    """As the process sees it; absolute."""
    form: Form
    keys: frozenset[str]
    """What may be told, e.g. "model.cache_size"; in "models.*.ttl", "*" is any key."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A configuration file that is there."""

    path: str
    readable: bool = True
    """Whether it was read and understood."""
    values: tuple[tuple[str, str], ...] = ()
    """By key, sorted."""


Shown = Callable[[str, str], str]
"""Takes a key and its value; returns what may be told of the value."""
Sources = Callable[[Sequence[str], str, Mapping[str, str]], Sequence[Source]]
"""Takes a command line, a working directory and an environment; returns files, the one that counts most last."""


class UnparsableError(Exception):
    """A file's text is not what it should be."""


def read_sources(root: Path, uid: int, sources: Sequence[Source], shown: Shown) -> tuple[SettingsFile, ...]:
    """Return those of the files that exist. root: the process's root directory. uid: the process's user."""
    found = (_read(root, uid, source, shown) for source in sources[:MAX_FILES])
    return tuple(each for each in found if each is not None)


def _read(root: Path, uid: int, source: Source, shown: Shown) -> SettingsFile | None:
    try:
        text = _text(f"{root}{source.path}", uid)
        given = settings_in(text, source.form, source.keys)
        return SettingsFile(source.path, values=tuple(sorted((key, shown(key, given[key])) for key in given)))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnparsableError):
        return SettingsFile(source.path, readable=False)


def _text(path: str, uid: int) -> str:
    """Raises OSError, for a file that is too large or another user's too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        is_public = status.st_uid == 0 and bool(status.st_mode & stat.S_IROTH)
        if not stat.S_ISREG(status.st_mode) or not (status.st_uid == uid or is_public):
            raise PermissionError(path)
        content = os.read(descriptor, MAX_FILE + 1)
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE:
        raise OSError(f"{path} is too large")
    return content.decode("utf-8", "replace")


def settings_in(text: str, form: Form, keys: frozenset[str]) -> dict[str, str]:
    """Return the listed keys that a text sets. Raises UnparsableError."""
    if form == "ini":
        given = _ini(text)
        return {key: given[key][:MAX_VALUE] for key in keys if key in given}
    document = _parsed(text, form)
    values = ((key, " ".join(_found(document, key.split(".")))) for key in keys)
    return {key: value[:MAX_VALUE] for key, value in values if value}


def _parsed(text: str, form: Form) -> object:
    try:
        if form == "json":
            return json.loads(text)
        import yaml

        return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  (both are safe loaders)
    except ImportError as error:
        raise UnparsableError("PyYAML is not installed") from error
    except (ValueError, RecursionError) as error:
        raise UnparsableError(str(error)) from error
    except yaml.YAMLError as error:
        raise UnparsableError(str(error)) from error


def _ini(text: str) -> dict[str, str]:
    """The options before any section, of [default], and of [*], which count least; as llama.cpp has it."""
    parser = configparser.RawConfigParser(
        delimiters=("=",), strict=False, allow_no_value=True, default_section="\0", comment_prefixes=("#", ";")
    )
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(f"[default]\n{text}")
    except configparser.Error as error:
        raise UnparsableError(str(error)) from error
    sections = (parser[name] for name in ("*", "default") if parser.has_section(name))
    return {key: value or "" for section in sections for key, value in section.items()}


def _found(value: object, path: Sequence[str]) -> Iterator[str]:
    """The scalars at a path, as a command line would have them."""
    if path:
        if isinstance(value, dict):
            inner = list(value.values())[:_MANY] if path[0] == "*" else [value.get(path[0])]
            for each in inner:
                yield from _found(each, path[1:])
    elif isinstance(value, bool):
        yield "true" if value else "false"
    elif isinstance(value, str | int | float):
        yield str(value)
    elif isinstance(value, list):
        for each in value[:_MANY]:
            if isinstance(each, str | int | float):
                yield from _found(each, ())
