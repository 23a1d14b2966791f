"""Where the log goes: journald's socket, a terminal, or whoever reads stderr; and its level."""

import io
import logging
import os
import pty
import re
import sys
from pathlib import Path

import pytest

from gpusupervisor.journal.entry import NOTICE
from gpusupervisor.journal.handlers import PriorityFormatter, TerminalFormatter
from gpusupervisor.journal.setup import LEVELS, SUPERVISOR, level, set_level, set_up_logging, target
from tests.journal.journald import Journald

LOG = logging.getLogger("gpusupervisor.test")


def log_to(
    path: Path, monkeypatch: pytest.MonkeyPatch, stream: str = "{dev}:{ino}", socket: Path = Path("/nonexistent")
) -> str:
    """What a few messages look like on a stderr that is a file."""
    with path.open("w") as stderr:
        status = os.fstat(stderr.fileno())
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setenv("JOURNAL_STREAM", stream.format(dev=status.st_dev, ino=status.st_ino))
        set_up_logging(SUPERVISOR, socket)
        LOG.debug("nobody reads this")
        LOG.info("plan-1 ended")
        LOG.error("it broke\nin two lines")
        shown = target()
    return f"{shown}\n{path.read_text()}"


def test_journald_is_spoken_to_where_stderr_is_its(
    journald: Journald, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log_to(tmp_path / "stderr", monkeypatch, socket=journald.path) == "journal\n"
    first, second = journald.entries()
    assert dict(first).items() >= {
        "MESSAGE": "plan-1 ended", "PRIORITY": "6", "SYSLOG_IDENTIFIER": "gpusupervisord",
        "CODE_FILE": __file__, "CODE_FUNC": "log_to",
    }.items()  # fmt: skip
    assert (dict(second)["MESSAGE"], dict(second)["PRIORITY"]) == ("it broke\nin two lines", "3")


def test_without_journalds_socket_every_line_has_a_priority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = log_to(tmp_path / "stderr", monkeypatch)
    assert text.splitlines() == ["journal", "<6>plan-1 ended", "<3>it broke", "<3>in two lines"]


@pytest.mark.parametrize("stream", ["", "1:2", "{dev}:1", "nonsense"])
def test_another_reader_gets_priorities_too_and_journald_nothing(
    stream: str, journald: Journald, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = log_to(tmp_path / "stderr", monkeypatch, stream, journald.path)
    assert text.splitlines() == ["console", "<6>plan-1 ended", "<3>it broke", "<3>in two lines"]
    assert journald.datagrams() == []


def test_a_stderr_without_a_descriptor_is_not_the_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    stderr = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    set_up_logging(SUPERVISOR)
    LOG.warning("hello")
    assert stderr.getvalue() == "<4>hello\n"


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_a_terminal_gets_readable_lines(
    environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        set_up_logging(SUPERVISOR)
        LOG.info("plan-1 ended")
        LOG.warning("\x1b[2Jtwo\nlines")
        text = ""
        while text.count("\n") < 3:
            text += os.read(reader, 10_000).decode().replace("\r\n", "\n")
    os.close(reader)
    assert ("\x1b" in text) is coloured
    assert re.match(r"\d\d:\d\d:\d\d INFO    plan-1 ended\n", text)
    warning = text.splitlines()[1:]
    start, end = ("\x1b[33m", "\x1b[0m") if coloured else ("", "")
    assert re.fullmatch(re.escape(start) + r"\d\d:\d\d:\d\d WARNING  \[2Jtwo", warning[0])
    assert warning[1] == f"lines{end}"


def test_a_traceback_keeps_its_priority_on_every_line() -> None:
    try:
        raise ValueError("bad")  # noqa: TRY301
    except ValueError:
        record = logging.LogRecord("x", logging.CRITICAL, "f", 1, "it broke", None, sys.exc_info())
    lines = PriorityFormatter().format(record).splitlines()
    assert len(lines) >= 4
    assert all(line.startswith("<2>") for line in lines)


def test_every_level_has_its_priority_and_unknown_ones_are_informational() -> None:
    def priority(level: int) -> str:
        return PriorityFormatter().format(logging.LogRecord("x", level, "f", 1, "m", None, None))[:3]

    levels = (logging.DEBUG, logging.INFO, NOTICE, logging.WARNING, logging.ERROR, logging.CRITICAL, 33)
    assert [priority(level) for level in levels] == ["<7>", "<6>", "<5>", "<4>", "<3>", "<2>", "<6>"]


def test_a_notice_has_its_name_on_a_terminal() -> None:
    record = logging.LogRecord("x", NOTICE, "f", 1, "now automatic", None, None)
    assert TerminalFormatter(colour=False).format(record).endswith("NOTICE  now automatic")


def test_libraries_are_quieter_than_we(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_to(tmp_path / "stderr", monkeypatch)
    set_level("debug")
    assert not logging.getLogger("asyncio").isEnabledFor(logging.INFO)
    assert LOG.isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize("name", LEVELS)
def test_a_level_that_was_set_is_the_level(name: str) -> None:
    set_level(name)
    assert level() == name
    assert LOG.isEnabledFor(LEVELS[name])
    assert not LOG.isEnabledFor(LEVELS[name] - 1)


def test_a_level_between_two_is_told_as_the_next_that_is_logged() -> None:
    logging.getLogger("gpusupervisor").setLevel(1)
    assert level() == "debug"
