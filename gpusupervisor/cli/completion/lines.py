"""A line as bash reads it: its words, and how a candidate is written so that bash reads it back as it is. Pure."""

import re
from collections.abc import Iterable
from typing import NamedTuple

_BLANK = " \t\n"
_BETWEEN_COMMANDS = ";|&("
_NEEDS_NO_QUOTES = r"[^\w@%+=:,./-]"
_ESCAPED_IN_DOUBLE = '\\"$`'
"""What a backslash stands before between double quotes."""


class Line(NamedTuple):
    """The command line up to the cursor."""

    words: tuple[str, ...]
    """Without quotes; the last is the one that is being written, and may be empty."""
    quote: str
    """The quote that is open at the cursor: ', " or nothing."""
    kept: str
    """The beginning of the last word that readline leaves as it is, without quotes."""


def read(text: str, breaks: str) -> Line:
    """Read what stands before the cursor. breaks: characters at which readline begins a word anew."""
    words, word, quote, kept, begun = list[str](), "", "", "", False
    letters = iter(text)
    for letter in letters:
        begun = begun or letter not in _BLANK
        if quote and letter == quote:
            quote = ""
        elif letter == "\\" and quote != "'":
            following = next(letters, "")
            word += letter + following if quote and following not in _ESCAPED_IN_DOUBLE else following
        elif quote:
            word += letter
        elif letter in "'\"":
            quote, kept = letter, word
        elif letter in _BLANK + _BETWEEN_COMMANDS:
            words = [] if letter in _BETWEEN_COMMANDS else [*words, word] if begun else words
            word, kept, begun = "", "", False
        else:
            word += letter
            kept = word if letter in breaks else kept
    return Line((*words, word), quote, kept)


def as_bash_inserts(line: Line, candidates: Iterable[str]) -> list[str]:
    """Those that begin as the last word does, quoted as the line is, without what readline keeps."""
    fitting = (each for each in candidates if each.startswith(line.words[-1]) and each.startswith(line.kept))
    return [_quoted(each[len(line.kept) :], line.quote) for each in fitting if not ("!" in each and line.quote == '"')]


def _quoted(text: str, quote: str) -> str:
    """Nothing in it means anything to bash. Between double quotes "!" cannot be written: such names are left out."""
    if quote == "'":
        return text.replace("'", r"'\''")
    if quote:
        return re.sub(r'[\\"$`]', r"\\\g<0>", text)
    return re.sub(_NEEDS_NO_QUOTES, r"\\\g<0>", text)
