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
from dbus_fast.errors import AuthError

from gpusupervisor.cli.failures import Place

_LINGER = 2.0
"""Seconds for ssh to end once its input has."""
_REASONS = {255: "ssh could not log in", 127: "systemd-stdio-bridge was not found"}
"""What exit statuses tell: ssh's own, and that of the shell there."""


@asynccontextmanager
async def remote_bus(place: Place, *, unattended: bool = False) -> AsyncIterator[MessageBus]:
    """A connection to the system bus of `place`. Raises ConnectionError, with the reason, when there is none.

    unattended: ssh asks for nothing and says nothing.
    """
    quiet = ["-q", "-o", "BatchMode=yes"] if unattended else []
    command = ["ssh", *quiet, "-xT", *place.login, "systemd-stdio-bridge"]
    ours, theirs = await _connected_pair()
    try:
        with theirs:
            child = _start(command, theirs, silent=unattended)
    except OSError as error:
        ours.cancel()
        raise ConnectionError(f"ssh does not start here: {error.strerror}") from error
    try:
        try:
            bus = await ours
        except (OSError, EOFError, AuthError) as error:
            status = await asyncio.to_thread(_end, child)
            raise ConnectionError(_REASONS.get(status) or str(error)) from error
        yield bus
    finally:
        await asyncio.to_thread(_end, child)


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
        theirs.setblocking(True)  # as programs expect their input
        return connecting, theirs


def _start(command: list[str], end: socket.socket, *, silent: bool) -> "subprocess.Popen[bytes]":
    """ssh with one socket as input and output. Ctrl-C is not for it: it still has to carry what we say to that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    errors = subprocess.DEVNULL if silent else None
    try:
        return subprocess.Popen(command, stdin=end.fileno(), stdout=end.fileno(), stderr=errors)  # noqa: S603  (no shell, and a host is no option)
    finally:
        signal.signal(signal.SIGINT, before)


def _end(child: "subprocess.Popen[bytes]") -> int:
    """ssh ends once our end of its socket is closed, and is told to where it does not. Returns its exit status."""
    try:
        return child.wait(_LINGER)
    except subprocess.TimeoutExpired:
        child.terminate()
        return child.wait()
