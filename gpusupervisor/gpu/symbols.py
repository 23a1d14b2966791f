"""The functions of libnvidia-ml that are used, the first driver release with each, and what its absence costs.

Sources: the nvml.h that NVIDIA/nvidia-settings bundled with each release, and the libraries in Debian's archive.
"""

import re
from typing import NamedTuple

EVERY = ""
"""In every driver from 390 on."""


class Symbol(NamedTuple):
    """One function."""

    name: str
    """In C."""
    since: str
    """First driver release with it."""
    without: str
    """What is missing where it is missing."""
    otherwise: str = ""
    """The function that is called instead."""


SYMBOLS = (
    Symbol("nvmlInitWithFlags", EVERY, "everything"),
    Symbol("nvmlShutdown", EVERY, "everything"),
    Symbol("nvmlErrorString", EVERY, "nothing"),
    Symbol("nvmlSystemGetDriverVersion", EVERY, "the driver's version"),
    Symbol("nvmlSystemGetNVMLVersion", EVERY, "the library's version"),
    Symbol("nvmlDeviceGetCount_v2", EVERY, "everything"),
    Symbol("nvmlDeviceGetHandleByIndex_v2", EVERY, "everything"),
    Symbol("nvmlDeviceGetHandleByPciBusId_v2", EVERY, "GPUs beside one that sleeps"),
    Symbol("nvmlDeviceGetUUID", EVERY, "everything"),
    Symbol("nvmlDeviceGetName", EVERY, "the GPU's name"),
    Symbol("nvmlDeviceGetPciInfo_v3", EVERY, "whether a GPU sleeps"),
    Symbol("nvmlDeviceGetArchitecture", "450.51", "knowing beforehand that clocks cannot be locked"),
    Symbol(
        "nvmlDeviceGetAddressingMode", "580.65", "nothing: GPUs whose memory Linux manages are known by their names"
    ),
    Symbol("nvmlDeviceGetMemoryInfo", EVERY, "memory"),
    Symbol("nvmlDeviceGetMemoryInfo_v2", "510.39", "the driver's own share of the memory", "nvmlDeviceGetMemoryInfo"),
    *(
        symbol
        for kind in ("Compute", "Graphics", "MPSCompute")
        for symbol in (
            Symbol(f"nvmlDeviceGet{kind}RunningProcesses", EVERY, "processes"),
            Symbol(
                f"nvmlDeviceGet{kind}RunningProcesses_v2", "450.66", "nothing", f"nvmlDeviceGet{kind}RunningProcesses"
            ),
            Symbol(
                f"nvmlDeviceGet{kind}RunningProcesses_v3",
                "510.39",
                "nothing",
                f"nvmlDeviceGet{kind}RunningProcesses_v2",
            ),
        )
    ),
    Symbol("nvmlDeviceGetProcessUtilization", EVERY, "the work of each process on the GPU"),
    Symbol("nvmlDeviceGetUtilizationRates", EVERY, "the GPU's utilization"),
    Symbol("nvmlDeviceGetMigMode", "450.51", "knowing that MIG is enabled (older drivers have no MIG)"),
    Symbol("nvmlDeviceGetPowerUsage", EVERY, "power"),
    Symbol("nvmlDeviceGetTotalEnergyConsumption", EVERY, "energy"),
    Symbol("nvmlDeviceGetTemperature", EVERY, "temperature"),
    Symbol("nvmlDeviceGetTemperatureV", "565.57", "nothing", "nvmlDeviceGetTemperature"),
    Symbol("nvmlDeviceGetTemperatureThreshold", EVERY, "the temperatures at which it slows down and shuts down"),
    Symbol("nvmlDeviceGetMarginTemperature", "570.86", "these temperatures on Ada and later"),
    Symbol("nvmlDeviceGetFieldValues", EVERY, "these temperatures on Ada and later"),
    Symbol("nvmlDeviceGetFanSpeed", EVERY, "fans"),
    Symbol("nvmlDeviceGetFanSpeed_v2", "418.30", "fans beyond the first", "nvmlDeviceGetFanSpeed"),
    Symbol("nvmlDeviceGetNumFans", "510.39", "nothing: fans are counted by reading them", "nvmlDeviceGetFanSpeed_v2"),
    Symbol("nvmlDeviceGetMinMaxFanSpeed", "515.43", "setting fans"),
    Symbol("nvmlDeviceSetFanSpeed_v2", "515.43", "setting fans"),
    Symbol("nvmlDeviceSetDefaultFanSpeed_v2", "515.43", "setting fans"),
    Symbol("nvmlDeviceGetTargetFanSpeed", "520.56", "reading back which fan speed was set"),
    Symbol("nvmlDeviceGetFanControlPolicy_v2", "520.56", "reading back whether a fan is automatic"),
    Symbol("nvmlDeviceGetFanSpeedRPM", "565.57", "revolutions of the fans"),
    Symbol("nvmlDeviceGetPowerManagementLimit", EVERY, "the power limit"),
    Symbol("nvmlDeviceGetPowerManagementDefaultLimit", EVERY, "the power limit's default"),
    Symbol("nvmlDeviceGetPowerManagementLimitConstraints", EVERY, "the power limit"),
    Symbol("nvmlDeviceGetEnforcedPowerLimit", EVERY, "knowing that less than the power limit is enforced"),
    Symbol("nvmlDeviceSetPowerManagementLimit", EVERY, "setting the power limit"),
    Symbol("nvmlDeviceGetClockOffsets", "555.42", "clock offsets"),
    Symbol("nvmlDeviceSetClockOffsets", "555.42", "clock offsets"),
    Symbol("nvmlDeviceSetGpuLockedClocks", "415.13", "locking the graphics clock"),
    Symbol("nvmlDeviceResetGpuLockedClocks", "415.13", "locking the graphics clock"),
    Symbol("nvmlDeviceSetMemoryLockedClocks", "465.19", "locking the memory clock"),
    Symbol("nvmlDeviceResetMemoryLockedClocks", "465.19", "locking the memory clock"),
    Symbol("nvmlDeviceGetMaxClockInfo", EVERY, "locking clocks"),
    Symbol("nvmlDeviceGetClockInfo", EVERY, "clocks"),
    Symbol("nvmlDeviceGetPerformanceState", EVERY, "the performance state"),
    Symbol("nvmlDeviceGetCurrentClocksEventReasons", "535.43", "nothing", "nvmlDeviceGetCurrentClocksThrottleReasons"),
    Symbol("nvmlDeviceGetCurrentClocksThrottleReasons", EVERY, "what holds the clocks down"),
    Symbol("nvmlDeviceGetPersistenceMode", EVERY, "persistence mode"),
    Symbol("nvmlDeviceSetPersistenceMode", EVERY, "persistence mode"),
    Symbol("nvmlEventSetCreate", EVERY, "Xid errors"),
    Symbol("nvmlEventSetFree", EVERY, "Xid errors"),
    Symbol("nvmlDeviceRegisterEvents", EVERY, "Xid errors"),
    Symbol("nvmlEventSetWait_v2", "450.51", "Xid errors"),
)
"""Everything that is called."""

