"""A real container engine: what runs in it is found by its published port, and its addresses are not the machine's."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpusupervisor.engine_http import EngineHttp, HttpError
from gpusupervisor.processes.containers import MONITOR, seen_from_outside
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.inside import read_inside
from gpusupervisor.processes.reader import ProcessReader

NAME = "gpusupervisor-test"
INNER = 11434
PODMAN = ("podman", "--cgroup-manager", "cgroupfs")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
"""podman asks for more than a container on a container may have."""


@pytest.fixture(scope="module")
def container() -> Iterator[int]:
    """The PID of a web server in a container, as the machine has it."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        pytest.skip("needs root and podman")
    runtime = ("--runtime", "runc") if shutil.which("runc") else ()
    command = (os.path.realpath(sys.executable), "-m", "http.server", str(INNER))
    run = (*PODMAN, *runtime, "run", *LIMITS, "-d", "--name", NAME, "-p", f"127.0.0.1::{INNER}", "--rootfs", "/:O")
    started = subprocess.run([*run, *command], capture_output=True, text=True, timeout=120, check=False)
    try:
        if started.returncode:
            pytest.skip(f"podman cannot run a container here: {started.stderr.strip()[-200:]}")
        yield int(_podman("inspect", "-f", "{{.State.Pid}}", NAME))
    finally:
        subprocess.run([*PODMAN, "rm", "-f", NAME], capture_output=True, timeout=120, check=False)


def _podman(*words: str) -> str:
    return subprocess.run([*PODMAN, *words], capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def identity_of(pid: int) -> ProcessIdentity:
    """What root sees of a process."""
    root = Path("/proc")
    identity = ProcessReader(root).identify([pid])[pid]
    facts = read_inside(root, identity.key)
    assert facts is not None
    return replace(identity, network=facts.network, listening_ports=facts.listening_ports)


def test_it_is_reached_through_its_published_port_and_has_its_name(container: int) -> None:
    contained = identity_of(container)
    assert contained.container
    assert contained.is_elsewhere
    assert contained.listening_ports == ()
    monitor = identity_of(contained.parent_pid)
    assert monitor.comm == MONITOR
    seen = seen_from_outside(contained, (), (monitor,))
    assert seen.container_name == NAME
    (published,) = seen.published
    assert str(published.port) == _podman("port", NAME, str(INNER)).rpartition(":")[2]


def test_a_port_that_leads_into_a_container_is_roots_and_is_asked(container: int) -> None:
    published = _podman("port", NAME, str(INNER)).rpartition(":")[2]

    async def ask() -> int:
        http = EngineHttp()
        async with asyncio.timeout(60):
            while True:
                try:
                    return (await http.get(f"http://127.0.0.1:{published}", "/", timeout=5_000_000)).status
                except HttpError:  # the server is still starting
                    await asyncio.sleep(0.1)
                finally:
                    await http.aclose()

    assert asyncio.run(ask()) == 200
