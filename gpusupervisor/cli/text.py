"""Text that others wrote, made fit for a terminal: names of any script, nothing that steers it."""

import codecs
import locale
import os
import re
import sys
import unicodedata
from typing import TextIO

_DROPPED = frozenset({"Cf", "Cs"})
"""Formatting, which includes what turns the direction of text, and surrogates: they have no width, so none is left."""
_BLANKED = frozenset({"Cc", "Co", "Cn", "Zl", "Zp", "Zs"})
_RIGHT_TO_LEFT = frozenset({"R", "AL", "AN"})
_MOST_MARKS = 4
"""Combining characters on one letter; every script gets by with fewer."""
_UUID = re.compile(r"(GPU-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
LEFT_TO_RIGHT_MARK = "\u200e"
NEAREST = "gpusupervisor.nearest"
"""How encodings without every character treat those that they lack: see `_nearest`."""
_LIKE = str.maketrans("…·─│┌┐└┘▁▂▃▄▅▆▇█▊", "~.-|++++#########", LEFT_TO_RIGHT_MARK)


def _nearest(error: UnicodeError) -> tuple[str, int]:
    """What screens draw becomes something like it, anything else a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end].translate(_LIKE)
    return "".join(char if char.isascii() else "?" for char in lacking), error.end


codecs.register_error(NEAREST, _nearest)


def text_encoding() -> str:
    """How text is written here: as the locale says, where Python by itself writes UTF-8 even in one of ASCII alone.

    PYTHONIOENCODING and PYTHONUTF8 are heard, as by every Python program.
    """
    if os.environ.get("PYTHONIOENCODING") or os.environ.get("PYTHONUTF8") == "1":
        return sys.stdout.encoding
    return locale.getencoding()


def is_utf8(encoding: str | None) -> bool:
    """Whether an encoding has every character."""
    return (encoding or "").lower().replace("-", "") == "utf8"


def safe(text: object) -> str:
    """Text on one line without anything that steers a terminal.

    After text from right to left comes a mark, so that the columns behind it stay where they are.
    """
    line = str(text)
    if line.isascii() and line.isprintable():
        return line
    shown: list[str] = []
    marks = 0
    for char in line:
        category = unicodedata.category(char)
        if category in _DROPPED:
            continue
        marks = marks + 1 if category in ("Mn", "Me") else 0
        if marks <= _MOST_MARKS:
            shown.append(" " if category in _BLANKED else char)
    made = "".join(shown)
    return made + kept_in_place(made)


def kept_in_place(text: str) -> str:
    """What comes after a text from right to left so that the columns behind it stay where they are."""
    if text.isascii() or text.endswith(LEFT_TO_RIGHT_MARK):
        return ""
    return LEFT_TO_RIGHT_MARK if any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text) else ""


def safe_lines(text: object) -> str:
    """The same for text of several lines; tabs become spaces."""
    return "\n".join(safe(line.expandtabs()) for line in str(text).splitlines())


def brief(text: str) -> str:
    """Text with the beginning of a UUID in place of the whole: as much as every command takes."""
    return _UUID.sub(r"\1", text)


def sentence(text: str) -> str:
    """A reason as a message of its own: with its full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."


def folded(text: object, stream: TextIO) -> str:
    """The same with its sentences folded between words where `stream` is a terminal."""
    lines = safe_lines(text)
    if not stream.isatty():
        return lines
    import shutil
    import textwrap

    width = shutil.get_terminal_size().columns
    fold = textwrap.TextWrapper(width, break_long_words=False, break_on_hyphens=False).fill
    return "\n".join(fold(line) if len(line) > width else line for line in lines.splitlines())
