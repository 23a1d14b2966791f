"""What in tenant files is allowed and yet hardly meant: patterns that never match, names that are nearly others, and
processes that two tenants claim (pure)."""

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations
from pathlib import PurePath

from gpusupervisor.foreign_text import harmless
from gpusupervisor.tenants.definition import Match, TenantDefinition
from gpusupervisor.tenants.schema import literal_length

_UNIT_ENDINGS = (".service", ".scope")
"""Of the units that processes are in."""
_LONGEST_COMM = 15
_ALIKE = 0.8
_OTHER_SUFFIXES = (".conf", ".cfg", ".ini", ".yaml", ".yml", ".tml", ".toml.txt", ".jsonc", ".json5", "")
"""Of files that were meant to be read; what package managers and editors leave behind is passed over."""
_WILD = re.compile(r"[*?]|\[!?\]?[^]]*\]")


@dataclass(frozen=True, slots=True)
class Hint:
    """One of them."""

    file: str
    message: str
    meant: bool = False
    """It may well be so on purpose."""

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


def hints_of(
    definitions: Mapping[str, TenantDefinition], own: Mapping[str, str], shipped: Collection[str]
) -> tuple[Hint, ...]:
    """Return the hints about the definitions of one load.

    own: by id, the last file that is not shipped. shipped: ids that are.
    """
    found: list[Hint] = []
    for id_, file in own.items():
        found += _about_name(id_, file, shipped)
        if id_ in definitions:
            found += _about_patterns(file, definitions[id_].match)
    return (*found, *_about_claims(definitions, own))


def hint_about_stray(path: PurePath) -> Hint | None:
    """Return what to say of a file that is not read because of its suffix; None if it was hardly meant to be."""
    suffix = next((each for each in _OTHER_SUFFIXES if each and path.name.endswith(each)), path.suffix)
    if suffix not in _OTHER_SUFFIXES or path.name.startswith(".") or path.name.upper().startswith("README"):
        return None
    stem = path.name.removesuffix(suffix)
    meant = harmless(f"{stem}.toml", 80)
    return Hint(harmless(str(path), 256), f"is not read: tenant files end in .toml or .json; is {meant} meant?")


def _about_name(id_: str, file: str, shipped: Collection[str]) -> Iterator[Hint]:
    """A name that is nearly one of a shipped tenant makes a new tenant, and changes nothing of that."""
    base = id_.partition("@")[0]
    if base in shipped or any(each in base or base in each for each in shipped):
        return
    for near in get_close_matches(base, shipped, n=1, cutoff=_ALIKE):
        yield Hint(file, f"describes a new tenant: to change the shipped {near}, it has to be called {near}.toml")


def _about_patterns(file: str, match: Match) -> Iterator[Hint]:
    """Patterns that can match nothing, with the likely meaning."""
    for key, patterns in (("units", match.units), ("user-units", match.user_units)):
        for pattern in patterns:
            if not _can_end_so(pattern):
                meant = f"{PurePath(pattern).stem if pattern.endswith(_NO_PROCESSES) else pattern}.service"
                yield _never(file, key, pattern, "processes are in units whose names end in .service or .scope", meant)
    for pattern in match.executables:
        if not pattern.startswith(("/", "*", "?", "[")):
            yield _never(file, "executables", pattern, "it is compared with the whole path", f"*/{pattern}")
    for pattern in match.comms:
        if literal_length(pattern) > _LONGEST_COMM:
            why = f"the kernel's names of processes have {_LONGEST_COMM} characters at most"
            yield _never(file, "comms", pattern, why, pattern[:_LONGEST_COMM])


_NO_PROCESSES = (".socket", ".timer", ".target", ".path", ".mount", ".slice", ".device", ".swap")


def _can_end_so(pattern: str) -> bool:
    end = _WILD.split(pattern)[-1]
    is_whole = end == pattern
    return any(end.endswith(each) or (not is_whole and each.endswith(end)) for each in _UNIT_ENDINGS)


def _never(file: str, key: str, pattern: str, why: str, meant: str) -> Hint:
    shown = harmless(pattern, 80)
    return Hint(file, f'match.{key}: "{shown}" never matches: {why}; is "{harmless(meant, 90)}" meant?')


def _about_claims(definitions: Mapping[str, TenantDefinition], own: Mapping[str, str]) -> Iterator[Hint]:
    """Pairs of tenants, not both shipped, of which the patterns of one class can match one process."""
    for one, other in combinations(sorted(definitions), 2):
        if one not in own and other not in own:
            continue
        overlap = _overlap(definitions[one].match, definitions[other].match)
        if overlap is None:
            continue
        key, mine, theirs = overlap
        wins = one if literal_length(mine) >= literal_length(theirs) else other
        loses, pattern = (other, mine) if wins == one else (one, theirs)
        file = own.get(wins) or own[loses]
        message = f'match.{key}: "{harmless(pattern, 80)}" also fits processes of {loses}: they count as {wins}'
        yield Hint(file, message, meant=wins in own and loses not in own)


def _overlap(one: Match, other: Match) -> tuple[str, str, str] | None:
    """The first two patterns of a class, by its key, that match one text; None when there are none."""
    if one.graphics_only or other.graphics_only:
        return None
    for key, mine, theirs in _classes(one, other):
        for first in mine:
            for second in theirs:
                if fnmatch.fnmatchcase(_sample(first), second) or fnmatch.fnmatchcase(_sample(second), first):
                    return key, first, second
    return None


def _classes(one: Match, other: Match) -> Iterable[tuple[str, Sequence[str], Sequence[str]]]:
    return (
        ("units", one.units, other.units),
        ("user-units", one.user_units, other.user_units),
        ("containers", one.containers, other.containers),
        ("executables", one.executables, other.executables),
        ("command-lines", one.command_lines, other.command_lines),
        ("comms", one.comms, other.comms),
    )


def _sample(pattern: str) -> str:
    """A text that a pattern matches, as a rule: wildcards stand for as little as they can."""
    return re.sub(r"\[!?(.)[^]]*\]", r"\1", pattern.replace("*", "").replace("?", "x"))
