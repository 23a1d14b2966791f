"""Environment files and Environment= lines, read as systemd reads them (systemd.exec(5)); pure."""

import re
from collections.abc import Iterator

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SPACE = " \t"
_KEPT_ESCAPES = '"\\`$'
"""What a backslash takes its meaning from between double quotes; before anything else it stands for itself."""
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "s": " "}


def environment_file(text: str) -> dict[str, str]:
    """The variables of an EnvironmentFile; lines that are no assignment are passed over. The last of a name counts."""
    found: dict[str, str] = {}
    position = 0
    while position < len(text):
        if text[position] in _SPACE + "\r\n":
            position += 1
            continue
        if text[position] in "#;":
            position = _end_of_comment(text, position)
            continue
        name, equals, _ = text[position:].partition("=")
        if not equals or "\n" in name:
            position = _end_of_line(text, position)
            continue
        value, position = _value(text, position + len(name) + 1)
        if _NAME.fullmatch(name.strip(_SPACE)):
            found[name.strip(_SPACE)] = value
    return found


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1


def _end_of_comment(text: str, position: int) -> int:
    """A backslash at its end makes the next line part of the comment."""
    while True:
        end = _end_of_line(text, position)
        if not text[position:end].endswith("\\\n"):
            return end
        position = end


def _value(text: str, position: int) -> tuple[str, int]:
    """A value and where it ends: quoted parts, then a bare one in which quotes are themselves."""
    value = ""
    while position < len(text) and text[position] not in "\r\n":
        char = text[position]
        if char in "'\"":
            part, position = _quoted(text, position + 1, char)
            value += part
        elif char in _SPACE:
            position += 1
        else:
            part, position = _bare(text, position)
            return value + part, position
    return value, position + 1


def _bare(text: str, position: int) -> tuple[str, int]:
    """Up to the end of the line, without the space before that; after a backslash anything is itself."""
    part, kept = "", 0
    while position < len(text) and text[position] not in "\r\n":
        escaped = text[position] == "\\"
        char = text[position + 1 : position + 2] if escaped else text[position]
        position += 2 if escaped else 1
        if not (escaped and char == "\n"):
            part += char
        if escaped or char not in _SPACE:
            kept = len(part)
    return part[:kept], position + 1


def _quoted(text: str, position: int, quote: str) -> tuple[str, int]:
    """Up to the closing quote, which may be missing."""
    part = ""
    while position < len(text) and text[position] != quote:
        if text[position] == "\\" and quote == '"':
            following = text[position + 1 : position + 2]
            if following != "\n":
                part += following if following in _KEPT_ESCAPES else f"\\{following}"
            position += 2
        else:
            part += text[position]
            position += 1
    return part, position + 1


def words(line: str) -> list[str]:
    """A line cut at spaces, quotes taken off."""
    return [word for word in _words(line) if word is not None]


def _words(line: str) -> Iterator[str]:
    word: str | None = None
    quote = ""
    characters = iter(line)
    for char in characters:
        if char == "\\" and quote != "'":
            following = next(characters, "")
            word = (word or "") + _ESCAPED.get(following, following)
        elif quote:
            if char == quote:
                quote = ""
            else:
                word = (word or "") + char
        elif char in "'\"":
            quote, word = char, word or ""
        elif char in _SPACE + "\r\n":
            if word is not None:
                yield word
            word = None
        else:
            word = (word or "") + char
    if word is not None:
        yield word


def assigned_by_unit_file(text: str) -> frozenset[str]:
    """Names of the variables that the Environment= lines of a unit file or drop-in set."""
    names: set[str] = set()
    for line in re.sub(r"\\\n", " ", text).splitlines():
        key, equals, value = line.partition("=")
        if not equals or key.strip() != "Environment":
            continue
        assigned = {word.partition("=")[0] for word in words(value) if "=" in word}
        names = names | assigned if value.strip() else set()
    return frozenset(names)
