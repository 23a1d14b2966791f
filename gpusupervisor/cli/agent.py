"""A polkit agent on this terminal, for logins without one of their own, such as ssh."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PROGRAM = "pkttyagent"
_REGISTERED_WITHIN = 5.0
"""Seconds for the agent to register with polkit."""
_ENDED_WITHIN = 2.0
"""Seconds for the agent to restore the terminal and exit."""


def is_possible() -> bool:
    """Return whether a password can be asked for here: on a terminal, and of a user who is not root."""
    return os.geteuid() != 0 and sys.stdin.isatty() and sys.stderr.isatty()


@asynccontextmanager
async def agent() -> AsyncIterator[None]:
    """Run polkit's text agent for this process while the context lasts, as systemctl does.

    With `--fallback`, an agent of the session is preferred. Without the program, nothing is run.
    """
    ready, registered = os.pipe()
    child = _start(registered)
    os.close(registered)
    try:
        # The agent closes its end once it is registered, and so does its death.
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(os.read, ready, 1), _REGISTERED_WITHIN)
        yield
    finally:
        os.close(ready)
        if child is not None:
            await asyncio.to_thread(_end, child)


def _start(registered: int) -> "subprocess.Popen[bytes] | None":
    """Start the agent, which closes the descriptor once it is registered; None where it is not installed."""
    command = [PROGRAM, "--notify-fd", str(registered), "--process", str(os.getpid()), "--fallback"]
    try:
        return subprocess.Popen(command, pass_fds=[registered])  # noqa: S603  (a fixed command, found as a shell would)
    except OSError:
        return None


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the agent, which restores the terminal first; SIGCONT in case that it was stopped for reading from it."""
    for number in (signal.SIGTERM, signal.SIGCONT):
        child.send_signal(number)
    try:
        child.wait(_ENDED_WITHIN)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
