"""Tenant files as text: values written, and a file extended without touching what a person wrote. Pure."""

import json
import re
import textwrap
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """A value that a file is to say."""

    path: tuple[str, ...]
    """Keys, one or two."""
    value: object
    """A text or a list of texts."""
    reason: str
    """On one line: a comment above it."""


_LONGEST_LINE = 60
"""Characters of a list beyond which it gets a line for each text."""
_LONGEST_COMMENT = 72


class CannotExtend(Exception):  # noqa: N818  (the name says what happened)
    """A file cannot be extended by these values; the text says why."""


def quoted(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def written(value: object) -> str:
    """A text or a list of texts."""
    if not isinstance(value, list | tuple):
        return quoted(str(value))
    texts = [quoted(each) for each in value]
    line = f"[{', '.join(texts)}]"
    return line if len(line) <= _LONGEST_LINE else "[\n" + "".join(f"  {each},\n" for each in texts) + "]"


def comment(text: str) -> str:
    """Lines that a terminal of 80 columns shows as they are."""
    lines = textwrap.wrap(text, _LONGEST_COMMENT, break_long_words=False, break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)


def extended(text: str, changes: Iterable[Change]) -> str:
    """The text with values that it does not have yet. Raises CannotExtend.

    What comes of it is read again, and must be what was there and the changes, nothing else.
    """
    expected = before = _parsed(text)
    new = text if not text or text.endswith("\n") else f"{text}\n"
    for change in changes:
        if _value(before, change.path) is not None:
            raise CannotExtend(f"{'.'.join(change.path)} is set already")
        new = _with(new, change.path, f"{comment(change.reason)}\n{change.path[-1]} = {written(change.value)}\n")
        expected = _merged(expected, change)
    if _parsed(new) != expected:
        raise CannotExtend("where in it the new values belong cannot be told")
    return new


def _with(text: str, path: tuple[str, ...], lines: str) -> str:
    if len(path) == 1:
        start = re.match(r"(#.*\n)*", text)
        end = start.end() if start else 0
        rest = text[end:]
        return f"{text[:end]}{lines}{'' if not rest or rest.startswith(chr(10)) else chr(10)}{rest}"
    header = re.search(rf"^\[{re.escape(path[0])}\][ \t]*(#.*)?\n", text, re.MULTILINE)
    if header:
        return text[: header.end()] + lines + text[header.end() :]
    return f"{text}{chr(10) if text else ''}[{path[0]}]\n{lines}"


def _parsed(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CannotExtend(f"it is not right: {error}") from None


def _value(table: Mapping[str, Any], path: tuple[str, ...]) -> object:
    value: Any = table
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _merged(table: Mapping[str, Any], change: Change) -> dict[str, Any]:
    value = list(change.value) if isinstance(change.value, tuple) else change.value
    if len(change.path) == 1:
        return {**table, change.path[0]: value}
    inner = table.get(change.path[0], {})
    return {**table, change.path[0]: {**inner, change.path[1]: value} if isinstance(inner, Mapping) else inner}
