"""D-Bus messages on the wire: where one ends and what its header says, without looking at the rest."""

from dataclasses import dataclass
from struct import Struct

FIXED = 16
"""Bytes before the header's fields."""
LARGEST = 128 << 20
"""Bytes of a message, by the specification."""
LARGEST_FIELDS = 64 << 10
"""Bytes of a header that is looked into."""
CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
NO_ANSWER_WANTED = 1
SENDER = 7
"""Code of the header field."""
_LENGTHS = {ord("l"): Struct("<III"), ord("B"): Struct(">III")}
_U32 = {ord("l"): Struct("<I"), ord("B"): Struct(">I")}
_STRINGS = frozenset(b"so")


@dataclass(frozen=True, slots=True)
class Frame:
    """One message within a buffer."""

    start: int
    end: int
    kind: int
    flags: int
    serial: int
    sender: str
    """Unique bus name, as the bus vouches for it; empty when it cannot be made out."""

    @property
    def size(self) -> int:
        """Bytes."""
        return self.end - self.start

    @property
    def is_answer(self) -> bool:
        """Of a call of ours: the bus lets nobody else answer it."""
        return self.kind in (RETURN, ERROR)

    @property
    def is_call(self) -> bool:
        """Somebody calls."""
        return self.kind == CALL

    @property
    def wants_answer(self) -> bool:
        """Somebody calls and waits, and we know who."""
        return self.kind == CALL and not self.flags & NO_ANSWER_WANTED and bool(self.sender)


def header(buffer: bytearray, start: int) -> Frame | None:
    """The message that begins at `start`, as its header describes it; None while too little of it is there.

    It may end beyond the buffer. Raises ValueError for what is no message.
    """
    if len(buffer) - start < FIXED:
        return None
    endian = buffer[start]
    if endian not in _LENGTHS:
        raise ValueError(f"no D-Bus message begins with the byte {endian}")
    body, serial, fields = _LENGTHS[endian].unpack_from(buffer, start + 4)
    size = FIXED + fields + (-fields % 8) + body
    if size > LARGEST:
        raise ValueError(f"a D-Bus message of {size} bytes")
    sender = ""
    if fields <= LARGEST_FIELDS:
        if len(buffer) - start < FIXED + fields:
            return None
        sender = _sender(buffer, start, fields, _U32[endian])
    return Frame(start, start + size, buffer[start + 1], buffer[start + 2], serial, sender)


def _sender(buffer: bytearray, start: int, length: int, u32: Struct) -> str:
    """The field of the header; empty when one is met before it that is none of the specification's."""
    position, end = start + FIXED, start + FIXED + length
    while position + 8 <= end:
        code, kind = buffer[position], buffer[position + 2]
        if buffer[position + 1] != 1:
            return ""
        if kind in _STRINGS:
            (size,) = u32.unpack_from(buffer, position + 4)
            first = position + 8
            if code == SENDER:
                return buffer[first : min(first + size, end)].decode("ascii", "replace")
            position = first + size + 1
        elif kind == ord("g"):
            position += 4 + buffer[position + 4] + 2
        elif kind == ord("u"):
            position += 8
        else:
            return ""
        position += -(position - start) % 8
    return ""
