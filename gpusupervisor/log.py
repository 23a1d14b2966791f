"""Logging to stderr: with syslog priorities for journald, readable lines for a terminal."""

import logging
import os
import sys

_PRIORITIES = {logging.CRITICAL: 2, logging.ERROR: 3, logging.WARNING: 4, logging.INFO: 6, logging.DEBUG: 7}


class JournalFormatter(logging.Formatter):
    """Every line begins with its sd-daemon(3) priority, so that a traceback keeps one."""

    def format(self, record: logging.LogRecord) -> str:
        """The record, each line prefixed."""
        prefix = f"<{_PRIORITIES.get(record.levelno, 6)}>"
        return "\n".join(prefix + line for line in super().format(record).splitlines())


def set_up_logging(level: int = logging.INFO) -> None:
    """Log to stderr; journald is recognised by $JOURNAL_STREAM naming stderr's device and inode."""
    handler = logging.StreamHandler(sys.stderr)
    if _stderr_is_the_journal():
        handler.setFormatter(JournalFormatter("%(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _stderr_is_the_journal() -> bool:
    device, _, inode = os.environ.get("JOURNAL_STREAM", "").partition(":")
    try:
        stat = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return (device, inode) == (str(stat.st_dev), str(stat.st_ino))
