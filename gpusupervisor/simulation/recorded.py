"""A simulated card made from what `gpusupervisorctl record-card` wrote."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusupervisor.simulation.nvml import Board, Card, SimulatedGpu, SimulatedProcess

FUNCTION_NOT_FOUND, NOT_FOUND, NOT_SUPPORTED = 13, 6, 3
KINDS = {"compute": "Compute", "graphics": "Graphics", "mps": "MPSCompute"}
NO_STATE = 32
DERIVED = frozenset(
    {
        "nvmlDeviceGetFanSpeedRPM",
        "nvmlDeviceGetFanSpeed_v2",
        "nvmlDeviceGetTargetFanSpeed",
        "nvmlDeviceGetFanControlPolicy_v2",
        "nvmlDeviceGetClockOffsets",
        "nvmlDeviceGetTemperatureThreshold",
    }
)
"""Functions whose refusals follow from the board."""


class _Answers:
    """What one card answered."""

    def __init__(self, calls: Mapping[str, Mapping[str, Any]]) -> None:
        self._calls = calls

    def value(self, name: str, default: Any = None) -> Any:  # noqa: ANN401  (as JSON has it)
        return self._calls.get(name, {}).get("value", default)

    def code(self, name: str) -> int:
        """The nvmlReturn_t; 0 for success."""
        return int(self._calls.get(name, {}).get("error", 0))

    def refused(self) -> dict[str, int]:
        """Functions that answer an error whatever they are asked, by their names in C."""
        found = {}
        answered = {name.partition(" ")[0] for name, call in self._calls.items() if "value" in call}
        for name, call in self._calls.items():
            function = name.partition(" ")[0]
            if function in DERIVED or function in answered or function == "other" or "error" not in call:
                continue
            no_samples = function == "nvmlDeviceGetProcessUtilization" and call["error"] == NOT_FOUND
            if call["error"] != FUNCTION_NOT_FOUND and not no_samples:
                found[function] = call["error"]
        return found


def card_of(recording: Mapping[str, Any]) -> Card:
    """The card; raises KeyError for what is no recording."""
    gpus = [_gpu(number, _Answers(each["calls"])) for number, each in enumerate(recording["gpus"], 1)]
    held = sum(gpu.used() for gpu in gpus if gpu.unified)
    total, available = recording["host_memory"]
    return Card(
        gpus,
        recording["driver"],
        missing_symbols=list(recording["missing"]),
        windows=recording["windows"],
        host_memory=(total, max(0, total - available - held)),
    )


def load(file: Path) -> Card:
    """From a file. Raises OSError, ValueError, KeyError."""
    return card_of(json.loads(file.read_text("utf-8")))


def _gpu(number: int, told: _Answers) -> SimulatedGpu:
    processes = _processes(told)
    held: dict[int, int] = {}
    for process in processes:
        held[process.pid] = max(held.get(process.pid, 0), process.used or 0)
    v2, v1 = told.value("nvmlDeviceGetMemoryInfo_v2"), told.value("nvmlDeviceGetMemoryInfo")
    total, reserved, used = (v2[0], v2[1], v2[2]) if v2 else (v1[0], 0, v1[1]) if v1 else (0, 0, 0)
    mig = told.value("nvmlDeviceGetMigMode")
    unified = "zero" if (v2 or v1) and not total else "" if total else "not-supported"
    refused_memory = told.code("nvmlDeviceGetMemoryInfo") not in (0, NOT_SUPPORTED)
    return SimulatedGpu(
        f"GPU-{number:08x}-0000-4000-8000-000000000000",
        told.value("nvmlDeviceGetName", "NVIDIA GPU"),
        told.value("nvmlDeviceGetPciInfo_v3", "00000000:00:00.0"),
        total=total,
        reserved=reserved,
        other_used=max(0, used - sum(held.values())),
        unified="" if refused_memory else unified,  # type: ignore[arg-type]  # one of the three
        mig=None if mig is None else bool(mig[0]),
        addressing=told.value("nvmlDeviceGetAddressingMode"),
        utilization_supported=not told.code("nvmlDeviceGetUtilizationRates"),
        processes=processes,
        errors=told.refused(),
        board=_board(told),
    )


def _processes(told: _Answers) -> list[SimulatedProcess]:
    work = dict(told.value("nvmlDeviceGetProcessUtilization") or ())
    sizes: dict[tuple[int, int | None], list[str]] = {}
    for kind, part in KINDS.items():
        function = f"nvmlDeviceGet{part}RunningProcesses"
        listed = told.value(f"{function}_v3 {kind}", told.value(f"{function}_v2 {kind}")) or ()
        for pid, used in listed:
            sizes.setdefault((pid, used), []).append(kind)
    return [SimulatedProcess(pid, used, tuple(kinds), work.get(pid, 0)) for (pid, used), kinds in sizes.items()]


def _board(told: _Answers) -> Board:
    usual = Board()
    usual_speed = usual.automatic_percent
    temperature = told.value("nvmlDeviceGetTemperature", usual.temperature)
    margin = told.value("nvmlDeviceGetMarginTemperature")
    fans = _fan_count(told)
    constraints = told.value("nvmlDeviceGetPowerManagementLimitConstraints")
    offsets = {domain: told.value(f"nvmlDeviceGetClockOffsets {domain}") for domain in usual.clocks}
    states = [state for state in told.value("nvmlDeviceGetSupportedPerformanceStates", ()) if state < NO_STATE]
    return Board(
        fan_count=fans,
        fan_range=_pair(told.value("nvmlDeviceGetMinMaxFanSpeed")) or usual.fan_range,
        automatic_percent=told.value("nvmlDeviceGetFanSpeed_v2 0", told.value("nvmlDeviceGetFanSpeed", usual_speed)),
        temperature=temperature,
        slowdown=told.value("nvmlDeviceGetTemperatureThreshold slowdown"),
        shutdown=told.value("nvmlDeviceGetTemperatureThreshold shutdown"),
        limit=usual.limit if margin is None else temperature + margin,
        architecture=told.value("nvmlDeviceGetArchitecture", usual.architecture),
        power=told.value("nvmlDeviceGetPowerUsage", 0),
        power_range=_pair(constraints),
        power_default=told.value("nvmlDeviceGetPowerManagementDefaultLimit", usual.power_default),
        clocks=_clocks(told, "nvmlDeviceGetClockInfo", usual.clocks),
        max_clocks=_clocks(told, "nvmlDeviceGetMaxClockInfo", usual.max_clocks),
        pstate=told.value("nvmlDeviceGetPerformanceState", usual.pstate),
        pstates=states or usual.pstates,
        offset_ranges={domain: (each[1], each[2]) for domain, each in offsets.items() if each},
        persistence_supported=not told.code("nvmlDeviceGetPersistenceMode"),
        clock_event_reasons=told.value(
            "nvmlDeviceGetCurrentClocksEventReasons", told.value("nvmlDeviceGetCurrentClocksThrottleReasons", 0)
        ),
        event_types=told.value("nvmlDeviceGetSupportedEventTypes", usual.event_types),
    )


def _fan_count(told: _Answers) -> int:
    counted = told.value("nvmlDeviceGetNumFans")
    if counted is not None:
        return int(counted)
    read = sum(told.value(f"nvmlDeviceGetFanSpeed_v2 {fan}") is not None for fan in range(8))
    return read or int(told.value("nvmlDeviceGetFanSpeed") is not None)


def _clocks(told: _Answers, function: str, usual: Mapping[str, int]) -> dict[str, int]:
    return {domain: told.value(f"{function} {domain}", each) for domain, each in usual.items()}


def _pair(value: Sequence[int] | None) -> tuple[int, int] | None:
    return None if value is None else (value[0], value[1])
