"""Identities of processes for tests."""

from typing import Any

from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey


def process(pid: int = 1000, start_time: int = 1, *, uid: int = 1000, comm: str = "x", **more: Any) -> ProcessIdentity:
    """A process of which only what matters to the test is known."""
    more.setdefault("parent_pid", 1)
    return ProcessIdentity(key=ProcessKey(pid, start_time), uid=uid, comm=comm, **more)
