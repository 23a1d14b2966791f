"""Logging: priorities for journald, readable lines for a terminal."""

import io
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusupervisor.log import JournalFormatter, set_up_logging


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


def written(to: Path, journal: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a few messages look like on a stderr that is a file."""
    with to.open("w") as stderr:
        status = os.fstat(stderr.fileno())
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setenv("JOURNAL_STREAM", journal.format(dev=status.st_dev, ino=status.st_ino))
        set_up_logging()
        log = logging.getLogger("gpusupervisor.test")
        log.debug("nobody reads this")
        log.info("plan-1 ended")
        log.error("it broke\nin two lines")
    return to.read_text()


def test_the_journal_gets_a_priority_on_every_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(tmp_path / "stderr", "{dev}:{ino}", monkeypatch)
    assert text.splitlines() == ["<6>plan-1 ended", "<3>it broke", "<3>in two lines"]


@pytest.mark.parametrize("journal", ["", "1:2", "{dev}:1", "nonsense"])
def test_anything_else_gets_readable_lines(journal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(tmp_path / "stderr", journal, monkeypatch)
    assert re.match(r"\d\d:\d\d:\d\d INFO    plan-1 ended\n", text)
    assert "<" not in text


def test_a_stderr_without_a_descriptor_is_not_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    set_up_logging()
    logging.getLogger("gpusupervisor.test").warning("hello")
    assert stderr.getvalue().endswith("WARNING hello\n")


def test_a_traceback_keeps_its_priority_on_every_line() -> None:
    try:
        raise ValueError("bad")  # noqa: TRY301
    except ValueError:
        record = logging.LogRecord("x", logging.CRITICAL, "f", 1, "it broke", None, sys.exc_info())
    lines = JournalFormatter("%(message)s").format(record).splitlines()
    assert len(lines) >= 4
    assert all(line.startswith("<2>") for line in lines)


def test_every_level_has_its_priority_and_unknown_ones_are_informational() -> None:
    def priority(level: int) -> str:
        return JournalFormatter("%(message)s").format(logging.LogRecord("x", level, "f", 1, "m", None, None))[:3]

    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL, 33)
    assert [priority(level) for level in levels] == ["<7>", "<6>", "<4>", "<3>", "<2>", "<6>"]


def test_libraries_that_log_every_request_are_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "stderr", "", monkeypatch)
    assert not logging.getLogger("asyncio").isEnabledFor(logging.INFO)
    assert logging.getLogger("gpusupervisor").isEnabledFor(logging.INFO)
