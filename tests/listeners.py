"""Real processes that listen, hold a folder and an environment, as this user or another."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gpusupervisor.processes.identity import ProcessKey

NOBODY = 65534
LISTENER = """
import socket, sys
sockets = []
for address in sys.argv[1:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sockets.append(socket.create_server((address, 0), family=family))
print(*(each.getsockname()[1] for each in sockets), flush=True)
sys.stdin.read()
"""


def key_of(pid: int) -> ProcessKey:
    """Who a process is."""
    return ProcessKey(pid, int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]))


@contextmanager
def listener(
    *addresses: str,
    folder: Path = Path("/"),
    uid: int | None = None,
    environment: Mapping[str, str] | None = None,
    wrapper: tuple[str, ...] = (),
    program: tuple[str, ...] = ("-c", LISTENER),
) -> Iterator[tuple[ProcessKey, tuple[int, ...]]]:
    """A process that listens on a port of each address; yields its key and the ports.

    wrapper: a program that becomes the process, e.g. ("unshare", "--net"). program: what Python runs.
    """
    who = {"user": uid, "group": uid, "extra_groups": []} if uid is not None else {}
    with subprocess.Popen(
        [*wrapper, os.path.realpath(sys.executable), *program, *addresses],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment or {}, **who,
    ) as process:  # type: ignore[call-overload]  # fmt: skip
        ports = tuple(int(port) for port in process.stdout.readline().split())
        try:
            yield key_of(process.pid), ports
        finally:
            process.stdin.close()
            process.wait(10)
