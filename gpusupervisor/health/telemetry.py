"""Check of the telemetry store."""

from gpusupervisor.state import Check
from gpusupervisor.telemetry.status import StoreStatus


def check_telemetry(status: StoreStatus) -> Check:
    """Telemetry and what is learned can be stored, and the disk keeps up."""
    if status.state == "off":
        return Check("telemetry", "skipped", status.detail)
    if status.state == "opening":
        return Check("telemetry", "skipped", "the telemetry store is being opened")
    if status.state == "failing":
        return Check(
            "telemetry",
            "failed",
            f"{status.path} cannot be written: {status.detail}",
            "what is learned and measured now is kept in memory alone; what is stored already is not touched",
            "make room on the disk, or let the service write into the folder; it is tried again by itself",
        )
    if status.losing or status.late:
        return Check(
            "telemetry",
            "degraded",
            f"the disk does not keep up with what is to be written to {status.path}",
            "telemetry has gaps; what is learned is not lost, but may be stored late",
            "look for what keeps the disk busy (iotop), or for errors of the disk (journalctl -k)",
        )
    if status.set_aside:
        return Check(
            "telemetry",
            "degraded",
            "the telemetry store was damaged and a new one was begun",
            "older telemetry cannot be queried; what could be read of what was learned was carried over",
            f"the old file is kept: look at it with sqlite3, or delete {status.set_aside}; a damaged file may mean "
            "a failing disk. This note goes away when the service is restarted",
        )
    return Check("telemetry", "ok", "telemetry is stored")
