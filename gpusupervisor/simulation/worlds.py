"""Machines that differ from a desktop with a GeForce, each as the real one answers: by name, for tests and the demo.

Sources: recordings in issues of nvtop, nvitop, gpustat, nvidia-settings and other projects, nvml.h, and the libraries
in Debian's archive for which functions an old driver has.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gpusupervisor.simulation.nvml import GIB, MIB, Board, Card, SimulatedCard, SimulatedGpu, SimulatedProcess
from gpusupervisor.simulation.recorded import load

NOT_SUPPORTED = 3
NO_POWER = (
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetPowerManagementLimitConstraints",
)
NO_SENSORS = (
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTotalEnergyConsumption",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMarginTemperature",
)
LISTS = tuple(f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute"))
PASSIVE = Board(fan_count=0, offset_ranges={})
LAPTOP_PCI = "0000:01:00.0"


def _refused(*functions: str) -> dict[str, int]:
    return dict.fromkeys(functions, NOT_SUPPORTED)


def _uuid(number: int) -> str:
    return f"GPU-{number:08x}-2222-3333-4444-555555555555"


def _spark() -> Card:
    """DGX Spark (GB10): one memory for CPU and GPU; its size and what is free of it is not NVML's to tell."""
    board = replace(PASSIVE, power_range=None, temperature=36, power=3_000, slowdown=None, shutdown=None,
                    architecture=10, lockable=["graphics"])  # fmt: skip
    gpu = SimulatedGpu(
        _uuid(1), "NVIDIA GB10", "0000000F:01:00.0", total=0, reserved=0, unified="not-supported", addressing=2,
        board=board, errors=_refused(*NO_POWER),
    )  # fmt: skip
    return Card([gpu], "580.126.09", host_memory=(int(119.7 * GIB), 9 * GIB))


def _orin() -> Card:
    """Jetson Orin: NVML enumerates the GPU and answers next to nothing; its UUID has no prefix, its bus no address."""
    board = replace(PASSIVE, power_range=None, slowdown=None, shutdown=None, lockable=[], persistence_supported=False)
    gpu = SimulatedGpu(
        "54da98cb-eff5-521f-9741-33a3c6b86d82", "Orin (nvgpu)", "00000000:00:00.0", total=0, reserved=0,
        unified="not-supported", utilization_supported=False, board=board,
        errors=_refused(
            *NO_POWER, *NO_SENSORS, *LISTS, "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPersistenceMode",
            "nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetPerformanceState",
            "nvmlDeviceGetArchitecture", "nvmlDeviceGetCurrentClocksEventReasons",
            "nvmlDeviceGetCurrentClocksThrottleReasons",
        ),
    )  # fmt: skip
    return Card([gpu], "540.4.0", host_memory=(int(61.3 * GIB), 6 * GIB))


def _gh200() -> Card:
    """GH200: its memory is a NUMA node of Linux, on which pages stay when a process has ended."""
    board = replace(PASSIVE, power_range=(200_000, 900_000), power_default=900_000, power=120_000, architecture=9)
    gpu = SimulatedGpu(
        _uuid(3), "NVIDIA GH200 480GB", "00000009:01:00.0", total=97_871 * MIB, reserved=604 * MIB,
        other_used=5_200 * MIB, addressing=2, board=board,
    )  # fmt: skip
    return Card([gpu], "580.65.06")


def _wsl2() -> Card:
    """A guest of Windows: no kernel module, no sizes of processes, PIDs that are not this system's."""
    board = Board(fan_count=0, power_range=(5_000, 80_000), power_default=80_000, power_settable=False,
                  offset_ranges={}, lockable=[])  # fmt: skip
    gpu = SimulatedGpu(
        _uuid(4), "NVIDIA GeForce RTX 4070 Laptop GPU", total=8_188 * MIB, reserved=226 * MIB, other_used=1_500 * MIB,
        utilization_supported=False, sizes_told=False, board=board,
        processes=[SimulatedProcess(1, None, ("graphics",)), SimulatedProcess(3210, None)],
    )  # fmt: skip
    return Card([gpu], "566.36", windows=True, unprivileged=True)


def _mig_unprivileged() -> Card:
    """An A100 with MIG, and nobody who may see the whole of it."""
    board = replace(PASSIVE, power_range=(100_000, 400_000), power_default=400_000, architecture=7)
    gpu = SimulatedGpu(
        _uuid(5), "NVIDIA A100-SXM4-40GB", "00000000:07:00.0", total=40_960 * MIB, reserved=583 * MIB, mig=True,
        processes=[SimulatedProcess(2100, 5_000 * MIB)], board=board,
    )  # fmt: skip
    return Card([gpu], "550.163.01", unprivileged=True)


