"""A command line read as an engine reads it: which of its known settings it gives, and with what value (pure)."""

import re
from collections.abc import Mapping, Sequence

from gpusupervisor.engines.table import Grammar, Known, Table, Takes

_NUMBER = re.compile(r"-\d+(\.\d*)?|-\.\d+")


def given_on(table: Table, arguments: Sequence[str]) -> dict[str, str]:
    """Values by the setting's name; a flag without a value has an empty one. The last one counts.

    arguments: with or without the program itself: whatever is no known flag is passed over.
    """
    flags = _flags(table.settings)
    found: dict[str, str] = {}
    index = 0
    while index < len(arguments):
        name, separator, attached = (
            arguments[index].partition("=") if table.grammar.equals else (arguments[index], "", "")
        )
        index += 1
        if name == "--":
            break
        flag = _flag_of(name, table.grammar, flags)
        if flag is None:
            continue
        setting, takes = flags[flag]
        if takes is None:
            found.pop(setting, None)
            continue
        value, used = (attached, 0) if separator else _values(takes, arguments[index:])
        index += used
        found.pop(setting, None)
        found[setting] = value
    return found


def _flags(settings: Sequence[Known]) -> Mapping[str, tuple[str, Takes | None]]:
    """By flag: the setting's name, and what the flag takes; None for one that takes the setting back."""
    given: dict[str, tuple[str, Takes | None]] = {}
    for known in settings:
        given |= dict.fromkeys(known.unset_by, (known.name, None))
        given |= dict.fromkeys(known.flags, (known.name, known.takes))
    return given


def _flag_of(text: str, grammar: Grammar, flags: Mapping[str, object]) -> str | None:
    """The known flag that an argument is."""
    if not text.startswith("-") or text == "-":
        return None
    if grammar.one_dash and not text.startswith("--"):
        text = f"-{text}"
    if grammar.underscores and text.startswith("--"):
        text = text.replace("_", "-")
    if text in flags:
        return text
    if grammar.abbreviations and text.startswith("--") and len(text) > len("--x"):
        longer = [flag for flag in flags if flag.startswith(text)]
        return longer[0] if len(longer) == 1 else None
    return None


def _values(takes: Takes, rest: Sequence[str]) -> tuple[str, int]:
    """What follows a flag as its value, and how many arguments that is."""
    if takes == "nothing":
        return "", 0
    values: list[str] = []
    for argument in rest:
        if (argument.startswith("-") and argument != "-" and not _NUMBER.fullmatch(argument)) or (
            values and takes != "many"
        ):
            break
        values.append(argument)
    return " ".join(values), len(values)
