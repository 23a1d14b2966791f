"""Text that another program wrote, made fit for a reason, a log line or a terminal."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

LIMIT = 120
LISTED = 20
"""Names that are told where one is asked for that nothing has."""
_SIMILAR = 0.7
"""Similarity from which on a name is taken for a mistyped one; 0.6, the default, has "vllm" mean "ollama"."""
_WITHHELD = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, formatting (bidirectional overrides too), surrogate, private and unassigned, line breaks."""


def harmless(text: str, limit: int = LIMIT) -> str:
    """`text` on one line of at most `limit` characters, without anything that steers a terminal."""
    shown = text[: limit + 1]
    if not (shown.isascii() and shown.isprintable()):
        shown = "".join(" " if unicodedata.category(char) in _WITHHELD else char for char in shown)
    shown = " ".join(shown.split())
    return shown if len(text) <= limit else shown[: limit - 1] + "…"


def unknown_name(kind: str, name: str, there: Iterable[str]) -> str:
    """Return the text of NoSuchTenant and NoSuchEngine, for example "No tenant is called 'olama'; do you mean ollama?".

    there: the names that exist. They are listed if none of them resembles `name`.
    """
    names = sorted(there)
    if meant := next(iter(get_close_matches(name[:64], names, 1, _SIMILAR)), ""):
        return f"No {kind} is called {harmless(name, 64)!r}; do you mean {harmless(meant, 64)}?"
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    listed = ", ".join(harmless(each, 64) for each in names[:LISTED]) or "none"
    return f"No {kind} is called {harmless(name, 64)!r}. There are: {listed}{more}."