def _vgpu() -> Card:
    """A share of a card in a virtual machine: memory and processes, and nothing of power, fans and temperature."""
    board = replace(PASSIVE, power_range=None, slowdown=None, shutdown=None, lockable=[])
    gpu = SimulatedGpu(
        _uuid(6), "GRID A100D-20C", "00000000:02:00.0", total=20_480 * MIB, reserved=0, other_used=1_800 * MIB,
        board=board, errors=_refused(*NO_POWER, *NO_SENSORS),
    )  # fmt: skip
    return Card([gpu], "550.163.01")


def _tesla_no_fans() -> Card:
    """A passively cooled Tesla P40: no fans, no energy, no locked clocks."""
    board = replace(PASSIVE, power_range=(125_000, 250_000), power_default=250_000, architecture=4, slowdown=95,
                    shutdown=98, lockable=[])  # fmt: skip
    gpu = SimulatedGpu(
        _uuid(7), "Tesla P40", "00000000:03:00.0", total=23_040 * MIB, reserved=450 * MIB, board=board,
        errors=_refused("nvmlDeviceGetTotalEnergyConsumption"),
    )  # fmt: skip
    return Card([gpu], "535.261.03")


def _laptop_dgpu() -> Card:
    """The second GPU of a laptop: it sleeps when it may, and has neither fans nor a power limit to set."""
    board = replace(PASSIVE, power_range=None, slowdown=98, shutdown=101, architecture=7)
    gpu = SimulatedGpu(
        _uuid(8), "NVIDIA GeForce RTX 3060 Laptop GPU", f"0000{LAPTOP_PCI}", total=6_144 * MIB, reserved=190 * MIB,
        board=board, errors=_refused(*NO_POWER),
    )  # fmt: skip
    return Card([gpu], "580.95.05")


def _old_470() -> Card:
    """A GTX 970 with the last driver for Kepler: one memory figure less, fans that are not counted."""
    board = Board(fan_count=1, power_range=(100_000, 180_000), power_default=151_000, architecture=3, slowdown=91,
                  shutdown=96, offset_ranges={}, lockable=[])  # fmt: skip
    return Card(
        [SimulatedGpu(_uuid(9), "NVIDIA GeForce GTX 970", total=4_040 * MIB, reserved=0, board=board)], "470.256.02"
    )


def _old_390() -> Card:
    """A Quadro K4000 with the oldest driver that there is for current kernels: lists of the first version."""
    board = Board(
        fan_count=1, power_range=None, architecture=2, slowdown=95, shutdown=100, offset_ranges={}, lockable=[]
    )
    gpu = SimulatedGpu(
        _uuid(10), "Quadro K4000", total=3_017 * MIB, reserved=0, board=board,
        errors=_refused(*NO_POWER, "nvmlDeviceGetProcessUtilization", "nvmlDeviceGetTotalEnergyConsumption"),
    )  # fmt: skip
    return Card([gpu], "390.157")


WORLDS: Mapping[str, Callable[[], Card]] = {
    "spark": _spark,
    "orin": _orin,
    "gh200": _gh200,
    "wsl2": _wsl2,
    "mig-unprivileged": _mig_unprivileged,
    "vgpu": _vgpu,
    "tesla-no-fans": _tesla_no_fans,
    "laptop-dgpu": _laptop_dgpu,
    "old-470": _old_470,
    "old-390": _old_390,
}


def lay_out(directory: Path, name: str) -> SimulatedCard:
    """Write the card directory of a world, its sysfs included where something of it shows there.

    name: of WORLDS, or a file that gpusupervisorctl record-card has written. Raises OSError, ValueError and KeyError
    for what is neither.
    """
    card = SimulatedCard(directory)
    card.write(WORLDS[name]() if name in WORLDS else load(Path(name)))
    if name == "laptop-dgpu":
        _write_sysfs(directory / "sysfs", LAPTOP_PCI, (("runtime_status", "active"), ("control", "auto")))
    return card


def _write_sysfs(root: Path, pci: str, power: Iterable[tuple[str, str]]) -> None:
    """A device of the nvidia driver under runtime power management."""
    device, driver = root / pci, root.parent / "drivers" / "nvidia"
    (device / "power").mkdir(parents=True, exist_ok=True)
    driver.mkdir(parents=True, exist_ok=True)
    (device / "vendor").write_text("0x10de\n")
    (device / "class").write_text("0x030200\n")
    for name, word in power:
        (device / "power" / name).write_text(f"{word}\n")
    if not (device / "driver").is_symlink():
        (device / "driver").symlink_to(driver)
