"""Setting the log up, and its level, which can be changed while the process runs."""

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from gpusupervisor.journal.entry import NOTICE
from gpusupervisor.journal.handlers import JournalHandler, PriorityFormatter, TerminalFormatter, wants_colour
from gpusupervisor.journal.native import SOCKET, JournalSocket

SUPERVISOR = "gpusupervisord"
HELPER = "gpusupervisor-helper"
READER = "gpusupervisor-reader"
LEVELS: Mapping[str, int] = {
    "emerg": logging.CRITICAL + 2,
    "alert": logging.CRITICAL + 1,
    "crit": logging.CRITICAL,
    "err": logging.ERROR,
    "warning": logging.WARNING,
    "notice": NOTICE,
    "info": logging.INFO,
    "debug": logging.DEBUG,
}
"""By syslog's names. Nothing we log is as bad as the first two: they silence everything."""

_OURS = logging.getLogger("gpusupervisor")


def set_up_logging(identifier: str, socket: Path = SOCKET) -> None:
    """Log what is informational or worse: to journald where stderr is its, as plain lines on a terminal, and with
    sd-daemon's priorities for whoever else reads stderr.

    identifier: the program, as the journal names it.
    """
    root = logging.getLogger()
    root.handlers = [_handler(identifier, socket)]
    root.setLevel(logging.WARNING)  # of libraries; ours have a level of their own
    set_level("info")


def set_level(name: str) -> None:
    """Log what is at least as bad as this, by a name of `LEVELS`."""
    _OURS.setLevel(LEVELS[name])


def level() -> str:
    """What is logged at least, by its name in `LEVELS`."""
    effective = _OURS.getEffectiveLevel()
    return next((name for name, value in LEVELS.items() if value <= effective), "debug")


def target() -> str:
    """Where it goes, in systemd's words: "journal" or "console"."""
    return "journal" if stderr_is_the_journal() else "console"


def stderr_is_the_journal() -> bool:
    """Whether $JOURNAL_STREAM names stderr's device and inode."""
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        stat = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(stat.st_dev), str(stat.st_ino))


def _handler(identifier: str, socket: Path) -> logging.Handler:
    if stderr_is_the_journal() and os.access(socket, os.W_OK):
        return JournalHandler(identifier, JournalSocket(socket))
    handler = logging.StreamHandler(sys.stderr)
    if sys.stderr.isatty():
        handler.setFormatter(TerminalFormatter(colour=wants_colour(sys.stderr)))
    else:
        handler.setFormatter(PriorityFormatter())
    return handler
