"""Owners of the socket at the other end of a local TCP connection, from the kernel's tables of sockets.

The answer is about a connection that is already established, so nothing can take its place afterwards. It does not
depend on an HTTP library: it takes the two addresses of a connected socket.
"""

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from gpusupervisor.engine_http.sock_diag import find_connection, find_listener

PROC = Path("/proc")
LARGEST_TABLE = 16 << 20
"""Bytes of one table that are read: about 100,000 sockets."""
CHUNK = 1 << 20
_ESTABLISHED = 1
_LISTENING = 10
_NOBODY_YET = b"0"
_NO_PEER = (b"00000000:0000", b"0" * 32 + b":0000")

Address = tuple[str, int]


class OwnerUnknown(Exception):  # noqa: N818  (it names a state)
    """The owner cannot be determined; the text is one clause that says why."""


def owners_of_peer(connected: socket.socket, proc: Path = PROC) -> frozenset[int]:
    """Return the accounts that have the other end of a connection to this machine: the listening socket's and, once
    the connection is accepted, that of the process that accepted it. Blocks for as long as the tables are long.

    0 alone for a connection that ends in another network, because only root's packet filter can have redirected it.
    A Unix socket has the account that listens on it. Raises OwnerUnknown when the connection has ended meanwhile.
    """
    if connected.family == socket.AF_UNIX:
        packed = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return frozenset({struct.unpack("3i", packed)[1]})
    try:
        local, peer = connected.getsockname()[:2], connected.getpeername()[:2]
        for _ in range(2):  # an entry can be skipped while others of the table come and go
            found = _looked_up(local, peer) if proc == PROC else frozenset[int]()
            found = found or _owners(local, peer, proc)
            if found:
                return found
            if connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] != _ESTABLISHED:
                break
        else:
            return frozenset({0})
    except OSError as error:
        raise OwnerUnknown(f"its owner cannot be read: {error.strerror}") from None
    raise OwnerUnknown("it closed the connection at once")


def _looked_up(local: Address, peer: Address) -> frozenset[int]:
    """Empty when the kernel does not tell; the tables decide then. Raises OwnerUnknown.

    The listener is looked up first: one that made way for the tenant meanwhile has reset what it had not accepted.
    """
    try:
        listening, end = find_listener(peer), find_connection(peer, local)
    except OSError:
        return frozenset()  # this service may not use netlink
    if end is None or listening is None or end.state == _LISTENING:
        return frozenset()  # the look-up falls back to the listener where a packet filter has redirected the connection
    if end.state != _ESTABLISHED:
        raise OwnerUnknown("it closed the connection at once")
    return frozenset({listening.uid, end.uid} if end.inode else {listening.uid})


def _owners(local: Address, peer: Address, proc: Path) -> frozenset[int]:
    """Empty when no socket of this network is at the other end."""
    for name, mapped in (("tcp", False), ("tcp6", True)):
        theirs, ours = _written(peer, mapped=mapped), _written(local, mapped=mapped)
        if not theirs or not ours:
            continue
        table = _table(proc / "self/net" / name)
        end = _fields(table, theirs, ours)
        if end is None:
            continue
        if int(end[3], 16) != _ESTABLISHED:
            raise OwnerUnknown("it closed the connection at once")
        listening = _listening(table, peer, mapped=mapped)
        if end[9] != _NOBODY_YET:  # before it is accepted it has no owner of its own
            return listening | {int(end[7])}
        if listening:
            return listening
        raise OwnerUnknown("it stopped listening")
    return frozenset()


def _listening(table: bytes, peer: Address, *, mapped: bool) -> frozenset[int]:
    """Owners of the sockets that listen at an address: at the very one, else at any."""
    exact, port = _written(peer, mapped=mapped), f"{peer[1]:04X}".encode()
    anywhere = (b"0" * 32 if mapped else b"0" * 8) + b":" + port
    for where in (exact, anywhere):
        owners = {int(fields[7]) for fields in _all_fields(table, where, _NO_PEER[mapped])}
        if owners:
            return frozenset(owners)
    return frozenset()


def _fields(table: bytes, one: bytes, other: bytes) -> list[bytes] | None:
    return next(_all_fields(table, one, other), None)


def _all_fields(table: bytes, one: bytes, other: bytes) -> Iterator[list[bytes]]:
    """The fields of every line with these two addresses."""
    sought, at = b" " + one + b" " + other + b" ", 0
    while (at := table.find(sought, at)) >= 0:
        start, at = table.rfind(b"\n", 0, at) + 1, at + len(sought)
        fields = table[start : start + 256].partition(b"\n")[0].split()
        if len(fields) >= 10:
            yield fields


def _written(address: Address, *, mapped: bool) -> bytes:
    """An address as the table has it: words in the machine's byte order; empty where it has no place in it."""
    host = ipaddress.ip_address(address[0].partition("%")[0])
    if isinstance(host, ipaddress.IPv6Address) and host.ipv4_mapped is not None:
        host = host.ipv4_mapped
    packed = host.packed
    if mapped:
        packed = packed if host.version == 6 else bytes(10) + b"\xff\xff" + packed
    elif host.version == 6:
        return b""
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return b"".join(b"%08X" % word for word in words) + b":%04X" % address[1]


def _table(path: Path) -> bytes:
    """One of the kernel's tables; empty where the kernel has no IPv6. Raises OSError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        pieces: list[bytes] = []
        size = 0
        while size < LARGEST_TABLE and (piece := os.read(descriptor, CHUNK)):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)
