"""journald's end of its socket: reads entries back as journald does."""

import array
import fcntl
import os
import socket
import struct
import tempfile
from pathlib import Path
from typing import Self

from gpusupervisor.journal.native import SEALS

Fields = list[tuple[str, str]]
LARGEST = 1 << 20
"""Bytes of a datagram."""


class Journald:
    """Takes entries, as long as its socket is looked after."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="journald-")
        self.path = Path(self._folder.name) / "socket"
        self._socket = self._listen()

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        listener.setblocking(False)
        listener.bind(str(self.path))
        return listener

    def stop(self) -> None:
        """Nobody listens any more."""
        self._socket.close()
        self.path.unlink()

    def start(self) -> None:
        """Listens again, on another socket of the same name."""
        self._socket = self._listen()

    def datagrams(self) -> list[bytes]:
        """Everything that has come in since the last time."""
        found: list[bytes] = []
        while True:
            try:
                data, ancillary, _, _ = self._socket.recvmsg(LARGEST, socket.CMSG_SPACE(4))
            except BlockingIOError:
                return found
            found.append(_from_memory(ancillary[0][2]) if ancillary else data)

    def entries(self) -> list[Fields]:
        """The same, taken apart."""
        return [parse(datagram) for datagram in self.datagrams()]

    def close(self) -> None:
        self._socket.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _from_memory(rights: bytes) -> bytes:
    """What a sealed memfd holds; journald takes no other."""
    [memory] = array.array("i", rights)
    try:
        assert fcntl.fcntl(memory, fcntl.F_GET_SEALS) == SEALS
        return os.pread(memory, os.fstat(memory).st_size, 0)
    finally:
        os.close(memory)


def parse(datagram: bytes) -> Fields:
    """The fields of an entry, in both of the protocol's notations."""
    fields = []
    while datagram:
        line, _, rest = datagram.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            [size] = struct.unpack("<Q", rest[:8])
            value, end, datagram = rest[8 : 8 + size], rest[8 + size : 9 + size], rest[9 + size :]
            assert end == b"\n"
        else:
            datagram = rest
        fields.append((name.decode("ascii"), value.decode()))
    return fields


def values(entry: Fields, name: str) -> list[str]:
    """All values of a field."""
    return [value for each, value in entry if each == name]


def value(entry: Fields, name: str) -> str:
    """The only value of a field."""
    [only] = values(entry, name)
    return only
