"""Whether an NVIDIA GPU sleeps, from sysfs alone: asking NVML would wake it."""

from dataclasses import dataclass
from pathlib import Path

SYSFS_PCI_DEVICES = Path("/sys/bus/pci/devices")
NVIDIA = "0x10de"
DISPLAY_CLASS = "0x03"
DRIVER = "nvidia"


@dataclass(frozen=True, slots=True)
class DevicePower:
    """Runtime power state of one GPU."""

    pci_bus_id: str
    runtime_status: str
    """active, suspended, suspending, resuming, or another word of the kernel; empty when not readable."""
    control: str
    """"auto": the kernel may suspend it when idle; "on": it stays awake; empty when not readable."""

    @property
    def asleep(self) -> bool:
        """To be left alone: asleep, or on the way there."""
        return self.runtime_status in ("suspended", "suspending")

    @property
    def managed(self) -> bool:
        """Under runtime power management, so that leaving it alone lets it sleep."""
        return self.control == "auto"


def find_devices(root: Path = SYSFS_PCI_DEVICES) -> tuple[str, ...]:
    """PCI bus ids of the NVIDIA GPUs that the nvidia driver has, in order.

    One that is handed to a virtual machine (vfio-pci) or to nouveau is none of ours, nor known to NVML.
    """
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return ()
    return tuple(entry.name for entry in entries if _is_ours(entry))


def read_power(root: Path, pci_bus_id: str) -> DevicePower:
    """Runtime power state of one device."""
    power = root / pci_bus_id / "power"
    return DevicePower(pci_bus_id, _word(power / "runtime_status"), _word(power / "control"))


def _is_ours(device: Path) -> bool:
    return (
        _word(device / "vendor") == NVIDIA
        and _word(device / "class").startswith(DISPLAY_CLASS)
        and (device / "driver").resolve().name == DRIVER
    )


def _word(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""
