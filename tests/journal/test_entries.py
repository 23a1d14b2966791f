"""Entries: their fields as `journalctl` matches them, their sentence as a person reads it, and who wrote them."""

import logging
from dataclasses import fields
from pathlib import Path

import pytest

from gpusupervisor.journal.entry import Entry, write
from gpusupervisor.journal.fields import FIELDS
from gpusupervisor.journal.handlers import JournalHandler
from gpusupervisor.journal.messages.plans import PlanMade, ReleaseDone
from gpusupervisor.journal.messages.service import Defect, EntriesLost
from gpusupervisor.journal.native import NAME, JournalSocket
from gpusupervisor.journal.registry import KINDS
from tests.journal.journald import Journald, value, values

FREED = ReleaseDone("plan-1", "GPU-1", "ollama", "ollama", "freed", 13 << 30, 13 << 30, 230_000, "13.0 GiB came back")
MADE = PlanMade(
    "plan-1", "starved", "GPU-1", "comfyui", ("comfyui", "ollama"), "Ask ollama.", 8 << 30, 13 << 30, "yes",
    ("ollama (13.0 GiB: idle)",), (),
)  # fmt: skip


@pytest.fixture
def ours(journald: Journald) -> logging.Logger:
    """Our logger, which journald reads."""
    logging.getLogger().addHandler(JournalHandler("gpusupervisord", JournalSocket(journald.path)))
    logger = logging.getLogger("gpusupervisor")
    logger.setLevel(logging.INFO)
    return logger


def test_an_entry_has_its_id_and_its_fields_in_exact_units(journald: Journald, ours: logging.Logger) -> None:
    write(FREED)
    [entry] = journald.entries()
    assert (
        dict(entry).items()
        >= {
            "MESSAGE": "plan-1: ollama freed, 13.0 GiB in 230ms: 13.0 GiB came back",
            "MESSAGE_ID": ReleaseDone.message_id,
            "PRIORITY": "6",
            "SYSLOG_IDENTIFIER": "gpusupervisord",
            "GPUSUPERVISOR_TENANT": "ollama",
            "GPUSUPERVISOR_ENGINE": "ollama",
            "GPUSUPERVISOR_PLAN": "plan-1",
            "GPUSUPERVISOR_GPU": "GPU-1",
            "GPUSUPERVISOR_FREED": str(13 << 30),
            "GPUSUPERVISOR_DURATION_USEC": "230000",
        }.items()
    )


def test_it_says_who_wrote_it(journald: Journald, ours: logging.Logger) -> None:
    write(FREED)
    [entry] = journald.entries()
    assert value(entry, "CODE_FILE") == __file__
    assert value(entry, "CODE_FUNC") == "test_it_says_who_wrote_it"
    assert "write(FREED)" in Path(__file__).read_text().splitlines()[int(value(entry, "CODE_LINE")) - 1]


def test_a_list_is_a_field_several_times_and_an_empty_one_none(journald: Journald, ours: logging.Logger) -> None:
    write(MADE)
    [entry] = journald.entries()
    assert values(entry, "GPUSUPERVISOR_TENANT") == ["comfyui", "ollama"]
    assert values(entry, "GPUSUPERVISOR_BLOCKER") == []
    assert value(entry, "MESSAGE").endswith("Steps: ollama (13.0 GiB: idle). Blockers: none.")


def test_what_others_wrote_is_one_bounded_line(journald: Journald, ours: logging.Logger) -> None:
    write(Defect("a\nMESSAGE_ID=0\x1b[2J{version}" + "x" * 5000))
    [entry] = journald.entries()
    method = value(entry, "GPUSUPERVISOR_METHOD")
    assert method.startswith("a MESSAGE_ID=0 [2J{version}xxx")
    assert len(method) == 1024
    assert value(entry, "MESSAGE_ID") == Defect.message_id


def test_a_traceback_is_in_the_message(journald: Journald, ours: logging.Logger) -> None:
    write(Defect("Manager.Reload"), error=ZeroDivisionError("oh"))
    [entry] = journald.entries()
    lines = value(entry, "MESSAGE").splitlines()
    assert lines[0] == "Manager.Reload failed because of a bug in gpusupervisor"
    assert lines[-1] == "ZeroDivisionError: oh"


def test_what_is_below_the_level_is_not_even_made(journald: Journald, ours: logging.Logger) -> None:
    ours.setLevel(logging.WARNING)
    write(FREED)
    assert journald.datagrams() == []


def test_losses_are_told_before_the_next_entry(journald: Journald, ours: logging.Logger) -> None:
    journald.stop()
    for _ in range(3):
        write(FREED)
    journald.start()
    write(FREED)
    told, entry = journald.entries()
    assert value(told, "MESSAGE_ID") == EntriesLost.message_id
    assert value(told, "GPUSUPERVISOR_LOST") == "3"
    assert value(told, "PRIORITY") == "4"
    assert value(entry, "MESSAGE_ID") == ReleaseDone.message_id
    write(FREED)
    assert len(journald.entries()) == 1, "told once"


def test_losses_that_cannot_be_told_yet_are_not_forgotten(journald: Journald, ours: logging.Logger) -> None:
    journald.stop()
    write(FREED)
    write(FREED)
    write(FREED)
    journald.start()
    ours.info("plain")
    assert [value(entry, "MESSAGE") for entry in journald.entries()] == [
        "3 entries before this one were lost: journald did not accept them", "plain",
    ]  # fmt: skip


def test_a_record_whose_arguments_do_not_fit_hurts_nobody(
    journald: Journald, ours: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    [handler] = [each for each in logging.getLogger().handlers if isinstance(each, JournalHandler)]
    handler.handle(logging.LogRecord("x", logging.ERROR, "f", 1, "%d", ("no number",), None))
    assert journald.datagrams() == []
    assert "no number" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
def test_every_kind_can_be_written_with_its_fields(kind: type[Entry]) -> None:
    samples = {"text": "some text", "bytes": 1 << 30, "usec": 1_500_000, "number": 3}
    given = {
        each.name: ("a", "b") if "tuple" in str(each.type) else samples[FIELDS[each.name].form] for each in fields(kind)
    }
    entry = kind(**given)
    assert "{" not in entry.message()
    assert all(NAME.fullmatch(name) for name, _ in entry.journal_fields())
    assert {FIELDS[name].journal_name for name in given} == {name for name, _ in entry.journal_fields()}


def test_every_field_is_used_and_every_id_is_one() -> None:
    used = {each.name for kind in KINDS.values() for each in fields(kind)}
    assert used == FIELDS.keys()
    assert all(len(id_) == 32 and int(id_, 16) and id_ == id_.lower() for id_ in KINDS)
