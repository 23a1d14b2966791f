"""The driver's state in words: what failed, what that breaks, and what to do. The only place that decides a remedy."""

from collections.abc import Mapping

from gpusupervisor.gpu.driver_access import DeviceAccess
from gpusupervisor.gpu.errors import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    IMPLAUSIBLE,
    IN_USE,
    INSUFFICIENT_POWER,
    IRQ_ISSUE,
    LIB_RM_VERSION_MISMATCH,
    LIBRARY_NOT_FOUND,
    MIG_HIDES,
    NO_PERMISSION,
    NOT_SUPPORTED,
    OPERATING_SYSTEM,
    RESET_REQUIRED,
    UNKNOWN_ERROR,
    DriverError,
)
from gpusupervisor.gpu.sample import DriverStatus

BLIND = "GPU memory cannot be read, so starved tenants are not noticed and nothing is released."
NEW_PROGRAMS_FAIL = "New CUDA programs fail, too."
RELOAD = (
    "reboot, or stop all GPU programs and reload the module "
    "(modprobe -r nvidia_uvm nvidia_drm nvidia_modeset nvidia, then modprobe nvidia)."
)
PERSISTS = "The supervisor keeps trying. If this persists, check journalctl -k for NVRM and Xid messages, then reboot."

STARTING = DriverStatus("starting", "The driver has not been asked yet")
ASLEEP = DriverStatus("asleep", "Every NVIDIA GPU is asleep or left alone so that it can sleep; NVML is closed")
NO_GPU = DriverStatus(
    "no-gpu",
    "The NVIDIA driver works but has no GPU",
    "There is nothing to supervise.",
    "If a GPU is installed, check lspci, and journalctl -k for NVRM messages.",
)
UNSEEN = DeviceAccess()
_DENIABLE = frozenset({NO_PERMISSION, OPERATING_SYSTEM, DRIVER_NOT_LOADED, UNKNOWN_ERROR})
"""What nvmlInit answers when it cannot open a device node."""
_REMEDIES: Mapping[int, str] = {
    GPU_IS_LOST: "Check journalctl -k for Xid messages (79: it has fallen off the bus). A lost GPU needs a reboot; "
    "when it is lost again, check its power cables, its seat in the slot and its cooling.",
    RESET_REQUIRED: "Stop all programs that use the GPU and run nvidia-smi --gpu-reset, or reboot.",
    INSUFFICIENT_POWER: "Connect the GPU's external power cables, then reboot.",
    IRQ_ISSUE: "Check journalctl -k: the kernel does not receive the GPU's interrupts. A newer BIOS, or booting with "
    "pci=noaer or another slot, may help.",
    IN_USE: "Another driver or a virtual machine uses the GPU: end that, or leave the GPU to it.",
    NO_PERMISSION: "Allow the user gpusupervisor to read and write the GPU's device node (ls -l /dev/nvidia*), and "
    "check DeviceAllow= in the unit: systemctl cat gpusupervisor.",
    MIG_HIDES: "A GPU with MIG is not supervised. To have it supervised as one GPU, disable MIG: stop its programs and "
    "run nvidia-smi -i GPU -mig 0 as root.",
    NOT_SUPPORTED: "Nothing can be done about it but another driver: this one does not provide it for this GPU.",
    FUNCTION_NOT_FOUND: "Update the NVIDIA driver: gpusupervisor.service(8) lists what each release lacks.",
    IMPLAUSIBLE: "The supervisor keeps trying. If this persists, update the NVIDIA driver, or report it with what "
    "gpusupervisorctl record-card writes.",
}


def remedy_of(error: DriverError) -> str:
    """What to do about an error that is not of the driver as a whole."""
    code = NO_PERMISSION if error.code == OPERATING_SYSTEM else error.code
    return _REMEDIES.get(code, PERSISTS)


def healthy(version: str, unreachable: tuple[DriverError, ...], installed: str = "") -> DriverStatus:
    """The driver works; GPUs that cannot be opened are named by what NVML said.

    installed: version of the library that new processes load; empty when unknown.
    """
    if unreachable:
        return DriverStatus(
            "ok",
            f"{len(unreachable)} GPU(s) cannot be opened: {unreachable[0]}",
            "Those GPUs are not supervised; the others are.",
            remedy_of(unreachable[0]),
            version,
        )
    if installed and installed != version:
        return DriverStatus(
            "ok",
            f"Driver {version} is loaded, but {installed} has been installed in its place",
            f"What runs goes on. {NEW_PROGRAMS_FAIL}",
            f"To use the new driver, {RELOAD}",
            version,
        )
    return DriverStatus("ok", version=version)


