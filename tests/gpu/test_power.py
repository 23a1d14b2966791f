from pathlib import Path

import pytest

from gpusupervisor.gpu.power import DevicePower, find_devices, read_power
from tests.gpu.machine import FakeSysfs


@pytest.fixture
def sysfs(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path)


def test_only_gpus_that_the_nvidia_driver_has_are_found(sysfs: FakeSysfs) -> None:
    sysfs.add("0000:02:00.0", device_class="0x030200")
    sysfs.add("0000:01:00.0")
    sysfs.add("0000:01:00.1", device_class="0x040300")
    sysfs.add("0000:03:00.0", vendor="0x1002", driver="amdgpu")
    sysfs.add("0000:04:00.0", driver="vfio-pci")
    sysfs.add("0000:05:00.0", driver="")
    assert find_devices(sysfs.root) == ("0000:01:00.0", "0000:02:00.0")


def test_a_machine_without_pci_has_none(tmp_path: Path) -> None:
    assert find_devices(tmp_path / "nowhere") == ()


@pytest.mark.parametrize(
    ("status", "asleep"),
    [("suspended", True), ("suspending", True), ("active", False), ("resuming", False), ("error", False)],
)
def test_a_gpu_that_sleeps_or_is_about_to_is_left_alone(sysfs: FakeSysfs, status: str, asleep: bool) -> None:
    sysfs.add(status=status)
    assert read_power(sysfs.root, "0000:01:00.0").asleep is asleep


def test_power_management_is_read(sysfs: FakeSysfs) -> None:
    sysfs.add(control="on")
    assert read_power(sysfs.root, "0000:01:00.0") == DevicePower("0000:01:00.0", "active", "on")
    assert not read_power(sysfs.root, "0000:01:00.0").managed


def test_a_device_that_has_gone_is_not_taken_for_asleep(sysfs: FakeSysfs) -> None:
    gone = read_power(sysfs.root, "0000:09:00.0")
    assert gone == DevicePower("0000:09:00.0", "", "")
    assert not gone.asleep
