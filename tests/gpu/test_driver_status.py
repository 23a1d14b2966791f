"""One fault, one remedy: what is decided from NVML's answer and from what the file systems tell."""

from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from gpusupervisor.gpu import driver_status
from gpusupervisor.gpu.driver_access import DeviceAccess
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.monitor import GpuMonitor
from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.gpu.reader import NvmlReader
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.health.driver import check_driver, check_gpus
from gpusupervisor.simulation.nvml import SimulatedGpu, World, installed
from tests.gpu.machine import HandClock

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
POLICY = DeviceAccess(True, True, "policy", "/dev/nvidiactl: Operation not permitted")


@pytest.mark.parametrize("code", [4, 9, 17, 999])
@pytest.mark.parametrize(
    ("access", "says"),
    [
        (POLICY, "systemctl restart gpusupervisor"),
        (DeviceAccess(True, True, "mode", "/dev/nvidiactl: Permission denied"), "ls -l /dev/nvidia*"),
        (DeviceAccess(True, True, "other", "/dev/nvidiactl: Input/output error"), "journalctl -k"),
        (DeviceAccess(True, False), "nvidia-modprobe -c 0 -u"),
        (
            DeviceAccess(refusal="policy", detail="/dev/dxg: Operation not permitted", windows=True),
            "DeviceAllow=/dev/dxg",
        ),
    ],
    ids=["policy", "mode", "input/output error", "no node", "WSL2"],
)
def test_a_node_that_cannot_be_opened_is_denied_whatever_nvml_answers(
    code: int, access: DeviceAccess, says: str
) -> None:
    status = driver_status.of_error(DriverError("nvmlInit", code), access)
    assert status.state == "denied"
    assert says in status.remedy
    assert access.detail in status.detail


@pytest.mark.parametrize("access", [DeviceAccess(True, True), DeviceAccess()])
def test_a_node_that_can_be_opened_is_not_blamed(access: DeviceAccess) -> None:
    for code in (9, 999):
        status = driver_status.of_error(DriverError("nvmlInit", code), access)
        assert status.state != "denied"
        assert "DeviceAllow" not in status.remedy
        assert "nvidia-modprobe" not in status.remedy


def test_a_guest_of_windows_without_the_library_is_sent_to_windows() -> None:
    status = driver_status.of_error(DriverError("nvmlInit", 12), DeviceAccess(windows=True))
    assert (status.state, "in Windows" in status.remedy) == ("missing", True)


@pytest.mark.parametrize(
    ("code", "says", "not_says"),
    [
        (15, "fallen off the bus", "DeviceAllow"),
        (16, "--gpu-reset", "DeviceAllow"),
        (8, "power cables", "DeviceAllow"),
        (11, "interrupts", "DeviceAllow"),
        (19, "virtual machine", "DeviceAllow"),
        (4, "DeviceAllow", "reboot"),
        (17, "DeviceAllow", "reboot"),
        (999, "journalctl -k", "DeviceAllow"),
    ],
)
def test_a_gpu_that_cannot_be_opened_has_the_remedy_of_its_cause_alone(code: int, says: str, not_says: str) -> None:
    error = DriverError("nvmlDeviceGetHandleByIndex", code)
    for remedy in (driver_status.remedy_of(error), driver_status.healthy("580", (error,)).remedy):
        assert says in remedy
        assert not_says not in remedy


@pytest.mark.parametrize(
    "lose", [lambda gpu: setattr(gpu, "lost", True), lambda gpu: gpu.errors.update(nvmlDeviceGetMemoryInfo_v2=15)]
)
async def test_of_two_gpus_the_lost_one_comes_with_what_to_do_about_it(
    tmp_path: Path, lose: Callable[[SimulatedGpu], None]
) -> None:
    clock = HandClock()
    with installed(World([SimulatedGpu(A), SimulatedGpu(B, pci="00000000:02:00.0")])) as world:
        monitor = GpuMonitor(NvmlReader(clock), NvmlThread(clock), clock, sysfs_root=tmp_path)
        await monitor.sample()
        lose(world.gpus[1])
        sample = await monitor.sample()
        await monitor.close()
    well, lost = check_gpus(sample)
    assert (well.state, lost.state) == ("ok", "failed")
    assert "reboot" in lost.remedy
    assert "DeviceAllow" not in lost.remedy + check_driver(sample).remedy
    assert lost.remedy == sample.gpus[1].remedy


async def test_a_driver_that_is_installed_in_the_place_of_the_loaded_one_is_noticed(tmp_path: Path) -> None:
    clock = HandClock()
    with installed(World([SimulatedGpu(A)], driver="535.261.03")) as world:
        monitor = GpuMonitor(NvmlReader(clock), NvmlThread(clock), clock, sysfs_root=tmp_path)
        samples: list[Sample] = [await monitor.sample()]
        world.install_driver("550.163.01")
        clock.advance(31)
        samples.append(await monitor.sample())
        await monitor.close()
    before, after = map(check_driver, samples)
    assert before.state == "ok"
    assert after.state == "degraded"
    assert "550.163.01" in after.summary
    assert "535.261.03" in after.summary
    assert "New CUDA programs fail" in after.impact
    assert [gpu.state for gpu in samples[1].gpus] == ["ok"]


@pytest.mark.parametrize("driver", ["470.256.02", "525.147.05", "550.163.01"])
async def test_a_mismatch_names_both_versions_although_old_libraries_tell_theirs_only_once_initialised(
    tmp_path: Path, driver: str
) -> None:
    clock = HandClock()
    with installed(World([SimulatedGpu(A)], driver=driver)) as world:
        world.kernel_driver = "555.42.02"
        monitor = GpuMonitor(NvmlReader(clock), NvmlThread(clock), clock, sysfs_root=tmp_path / "bus/pci/devices")
        (tmp_path / "module/nvidia").mkdir(parents=True)
        (tmp_path / "module/nvidia/version").write_text("555.42.02\n")
        status = (await monitor.sample()).driver
        await monitor.close()
    assert status.state == "mismatch"
    assert f"library {driver}, kernel module 555.42.02" in status.detail


async def test_a_device_policy_that_forbids_the_driver_is_told_although_nvml_says_unknown_error(tmp_path: Path) -> None:
    clock = HandClock()
    with installed(World([SimulatedGpu(A)])) as world:
        world.refusal = "policy"
        monitor = GpuMonitor(NvmlReader(clock), NvmlThread(clock), clock, sysfs_root=tmp_path)
        sample = await monitor.sample()
        assert pynvml.NVML_ERROR_UNKNOWN == 999
        assert sample.driver.state == "denied"
        assert "DeviceAllow=" in check_driver(sample).remedy
        world.refusal = ""
        clock.advance(2)
        assert (await monitor.sample()).driver.state == "ok"
        await monitor.close()
