"""Whose socket is at the other end of a connection, as the kernel has it."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpusupervisor.engine_http.sockets import OwnerUnknown, owners_of_peer
from tests.strangers import ATTACKER, TENANT, as_user, listener, needs_root

pytestmark = needs_root


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    """Closes the sockets of a test."""
    with ExitStack() as stack:
        yield stack


def connected(stack: ExitStack, to: socket.socket, host: str = "127.0.0.1") -> socket.socket:
    """A connection to a listener."""
    return stack.enter_context(socket.create_connection((host, to.getsockname()[1]), timeout=5))


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::"])
def test_a_connection_that_nobody_has_accepted_yet_belongs_to_who_listens(sockets: ExitStack, host: str) -> None:
    theirs = sockets.enter_context(listener(TENANT, host))
    assert owners_of_peer(connected(sockets, theirs)) == {TENANT}


@pytest.mark.parametrize("host", ["::1", "::"])
def test_so_it_is_over_ipv6(sockets: ExitStack, host: str) -> None:
    theirs = sockets.enter_context(listener(TENANT, host))
    assert owners_of_peer(connected(sockets, theirs, "::1")) == {TENANT}


def test_of_two_listeners_the_one_counts_that_the_kernel_connects_to(sockets: ExitStack) -> None:
    everywhere = sockets.enter_context(listener(ATTACKER, "127.0.0.2"))
    port = everywhere.getsockname()[1]
    mine = sockets.enter_context(listener(TENANT, "127.0.0.1", port))
    assert owners_of_peer(connected(sockets, mine)) == {TENANT}
    assert owners_of_peer(connected(sockets, everywhere, "127.0.0.2")) == {ATTACKER}


def test_who_accepted_it_counts_beside_who_listens(sockets: ExitStack) -> None:
    theirs = sockets.enter_context(listener(TENANT))
    mine = connected(sockets, theirs)
    with as_user(ATTACKER):
        sockets.enter_context(theirs.accept()[0])
    assert owners_of_peer(mine) == {TENANT, ATTACKER}


def test_a_listener_that_makes_way_for_the_tenant_keeps_the_connection_that_it_has(sockets: ExitStack) -> None:
    """An attacker accepts, lets go of the port, and the tenant starts there before anybody looks."""
    theirs = listener(ATTACKER)
    port = theirs.getsockname()[1]
    mine = connected(sockets, theirs)
    with as_user(ATTACKER):
        sockets.enter_context(theirs.accept()[0])
    theirs.close()
    sockets.enter_context(listener(TENANT, port=port))
    assert ATTACKER in owners_of_peer(mine)


def test_an_answer_left_behind_by_who_has_hung_up_is_nobodys(sockets: ExitStack) -> None:
    theirs = sockets.enter_context(listener(ATTACKER))
    mine = connected(sockets, theirs)
    with as_user(ATTACKER):
        accepted = theirs.accept()[0]
    accepted.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    accepted.close()
    with pytest.raises(OwnerUnknown, match="closed"):
        owners_of_peer(mine)


def test_a_unix_socket_belongs_to_who_listens(sockets: ExitStack, tmp_path: Path) -> None:
    with as_user(TENANT):
        theirs = sockets.enter_context(socket.socket(socket.AF_UNIX))
    theirs.bind(str(tmp_path / "s"))
    with as_user(TENANT):
        theirs.listen()
    mine = sockets.enter_context(socket.socket(socket.AF_UNIX))
    mine.connect(str(tmp_path / "s"))
    assert owners_of_peer(mine) == {TENANT}


def test_without_the_kernels_tables_nobody_is_trusted(sockets: ExitStack, tmp_path: Path) -> None:
    mine = connected(sockets, sockets.enter_context(listener(TENANT)))
    (tmp_path / "self/net").mkdir(parents=True)
    os.symlink("tcp", tmp_path / "self/net/tcp")
    with pytest.raises(OwnerUnknown, match="cannot be read"):
        owners_of_peer(mine, tmp_path)
