"""journald's own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): one entry is one datagram of fields.

Own code, because what there is in pure Python blocks while journald does, or raises, and the rest needs libsystemd.
"""

import errno
import fcntl
import os
import re
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

SOCKET = Path("/run/systemd/journal/socket")
SEND_BUFFER = 8 << 20
"""Bytes, as sd_journal_send(3) asks for; the kernel gives what net.core.wmem_max allows."""
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
NAME = re.compile(r"[A-Z][A-Z0-9_]{0,63}", re.ASCII)
"""What journald takes from a client: a name with "_" before it is journald's own."""


def encode(fields: Iterable[tuple[str, str]]) -> bytes:
    """The datagram. Whatever a value contains, it stays the value of its field. Raises ValueError for a bad name."""
    return b"".join(_encode_field(name, value) for name, value in fields)


def _encode_field(name: str, value: str) -> bytes:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of a journal field")
    data = value.encode("utf-8", "backslashreplace")  # always valid UTF-8, or journalctl would show "blob data"
    if b"\n" not in data:
        return b"%s=%s\n" % (name.encode(), data)
    return b"%s\n%s%s\n" % (name.encode(), struct.pack("<Q", len(data)), data)


class JournalSocket:
    """The way to journald. Never blocks and never raises: what journald does not take at once is counted and gone."""

    def __init__(self, path: Path = SOCKET) -> None:
        self._path = str(path)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self.lost = 0
        """Entries that journald did not take."""

    def send(self, fields: Iterable[tuple[str, str]]) -> bool:
        """Hand an entry over; False, and counted, when journald does not take it now."""
        datagram = encode(fields)
        try:
            self._socket.sendto(datagram, self._path)  # by its name each time: it is a new socket after a restart
        except OSError as error:
            if error.errno in (errno.EMSGSIZE, errno.ENOBUFS) and self._send_large(datagram):
                return True
            self.lost += 1
            return False
        return True

    def _send_large(self, datagram: bytes) -> bool:
        """In sealed memory, of which journald gets the descriptor."""
        try:
            memory = os.memfd_create("gpusupervisor-log", os.MFD_ALLOW_SEALING)
        except OSError:
            return False
        try:
            os.set_blocking(memory, False)  # means nothing for memory, but says so to who looks for blocking calls
            left = memoryview(datagram)
            while left:
                left = left[os.write(memory, left) :]
            fcntl.fcntl(memory, fcntl.F_ADD_SEALS, SEALS)
            socket_message = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", memory))]
            self._socket.sendmsg([], socket_message, 0, self._path)
        except OSError:
            return False
        finally:
            os.close(memory)
        return True

    def close(self) -> None:
        """Nothing can be sent any more."""
        self._socket.close()
