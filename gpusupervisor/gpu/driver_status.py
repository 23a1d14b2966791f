"""The driver's state in words: what failed, what that breaks, and what to do."""

from gpusupervisor.gpu.errors import (
    DRIVER_NOT_LOADED,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    NO_PERMISSION,
    OPERATING_SYSTEM,
    UNKNOWN_ERROR,
    DriverError,
)
from gpusupervisor.gpu.sample import DriverStatus

BLIND = "GPU memory cannot be read, so starved tenants are not noticed and nothing is released."

STARTING = DriverStatus("starting", "The driver has not been asked yet")
ASLEEP = DriverStatus("asleep", "Every NVIDIA GPU is asleep or left alone so that it can sleep; NVML is closed")
NO_GPU = DriverStatus(
    "no-gpu",
    "The NVIDIA driver works but has no GPU",
    "There is nothing to supervise.",
    "If a GPU is installed, check lspci, and journalctl -k for NVRM messages.",
)


def healthy(version: str, unreachable: tuple[DriverError, ...]) -> DriverStatus:
    """The driver works; GPUs that cannot be opened are named by what NVML said."""
    if not unreachable:
        return DriverStatus("ok", version=version)
    return DriverStatus(
        "ok",
        f"{len(unreachable)} GPU(s) cannot be opened: {unreachable[0]}",
        "Those GPUs are not supervised; the others are.",
        "Check journalctl -k for NVRM messages and, if permission is denied, DeviceAllow= of the service.",
        version,
    )


def failing(detail: str, version: str = "") -> DriverStatus:
    """The driver answers with errors that a new initialisation may cure."""
    return DriverStatus(
        "failing",
        detail,
        BLIND,
        "The supervisor keeps trying. If this persists, check journalctl -k for NVRM and Xid messages, then reboot.",
        version,
    )


def unresponsive(detail: str, version: str = "") -> DriverStatus:
    """A call has not returned."""
    return DriverStatus(
        "unresponsive",
        detail,
        BLIND,
        "A driver that hangs seldom recovers: check journalctl -k for Xid messages, stop GPU programs, then reboot.",
        version,
    )


def of_error(error: DriverError, *, library: str = "", module: str = "") -> DriverStatus:
    """The state that an error at initialisation means.

    library, module: versions of libnvidia-ml and of the kernel module where known, for a mismatch.
    """
    if error.code in (LIBRARY_NOT_FOUND, DRIVER_NOT_LOADED):
        return _missing(error)
    if error.code == LIB_RM_VERSION_MISMATCH:
        return _mismatch(error, library, module)
    if error.code in (NO_PERMISSION, OPERATING_SYSTEM):
        return DriverStatus(
            "denied",
            str(error),
            BLIND,
            "The service must be able to open /dev/nvidiactl and /dev/nvidia*: check their mode and owner, and "
            "DeviceAllow= and PrivateDevices= of the unit.",
        )
    if error.code == UNKNOWN_ERROR:
        return failing(f"{error} (this happens if access to the device nodes is denied, and after resume)")
    return failing(str(error))


def _missing(error: DriverError) -> DriverStatus:
    if error.code == LIBRARY_NOT_FOUND:
        remedy = "Install the NVIDIA driver with its library libnvidia-ml.so.1 (Debian: libnvidia-ml1)."
    else:
        remedy = "Load the kernel module: modprobe nvidia. If that fails, build it for this kernel (dkms status)."
    return DriverStatus("missing", str(error), BLIND, f"{remedy} The supervisor tries again every minute.")


def _mismatch(error: DriverError, library: str, module: str) -> DriverStatus:
    versions = f" (library {library or 'unknown'}, kernel module {module or 'unknown'})" if library or module else ""
    return DriverStatus(
        "mismatch",
        f"{error}{versions}",
        f"{BLIND} New CUDA programs fail, too.",
        "The driver was upgraded while it was running: reboot, or stop all GPU programs and reload the module "
        "(modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia, then modprobe nvidia).",
    )