_SINCE = {symbol.name: symbol.since for symbol in SYMBOLS}
_PHRASES = {
    "Init": "initialising NVML",
    "InitWithFlags": "initialising NVML",
    "Shutdown": "closing NVML",
    "DeviceGetCount": "counting the GPUs",
    "DeviceGetHandleByIndex": "opening a GPU",
    "DeviceGetHandleByPciBusId": "opening a GPU",
    "DeviceGetHandleByUUID": "opening a GPU",
    "DeviceGetMemoryInfo": "reading the memory",
    "DeviceGetComputeRunningProcesses": "listing the compute processes",
    "DeviceGetGraphicsRunningProcesses": "listing the graphics processes",
    "DeviceGetMPSComputeRunningProcesses": "listing the MPS processes",
    "DeviceGetNumFans": "counting the fans",
    "DeviceGetMinMaxFanSpeed": "reading the range of fan speeds",
    "DeviceSetDefaultFanSpeed": "setting a fan to automatic",
    "DeviceRegisterEvents": "registering for events",
}
_VERBS = {"Get": "reading the", "Set": "setting the", "Reset": "resetting the"}
_ACRONYMS = {"Mig": "MIG", "Pci": "PCI", "Gpu": "GPU", "Info": "information"}
_NAME = re.compile(r"nvml(?:Device|System)?(Get|Set|Reset)(\w+?)(?:_v\d+)?$")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]*")


def phrase(function: str) -> str:
    """What a call of a function does, for a person, e.g. "reading the power usage"."""
    bare = re.sub(r"_v\d+$", "", function.removeprefix("nvml"))
    if bare in _PHRASES:
        return _PHRASES[bare]
    match = _NAME.fullmatch(function)
    if match is None:
        return "asking the driver"
    words = (
        _ACRONYMS.get(word, word if len(word) > 1 and word.isupper() else word.lower())
        for word in _WORD.findall(match[2])
    )
    return f"{_VERBS[match[1]]} {' '.join(words)}"


def since(function: str) -> str:
    """First driver release that has a function, by its name in C or without its version; empty when not known."""
    return _SINCE.get(function, "")
