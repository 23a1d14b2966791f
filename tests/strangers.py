"""Sockets of other users, for tests as root: the kernel notes the account that was in force when a socket was made."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

TENANT, ATTACKER = 61001, 61002
"""Accounts that need no entry in the machine's list."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make sockets that belong to other users")


@contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Make sockets for another user."""
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)


def listener(uid: int, host: str = "127.0.0.1", port: int = 0, backlog: int = 16) -> socket.socket:
    """A listening socket of another user."""
    with as_user(uid):
        made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    made.bind((host, port))
    made.listen(backlog)
    return made
