"""systemd's syntax: environment files, Environment= lines, and variables in ExecStart= lines (systemd.exec(5),
systemd.service(5)). The one implementation, for the service and its clients. Pure functions."""

import re
from collections.abc import Iterator, Mapping, Sequence

_REFERENCE = re.compile(r"\$\{([^}]*)\}|\$\$")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
NO_EXPANSION = "no-env-expand"
"""What ExecStartEx says of a command that follows ":"."""
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


def expanded(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments of a command with variables filled in.

    An argument that begins with "$" is a variable's name as a whole, and becomes the words of its value (none if it is
    not set). Elsewhere ${NAME} is the value as it stands, "$$" is "$", and "$NAME" stays.
    """
    return tuple(word for argument in command for word in _expanded(argument, environment))


def as_it_stands(command: Sequence[str]) -> tuple[str, ...]:
    """Return a command that `expanded` makes this one of: what follows ExecStart=: has no variables."""
    return tuple(argument.replace("$", "$$") for argument in command)


def _expanded(argument: str, environment: Mapping[str, str]) -> Iterator[str]:
    if len(argument) > 1 and argument[0] == "$" and argument[1] not in "{$":
        yield from _words(environment.get(argument[1:], ""), escapes={})
    else:
        yield _REFERENCE.sub(lambda found: environment.get(found[1], "") if found[1] is not None else "$", argument)


def words(line: str) -> list[str]:
    """Return the words of an Environment= line, without quotes, C escapes resolved."""
    return list(_words(line, _ESCAPED))


def _words(line: str, escapes: Mapping[str, str]) -> Iterator[str]:
    """Words are separated by blanks; quotes may be anywhere in them. escapes: what a backslash makes of a character,
    which is itself otherwise.
    """
    word: str | None = None
    quote = ""
    characters = iter(line)
    for char in characters:
        if char == "\\":
            following = next(characters, "")
            word = (word or "") + escapes.get(following, following)
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
