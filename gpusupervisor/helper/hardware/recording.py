"""What every getter of the driver answers for each card, as JSON lines: from it a simulated card can be made.

    python -m gpusupervisor.helper.hardware.recording [--skip FUNCTION]...

Run by gpusupervisorctl record-card in a process of its own, because a getter may crash in the driver's library: what
was recorded before that is kept, and the line before the crash names the function. Nothing is set. What tells one
card or machine from another of its kind (UUID, serial numbers, names of processes) is left out.
"""

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from gpusupervisor.gpu.calls import ask, getters, has, initialise
from gpusupervisor.gpu.driver_access import files
from gpusupervisor.gpu.errors import FUNCTION_NOT_FOUND, DriverError, plain
from gpusupervisor.gpu.memory import MEMORY_V2
from gpusupervisor.gpu.symbols import SYMBOLS
from gpusupervisor.helper.hardware.handle import Handle
from gpusupervisor.helper.hardware.structures import CLOCK_TYPES, ClockOffset, FanSpeedInfo

FORMAT = 1
MASKED = frozenset({"nvmlDeviceGetUUID", "nvmlDeviceGetSerial", "nvmlDeviceGetPlatformInfo", "nvmlDeviceGetPdi"})
MOST = 32
"""Entries of an array that are kept."""
MOST_FANS = 8
THRESHOLDS = {0: "shutdown", 1: "slowdown"}
TLIMIT = {193: "shutdown", 194: "slowdown"}
KINDS = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}

Line = dict[str, object]
Read = Callable[[], object]


def record(skip: frozenset[str] = frozenset()) -> Iterator[Line]:
    """Every line; raises DriverError when there is no driver. skip: functions that are not called."""
    initialise()
    try:
        yield {
            "format": FORMAT,
            "driver": plain(ask("nvmlSystemGetDriverVersion")),
            "windows": files().access().windows,
            "host_memory": list(files().host_memory()),
            "missing": [symbol.name for symbol in SYMBOLS if not has(symbol.name)],
        }
        for index in range(ask("nvmlDeviceGetCount")):
            yield {"gpu": index}
            yield from _record_gpu(ask("nvmlDeviceGetHandleByIndex", index), skip)
    finally:
        ask("nvmlShutdown")


