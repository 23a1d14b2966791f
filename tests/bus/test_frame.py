"""Headers are read right, whatever is in them, and what is no message is noticed."""

import pytest
from dbus_fast import Message, MessageFlag, MessageType
from hypothesis import given
from hypothesis import strategies as some

from gpusupervisor.bus.frame import LARGEST_FIELDS, header


def packed(message: Message, sender: str = ":1.5", serial: int = 7) -> bytearray:
    """As it comes from the bus, which adds the sender to what a client has sent."""
    message.serial = serial
    sent = bytes(message._marshall(False))
    length = int.from_bytes(sent[12:16], "little")
    fields, body = sent[16 : 16 + length], sent[16 + length + -length % 8 :]
    fields += b"\0" * (-length % 8) + b"\x07\x01s\0" + len(sender).to_bytes(4, "little") + sender.encode() + b"\0"
    return bytearray(sent[:12] + len(fields).to_bytes(4, "little") + fields + b"\0" * (-len(fields) % 8) + body)


names = some.from_regex(r":1\.[0-9]{1,9}", fullmatch=True)
elements = some.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,40}", fullmatch=True)


@given(sender=names, member=elements, path=elements, body=some.text(max_size=300).filter(lambda t: "\0" not in t))
def test_sender_serial_and_length_are_those_of_the_message(sender: str, member: str, path: str, body: str) -> None:
    call = Message("a.B", f"/{path}", "a.B", member, signature="s", body=[body])
    buffer = packed(call, sender) + bytearray(b"l\x01")
    frame = header(buffer, 0)
    assert frame is not None
    assert (frame.sender, frame.serial, frame.end) == (sender, 7, len(buffer) - 2)
    assert frame.is_call
    assert frame.wants_answer
    assert header(buffer, frame.end) is None


@given(cut=some.integers(min_value=0, max_value=60))
def test_too_little_of_a_header_is_none_yet(cut: int) -> None:
    whole = packed(Message("a.B", "/x", "a.B", "C"))
    assert header(whole[:cut], 0) is None


@given(junk=some.binary(min_size=16, max_size=400))
def test_junk_is_refused_or_described_and_never_raises_anything_else(junk: bytes) -> None:
    try:
        frame = header(bytearray(junk), 0)
    except ValueError:
        return
    assert frame is None or frame.size >= 16


def test_a_field_that_only_looks_like_the_sender_is_not_taken_for_it() -> None:
    fake = "\x07\x01s :1.99"
    call = packed(Message("a.B", "/x", "a.B", "C", signature="s", body=[fake]))
    frame = header(call, 0)
    assert frame is not None
    assert frame.sender == ":1.5"


def test_a_header_that_is_too_long_is_described_without_a_sender() -> None:
    buffer = bytearray(b"l\x01\x00\x01") + bytearray((10).to_bytes(4, "little") * 2)
    buffer += (LARGEST_FIELDS + 8).to_bytes(4, "little")
    frame = header(buffer, 0)
    assert frame is not None
    assert (frame.sender, frame.wants_answer) == ("", False)
    assert frame.size == 16 + LARGEST_FIELDS + 8 + 10


def test_answers_and_calls_without_an_answer_are_told_apart() -> None:
    silent = header(packed(Message("a.B", "/x", "a.B", "C", flags=MessageFlag.NO_REPLY_EXPECTED)), 0)
    answer = header(packed(Message(message_type=MessageType.METHOD_RETURN, reply_serial=3)), 0)
    assert silent is not None
    assert (silent.is_call, silent.wants_answer) == (True, False)
    assert answer is not None
    assert (answer.is_answer, answer.is_call) == (True, False)


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(ValueError, match="no D-Bus message"):
        header(bytearray(b"HTTP/1.1 200 OK\r\n\r\n"), 0)
