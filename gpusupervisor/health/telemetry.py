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
            "new telemetry and learned facts are only kept in memory; what is already stored is not affected",
            "free space on the disk, or let the service write into the directory; it keeps trying",
        )
    if status.losing or status.late:
        return Check(
            "telemetry",
            "degraded",
            f"the disk is too slow for what is to be written to {status.path}",
            "telemetry has gaps; learned facts are not lost, but may be stored late",
            "find out what keeps the disk busy (iotop), or check for disk errors (journalctl -k)",
        )
    if status.set_aside:
        return Check(
            "telemetry",
            "degraded",
            "the telemetry store was damaged and has been replaced",
            "older telemetry is not available; learned facts were carried over as far as they could be read",
            f"the damaged file was kept: examine {status.set_aside} with sqlite3, or delete it; it may indicate "
            "a failing disk. This check is ok again after a restart of the service",
        )
    return Check("telemetry", "ok", "telemetry is stored")