def failing(detail: str, version: str = "", remedy: str = PERSISTS) -> DriverStatus:
    """The driver answers with errors that a new initialisation may cure."""
    return DriverStatus("failing", detail, BLIND, remedy, version)


def unreadable(error: DriverError, version: str) -> DriverStatus:
    """The driver works, and no GPU can be read."""
    detail, remedy = f"No GPU can be read: {error}", remedy_of(error)
    if error.error_class == "permission":
        return DriverStatus("denied", detail, BLIND, remedy, version)
    return failing(detail, version, remedy)


def unresponsive(detail: str, version: str = "") -> DriverStatus:
    """A call has not returned."""
    return DriverStatus(
        "unresponsive",
        detail,
        BLIND,
        "A driver that hangs seldom recovers: check journalctl -k for Xid messages, stop GPU programs, then reboot.",
        version,
    )


def of_error(error: DriverError, access: DeviceAccess = UNSEEN, *, library: str = "", module: str = "") -> DriverStatus:
    """The state that an error at initialisation means.

    access: what the file systems tell. library, module: versions of libnvidia-ml and of the kernel module where known.
    """
    if error.code == LIBRARY_NOT_FOUND:
        return _no_library(error, access)
    if error.code == LIB_RM_VERSION_MISMATCH:
        return _mismatch(error, library, module)
    if error.code in _DENIABLE and error.function.startswith("nvmlInit"):
        found = _denied(error, access)
        if found is not None:
            return found
    if error.code == DRIVER_NOT_LOADED:
        return _missing(
            error, "Load the kernel module: modprobe nvidia. If that fails, build it for this kernel (dkms status)."
        )
    if error.error_class == "permission":
        return DriverStatus("denied", str(error), BLIND, remedy_of(error))
    return failing(str(error), remedy=remedy_of(error))


def _denied(error: DriverError, access: DeviceAccess) -> DriverStatus | None:
    """The state when the device node is missing or cannot be opened; None when that is not the cause."""
    if access.refusal and access.windows:
        remedy = (
            "This is a WSL2 guest: allow the service its GPU with a drop-in (systemctl edit gpusupervisor): "
            "[Service] DeviceAllow=/dev/dxg rw"
        )
    elif access.refusal == "policy":
        remedy = (
            "The unit's device policy forbids it: check DeviceAllow= (systemctl cat gpusupervisor), then "
            "systemctl restart gpusupervisor."
        )
    elif access.refusal == "mode":
        remedy = "Allow the user gpusupervisor to read and write the driver's device nodes (ls -l /dev/nvidia*)."
    elif access.refusal:
        remedy = "Check journalctl -k for NVRM messages, and that /dev/nvidiactl is the driver's device node."
    elif access.module and not access.node:
        return DriverStatus(
            "denied",
            f"{error}: there is no /dev/nvidiactl",
            BLIND,
            "Create the driver's device nodes: run nvidia-modprobe -c 0 -u, or nvidia-smi once, as root.",
        )
    else:
        return None
    return DriverStatus("denied", f"{error} ({access.detail})", BLIND, remedy)


def _no_library(error: DriverError, access: DeviceAccess) -> DriverStatus:
    if access.windows:
        return _missing(
            error,
            "This is a WSL2 guest: install NVIDIA's driver in Windows, and see that ldconfig knows /usr/lib/wsl/lib.",
        )
    return _missing(error, "Install the NVIDIA driver with its library libnvidia-ml.so.1 (Debian: libnvidia-ml1).")


def _missing(error: DriverError, remedy: str) -> DriverStatus:
    return DriverStatus("missing", str(error), BLIND, f"{remedy} The supervisor tries again every minute.")


def _mismatch(error: DriverError, library: str, module: str) -> DriverStatus:
    versions = f" (library {library or 'unknown'}, kernel module {module or 'unknown'})" if library or module else ""
    return DriverStatus(
        "mismatch",
        f"{error}{versions}",
        f"{BLIND} {NEW_PROGRAMS_FAIL}",
        f"The driver was upgraded while it was running: {RELOAD}",
    )
