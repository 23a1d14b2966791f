"""A clock that is set by hand, and a sysfs of our own."""

from pathlib import Path

SECOND = 1_000_000


class HandClock:
    """A domain clock that moves when told to."""

    def __init__(self, now: int = 1000 * SECOND) -> None:
        self.instant = now

    def now(self) -> int:
        return self.instant

    def realtime(self, instant: int) -> int:
        return 1_800_000_000 * SECOND + instant

    def advance(self, seconds: float) -> None:
        self.instant += int(seconds * SECOND)


class FakeSysfs:
    """/sys with PCI devices in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "bus/pci/devices"
        self.root.mkdir(parents=True)
        self.module = folder / "module/nvidia"

    def add(
        self,
        pci: str = "0000:01:00.0",
        status: str = "active",
        control: str = "auto",
        *,
        vendor: str = "0x10de",
        device_class: str = "0x030000",
        driver: str = "nvidia",
    ) -> None:
        device = self.root / pci
        (device / "power").mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{device_class}\n")
        (device / "power/control").write_text(f"{control}\n")
        self.set_status(pci, status)
        if driver:
            target = self.root.parent / "drivers" / driver
            target.mkdir(parents=True, exist_ok=True)
            (device / "driver").symlink_to(target)

    def set_status(self, pci: str, status: str) -> None:
        (self.root / pci / "power/runtime_status").write_text(f"{status}\n")

    def set_module_version(self, version: str) -> None:
        self.module.mkdir(parents=True, exist_ok=True)
        (self.module / "version").write_text(f"{version}\n")
