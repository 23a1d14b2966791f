"""Text that another program wrote, made fit for a reason, a log line or a terminal."""

import unicodedata

LIMIT = 120
_WITHHELD = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, formatting (bidirectional overrides too), surrogate, private and unassigned, line breaks."""


def harmless(text: str, limit: int = LIMIT) -> str:
    """`text` on one line of at most `limit` characters, without anything that steers a terminal."""
    shown = text[: limit + 1]
    if not (shown.isascii() and shown.isprintable()):
        shown = "".join(" " if unicodedata.category(char) in _WITHHELD else char for char in shown)
    shown = " ".join(shown.split())
    return shown if len(text) <= limit else shown[: limit - 1] + "…"
