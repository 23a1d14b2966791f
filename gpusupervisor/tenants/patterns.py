"""Patterns of definitions, and the texts of a process that they are compared with (pure)."""

import fnmatch
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.schema import literal_length

_WILD = re.compile(r"[*?]|\[!?\]?[^]]*\]|\[")
"""What stands for other characters than itself in a shell pattern; a bracket without its end is taken for one too."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A shell pattern, ready to be compared."""

    matches: Callable[[str], object]
    piece: str
    """A text that is in everything it matches: to look for that first is much faster."""
    literal: int


def longest(patterns: Sequence[str], text: str) -> int:
    """Literal characters of the most specific pattern that matches; -1 when none does."""
    if not text:
        return -1
    return max((each.literal for each in _fitting(patterns, text)), default=-1)


def matches(patterns: Sequence[str], text: str, rest: str = "") -> bool:
    """Whether a pattern matches a text, though not what is left of that without its beginning."""
    return any(not rest or not each.matches(rest) for each in _fitting(patterns, text))


def _fitting(patterns: Sequence[str], text: str) -> Iterator[_Pattern]:
    return (each for each in _compiled(tuple(patterns)) if each.piece in text and each.matches(text))


@functools.lru_cache(maxsize=1024)
def _compiled(patterns: tuple[str, ...]) -> tuple[_Pattern, ...]:
    return tuple(
        _Pattern(re.compile(fnmatch.translate(each)).match, max(_WILD.split(each), key=len), literal_length(each))
        for each in patterns
    )


def executable_of(identity: ProcessIdentity) -> str:
    """The executable or, where that is hidden, argv[0]; a bare name counts as in some folder ("/ollama")."""
    text = identity.executable or "".join(identity.command_line[:1])
    return text if "/" in text or not text else f"/{text}"


def joined(identity: ProcessIdentity) -> str:
    """The command line as one text."""
    return " ".join(identity.command_line)


def lines_of(identity: ProcessIdentity) -> Iterator[str]:
    """The command line as it was typed and, where that says more, with its script's folder."""
    yield joined(identity)
    placed = identity.placed_command_line
    if placed != identity.command_line:
        yield " ".join(placed)
