"""The system bus of another machine, as busctl -H has it: ssh runs systemd-stdio-bridge there, and its standard input
and output are a connection to the bus.
"""

import asyncio
import signal
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dbus_fast.aio import MessageBus
from dbus_fast.auth import UID_NOT_SPECIFIED, AuthExternal

from gpusupervisor.cli.exits import WRONG_USE, CommandFailed

_LINGER = 2.0
"""Seconds for ssh to end once its input has."""


def ssh_command(host: str) -> list[str]:
    """The command for [USER@]HOST[:PORT]; an address of IPv6 with a port is in brackets."""
    name, port = host, ""
    head, colon, tail = host.rpartition(":")
    if colon and tail.isdigit() and (":" not in head or head.endswith("]")):
        name, port = head, tail
    user, at, address = name.rpartition("@")
    name = user + at + address.removeprefix("[").removesuffix("]")
    if not address or address.startswith("-") or user.startswith("-"):
        raise CommandFailed(f"{host!r} is not a machine; it is [USER@]HOST[:PORT].", WRONG_USE)
    return ["ssh", "-xT", *(["-p", port] if port else []), "--", name, "systemd-stdio-bridge"]


@asynccontextmanager
async def remote_bus(host: str, *, unattended: bool = False) -> AsyncIterator[MessageBus]:
    """A connection to the system bus of `host`. Raises OSError or EOFError when there is none.

    unattended: ssh asks for nothing and says nothing.
    """
    command = ssh_command(host)
    if unattended:
        command[1:1] = ["-q", "-o", "BatchMode=yes"]
    ours, theirs = await _connected_pair()
    try:
        with theirs:
            child = _start(command, theirs, silent=unattended)
    except OSError:
        ours.cancel()
        raise
    try:
        yield await ours
    finally:
        await asyncio.get_running_loop().run_in_executor(None, _end, child)


async def _connected_pair() -> "tuple[asyncio.Task[MessageBus], socket.socket]":
    """A bus connection on its way, and the other end of its socket: dbus-fast connects to addresses only."""
    with tempfile.TemporaryDirectory(prefix="gpusupervisorctl-") as folder, socket.socket(socket.AF_UNIX) as listener:
        path = Path(folder, "bus")
        listener.bind(str(path))
        listener.listen(1)
        listener.setblocking(False)
        bus = MessageBus(f"unix:path={path}", auth=AuthExternal(UID_NOT_SPECIFIED))
        connecting = asyncio.create_task(bus.connect())
        theirs, _ = await asyncio.get_running_loop().sock_accept(listener)
        return connecting, theirs


def _start(command: list[str], end: socket.socket, *, silent: bool) -> "subprocess.Popen[bytes]":
    """ssh with one socket as input and output. Ctrl-C is not for it: it still has to carry what we say to that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    errors = subprocess.DEVNULL if silent else None
    try:
        return subprocess.Popen(command, stdin=end.fileno(), stdout=end.fileno(), stderr=errors)  # noqa: S603  (no shell, and a host is no option)
    finally:
        signal.signal(signal.SIGINT, before)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """ssh ends once our end of its socket is closed, and is told to where it does not."""
    try:
        child.wait(_LINGER)
    except subprocess.TimeoutExpired:
        child.terminate()
        child.wait()
