"""Checks of the services that do what the supervisor itself may not: the reader, and polkit."""

from collections.abc import Mapping

from gpusupervisor.foreign_text import harmless
from gpusupervisor.health.surroundings import PolkitSeen
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.state import Check
from gpusupervisor.tenants.census import Census

NAMED = 4
"""Processes that a check names."""


def check_reader(sight: Sight, census: Census) -> Check:
    """The reader provides what /proc hides of the processes that hold VRAM."""
    holders = {h.pid: h for tenant in census.tenants.values() for h in tenant.holders}
    holders |= {h.pid: h for account in census.gpus.values() for h in account.unmanaged}
    unseen = [
        f"{harmless(holder.identity.name, 32)} (PID {pid})"
        for pid, holder in sorted(holders.items())
        if holder.identity and holder.identity.hidden & {"executable", "working_directory"}
    ]
    if sight.state == "ok":
        return Check("reader", "ok", "the reader provides what /proc hides about other users' processes")
    if sight.state == "unasked" or not unseen:
        return Check("reader", "skipped", "nothing about the processes that hold VRAM is hidden from the supervisor")
    named = ", ".join(unseen[:NAMED]) + (" and others" if len(unseen) > NAMED else "")
    why, remedy = _READER_TROUBLE[sight.state]
    detail = f" ({sight.detail})" if sight.detail else ""
    return Check(
        "reader",
        "degraded",
        f"{why}{detail}, so the program, directory and ports of {named} could not be read",
        "a program that was started by hand may stay unmanaged, and an engine on an unusual port may not be reached",
        remedy,
    )


def check_polkit(seen: PolkitSeen) -> Check:
    """polkit answers who may change something; known from the bus and from its last answer, nobody is asked."""
    if seen.state == "unasked":
        return Check("polkit", "skipped", "polkit has not been looked for yet")
    if seen.state in ("answers", "startable"):
        how = "runs" if seen.state == "answers" else "is started on demand"
        return Check("polkit", "ok", f"polkit {how}")
    summary, remedy = _POLKIT_TROUBLE[seen.state]
    detail = f": {seen.detail}" if seen.detail else ""
    return Check(
        "polkit",
        "degraded" if seen.state == "missing" else "failed",
        f"{summary}{detail}",
        "only root can change anything: releases, loads, profiles and fans are refused to everybody else",
        remedy,
    )


_POLKIT_TROUBLE: Mapping[str, tuple[str, str]] = {
    "missing": ("polkit is not installed", "install it (Debian: polkitd), or make the calls as root"),
    "silent": (
        "polkit is running but does not answer",
        "systemctl restart polkit, and see journalctl -u polkit; one of its rules may hang",
    ),
    "refusing": (
        "polkit gave no answer when it was last asked",
        "run the service as its unit does, as the user gpusupervisor, with the installed policy "
        "org.gpusupervisor1.policy; see journalctl -u polkit",
    ),
}

_READER_TROUBLE: Mapping[str, tuple[str, str]] = {
    "missing": (
        "the reader is not there",
        "install it (with make install), and see systemctl status gpusupervisor-reader",
    ),
    "refused": (
        "the supervisor is not allowed to call the reader",
        "run the service as its unit does, as the user gpusupervisor, with the installed bus policy "
        "org.gpusupervisor1.Reader.conf; systemctl reload dbus reads it again",
    ),
    "failing": (
        "the reader fails",
        "see journalctl -u gpusupervisor-reader",
    ),
}
"""By the state of the sight: what is wrong, and what to do."""
