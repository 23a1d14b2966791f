"""Where log records go: to journald with their fields, or to stderr as lines."""

import logging
import os
from collections.abc import Mapping
from typing import TextIO

from gpusupervisor.journal.entry import NOTICE, Entry
from gpusupervisor.journal.messages.service import EntriesLost
from gpusupervisor.journal.native import JournalSocket

PRIORITIES: Mapping[int, int] = {
    logging.CRITICAL: 2,
    logging.ERROR: 3,
    logging.WARNING: 4,
    NOTICE: 5,
    logging.INFO: 6,
    logging.DEBUG: 7,
}
"""syslog's, by level."""
OTHER = 6
COLOURS: Mapping[int, str] = {
    logging.CRITICAL: "1;31",
    logging.ERROR: "1;31",
    logging.WARNING: "33",
    NOTICE: "1",
    logging.DEBUG: "2",
}
"""As SGR parameters, by level."""
_BAD_RECORDS = (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)
"""What a record may raise whose arguments do not fit its text."""


def legible(text: str) -> str:
    """Lines without anything that steers a terminal, or that journalctl would not show; others' words may be in it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in "\n\t" else " " for char in text)


class JournalHandler(logging.Handler):
    """Hands records over to journald."""

    def __init__(self, identifier: str, journal: JournalSocket) -> None:
        """identifier: the name of the program, as journalctl shows it."""
        super().__init__()
        self._identifier = identifier
        self._journal = journal

    def emit(self, record: logging.LogRecord) -> None:
        """Never blocks, never raises. What was lost before is told first."""
        try:
            fields = self._fields(record)
        except _BAD_RECORDS:
            self.handleError(record)
            return
        if self._journal.lost:
            self._tell_losses()
        self._journal.send(fields)

    def close(self) -> None:
        """The end of the process."""
        self._journal.close()
        super().close()

    def _fields(self, record: logging.LogRecord) -> list[tuple[str, str]]:
        fields = [
            ("MESSAGE", legible(self.format(record))),
            ("PRIORITY", str(PRIORITIES.get(record.levelno, OTHER))),
            ("SYSLOG_IDENTIFIER", self._identifier),
            ("CODE_FILE", record.pathname),
            ("CODE_LINE", str(record.lineno)),
            ("CODE_FUNC", record.funcName or ""),
        ]
        entry = getattr(record, "entry", None)
        return [*fields, *_entry_fields(entry)] if isinstance(entry, Entry) else fields

    def _tell_losses(self) -> None:
        lost, told = self._journal.lost, EntriesLost(self._journal.lost)
        fields = [
            ("MESSAGE", told.message()),
            ("PRIORITY", str(PRIORITIES[told.level])),
            ("SYSLOG_IDENTIFIER", self._identifier),
            *_entry_fields(told),
        ]
        self._journal.lost = 0 if self._journal.send(fields) else lost


def _entry_fields(entry: Entry) -> list[tuple[str, str]]:
    return [("MESSAGE_ID", entry.message_id), *entry.journal_fields()]


class PriorityFormatter(logging.Formatter):
    """Every line begins with its sd-daemon(3) priority, so that a traceback keeps one."""

    def __init__(self) -> None:
        super().__init__("%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The record, each line prefixed."""
        prefix = f"<{PRIORITIES.get(record.levelno, OTHER)}>"
        return "\n".join(prefix + line for line in legible(super().format(record)).splitlines())


class TerminalFormatter(logging.Formatter):
    """Time, level and message, for a person who looks on."""

    def __init__(self, *, colour: bool) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        """The record, in the colour of its level where there are colours."""
        text = legible(super().format(record))
        colour = COLOURS.get(record.levelno) if self._colour else None
        return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def wants_colour(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """A terminal that has colours, of somebody who does not mind them (no-color.org)."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"
