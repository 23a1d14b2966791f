"""journald's protocol: what is sent is what is read, and nobody waits for it."""

import asyncio
import os

import pytest

from gpusupervisor.journal.native import JournalSocket, encode
from tests.journal.journald import Journald, parse

Pairs = list[tuple[str, str]]


def test_an_entry_is_a_datagram_of_fields_that_may_come_several_times(journald: Journald) -> None:
    entry = [("MESSAGE", "hello"), ("PRIORITY", "6"), ("GPUSUPERVISOR_TENANT", "a"), ("GPUSUPERVISOR_TENANT", "b")]
    journal = JournalSocket(journald.path)
    assert journal.send(entry)
    assert journald.datagrams() == [b"MESSAGE=hello\nPRIORITY=6\nGPUSUPERVISOR_TENANT=a\nGPUSUPERVISOR_TENANT=b\n"]
    journal.close()


def test_a_value_of_several_lines_smuggles_no_field() -> None:
    entry = [("MESSAGE", "one\nPRIORITY=0\n_UID=0"), ("PRIORITY", "6")]
    assert parse(encode(entry)) == entry
    assert encode(entry).startswith(b"MESSAGE\n\x15\0\0\0\0\0\0\0one\n")


@pytest.mark.parametrize("name", ["", "_UID", "lower", "A=B", "A\nB", "A" * 65, "1A", "Ä"])
def test_a_name_that_journald_would_not_take_is_a_defect(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a journal field"):
        encode([(name, "value")])


def test_bytes_of_a_file_name_that_is_no_utf_8_can_be_read_in_the_journal() -> None:
    assert encode([("MESSAGE", os.fsdecode(b"/models/caf\xe9"))]) == b"MESSAGE=/models/caf\\udce9\n"


async def test_a_large_entry_goes_in_sealed_memory(journald: Journald) -> None:
    """In the event loop, where the tests forbid what blocks."""
    entry = [("MESSAGE", "x" * (64 << 20)), ("PRIORITY", "7")]
    journal = JournalSocket(journald.path)
    assert journal.send(entry)
    assert journald.entries() == [entry]
    assert journal.lost == 0
    journal.close()


async def test_nothing_waits_for_a_journald_that_is_stalled(journald: Journald) -> None:
    journal = JournalSocket(journald.path)
    loop = asyncio.get_running_loop()
    started, sent = loop.time(), 0
    while journal.send([("MESSAGE", str(sent))]):
        sent += 1
        assert sent < 100_000
    assert not journal.send([("MESSAGE", "x" * (64 << 20))])
    assert loop.time() - started < 5
    assert journal.lost == 2
    assert len(journald.datagrams()) == sent
    assert journal.send([("MESSAGE", "it takes entries again")])
    journal.close()


def test_a_journald_that_is_gone_loses_entries_and_nothing_else(journald: Journald) -> None:
    journal = JournalSocket(journald.path)
    journald.stop()
    assert not journal.send([("MESSAGE", "lost")])
    journald.start()
    assert journal.send([("MESSAGE", "taken")])
    assert journald.entries() == [[("MESSAGE", "taken")]]
    assert journal.lost == 1
    journal.close()