def _record_gpu(pointer: object, skip: frozenset[str]) -> Iterator[Line]:
    for name, read in (*_used(Handle(pointer)), *_others(pointer)):
        function = name.removeprefix("other ").partition(" ")[0]
        if function in skip or function in MASKED:
            continue
        yield {"asking": function}
        begun = time.perf_counter_ns()
        line: Line = {"call": name}
        try:
            line["value"] = read()
        except DriverError as error:
            line["error"] = error.code
        yield {**line, "us": (time.perf_counter_ns() - begun) // 1000}


def _used(handle: Handle) -> Iterator[tuple[str, Read]]:
    """What the supervisor and its helper call, by the names in C, with their arguments behind a blank."""

    def one(
        name: str, function: str, *arguments: object, take: Callable[[Any], object] = _as_it_is
    ) -> tuple[str, Read]:
        return name, lambda: take(handle.ask(function, *arguments))

    yield one("nvmlDeviceGetName", "nvmlDeviceGetName", take=plain)
    yield one("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo", take=lambda told: plain(_text(told.busId)))
    yield one("nvmlDeviceGetArchitecture", "nvmlDeviceGetArchitecture")
    yield one("nvmlDeviceGetAddressingMode", "nvmlDeviceGetAddressingMode")
    yield one("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo", MEMORY_V2,
              take=lambda told: [told.total, told.reserved, told.used, told.free])  # fmt: skip
    yield one(
        "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo", take=lambda told: [told.total, told.used, told.free]
    )
    for kind, part in KINDS.items():
        function = f"nvmlDeviceGet{part}RunningProcesses"
        yield one(f"{function}_v3 {kind}", function, take=_processes)
        yield one(f"{function}_v2 {kind}", f"{function}_v2", take=_processes)
    yield one("nvmlDeviceGetMigMode", "nvmlDeviceGetMigMode", take=list)
    yield one(
        "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetUtilizationRates", take=lambda told: [told.gpu, told.memory]
    )
    yield one("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessUtilization", 0,
              take=lambda told: [[each.pid, each.smUtil] for each in told][:MOST])  # fmt: skip
    yield one("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperature", 0)
    yield one("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperatureV", 0)
    yield one("nvmlDeviceGetMarginTemperature", "nvmlDeviceGetMarginTemperature")
    for number, word in THRESHOLDS.items():
        yield one(f"nvmlDeviceGetTemperatureThreshold {word}", "nvmlDeviceGetTemperatureThreshold", number)
    yield one("nvmlDeviceGetFieldValues", "nvmlDeviceGetFieldValues", list(TLIMIT), take=_margins)
    yield from _fans(handle)
    yield one("nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceGetPowerManagementLimitConstraints", take=list)
    for domain, number in CLOCK_TYPES.items():
        yield one(f"nvmlDeviceGetClockInfo {domain}", "nvmlDeviceGetClockInfo", number)
        yield one(f"nvmlDeviceGetMaxClockInfo {domain}", "nvmlDeviceGetMaxClockInfo", number)
        yield f"nvmlDeviceGetClockOffsets {domain}", partial(_offset, handle, ClockOffset.of(domain))
    yield one("nvmlDeviceGetSupportedPerformanceStates", "nvmlDeviceGetSupportedPerformanceStates", take=list)
    for name in (
        "PowerUsage", "TotalEnergyConsumption", "PowerManagementLimit", "PowerManagementDefaultLimit",
        "EnforcedPowerLimit", "PerformanceState", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons",
        "PersistenceMode", "SupportedEventTypes",
    ):  # fmt: skip
        yield one(f"nvmlDeviceGet{name}", f"nvmlDeviceGet{name}")


def _as_it_is(told: object) -> object:
    return told


def _fans(handle: Handle) -> Iterator[tuple[str, Read]]:
    yield "nvmlDeviceGetNumFans", lambda: handle.ask("nvmlDeviceGetNumFans")
    yield "nvmlDeviceGetFanSpeed", lambda: handle.ask("nvmlDeviceGetFanSpeed")
    yield "nvmlDeviceGetMinMaxFanSpeed", lambda: list(handle.ask("nvmlDeviceGetMinMaxFanSpeed"))
    for fan in range(MOST_FANS):
        if handle.try_ask("nvmlDeviceGetFanSpeed_v2", fan) is None and fan:
            return
        for function in ("nvmlDeviceGetFanSpeed_v2", "nvmlDeviceGetTargetFanSpeed", "nvmlDeviceGetFanControlPolicy_v2"):
            yield f"{function} {fan}", partial(handle.ask, function, fan)
        yield f"nvmlDeviceGetFanSpeedRPM {fan}", partial(_rpm, handle, FanSpeedInfo.of(fan))


def _others(pointer: object) -> Iterator[tuple[str, Read]]:
    """Every other getter that takes nothing but the handle: nothing here needs it, but a later version may."""
    known = {_unversioned(symbol.name) for symbol in SYMBOLS}
    for name in getters():
        if _unversioned(name) not in known:
            yield f"other {name}", partial(_other, name, pointer)


def _unversioned(name: str) -> str:
    return name.removesuffix("_v1").removesuffix("_v2").removesuffix("_v3")


def _other(name: str, pointer: object) -> object:
    """The answer of a getter of pynvml's that nobody here has tried; what it raises itself counts as no function."""
    try:
        return _shown(ask(name, pointer))
    except (TypeError, ValueError, AttributeError, ctypes.ArgumentError):
        raise DriverError(name, FUNCTION_NOT_FOUND) from None


def _offset(handle: Handle, told: ClockOffset) -> list[int]:
    handle.ask_c("nvmlDeviceGetClockOffsets", ctypes.byref(told))
    return [told.offset, told.minimum, told.maximum]


def _rpm(handle: Handle, told: FanSpeedInfo) -> int:
    handle.ask_c("nvmlDeviceGetFanSpeedRPM", ctypes.byref(told))
    return told.speed


def _processes(told: Sequence[Any]) -> list[list[object]]:
    return [[entry.pid, entry.usedGpuMemory] for entry in told][:MOST]


def _margins(told: Sequence[Any]) -> dict[str, int | None]:
    """Degrees relative to T.Limit by threshold; None where it is not told."""
    pairs = zip(TLIMIT.values(), told, strict=True)
    return {word: None if value.nvmlReturn else value.value.siVal for word, value in pairs}


def _text(value: bytes | str) -> str:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value


def _shown(value: object, depth: int = 0) -> object:
    """A value of pynvml as JSON has it."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, (str, bytes)):
        return plain(_text(value))
    if isinstance(value, (list, tuple, ctypes.Array)):
        return [_shown(each, depth + 1) for each in list(value)[:MOST]]
    if isinstance(value, ctypes.Structure) and depth < 4:
        return {field[0]: _shown(getattr(value, field[0]), depth + 1) for field in value._fields_}
    return type(value).__name__


def main(arguments: Sequence[str]) -> int:
    """Print the lines; 1 with the reason on standard error when there is no driver to be asked."""
    parser = argparse.ArgumentParser(prog="recording", description=__doc__)
    parser.add_argument("--skip", action="append", default=[], help="do not call this function")
    options = parser.parse_args(arguments)
    try:
        for line in record(frozenset(options.skip)):
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()
    except DriverError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
