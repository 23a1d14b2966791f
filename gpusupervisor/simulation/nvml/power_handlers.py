"""The functions of libnvidia-ml for power, clocks, P-states, persistence and what holds the clocks down."""

import pynvml

from gpusupervisor.simulation.nvml.board import Board, Settings, power_drawn, power_limit
from gpusupervisor.simulation.nvml.handles import gpu_of
from gpusupervisor.simulation.nvml.library import Handler, SimulatedLibrary, nvml
from gpusupervisor.simulation.nvml.marshalling import Answer, Argument, number, target
from gpusupervisor.simulation.nvml.world import SimulatedGpu

OFFSETS = (555, 42, 2)
CLOCKS = {0: "graphics", 2: "memory"}
VOLTA = 5
"""nvmlDeviceArchitecture_t: older cards do not count their energy."""
UNKNOWN_STATE = 32
ARRAY_STATES = 16


def _power_board(library: SimulatedLibrary, handle: Argument, function: str) -> tuple[SimulatedGpu, tuple[int, int]]:
    gpu = gpu_of(library, handle, function)
    if gpu.board.power_range is None:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return gpu, gpu.board.power_range


@nvml("nvmlDeviceGetPowerUsage")
def _usage(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetPowerUsage")
    target(out).value = power_drawn(gpu.board, library.world.settings_of(gpu))


@nvml("nvmlDeviceGetTotalEnergyConsumption")
def _energy(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetTotalEnergyConsumption")
    if gpu.board.architecture < VOLTA:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    target(out).value = library.world.energy_of(gpu)


def _limit_handler(function: str) -> Handler:
    def handler(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
        gpu, _ = _power_board(library, handle, function)
        target(out).value = power_limit(gpu.board, library.world.settings_of(gpu))

    return handler


for _function in ("nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetEnforcedPowerLimit"):
    nvml(_function)(_limit_handler(_function))


@nvml("nvmlDeviceGetPowerManagementDefaultLimit")
def _default_limit(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu, _ = _power_board(library, handle, "nvmlDeviceGetPowerManagementDefaultLimit")
    target(out).value = gpu.board.power_default


@nvml("nvmlDeviceGetPowerManagementLimitConstraints")
def _constraints(library: SimulatedLibrary, handle: Argument, low: Argument, high: Argument) -> None:
    _, allowed = _power_board(library, handle, "nvmlDeviceGetPowerManagementLimitConstraints")
    target(low).value, target(high).value = allowed


@nvml("nvmlDeviceSetPowerManagementLimit", root=True)
def _set_limit(library: SimulatedLibrary, handle: Argument, milliwatts: Argument) -> None:
    gpu, (low, high) = _power_board(library, handle, "nvmlDeviceSetPowerManagementLimit")
    if not gpu.board.power_settable:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if not low <= number(milliwatts) <= high:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    with library.world.setting(gpu) as settings:
        settings.power_limit = number(milliwatts)


def _offset_asked(
    library: SimulatedLibrary, handle: Argument, info: Argument, function: str
) -> tuple[SimulatedGpu, Argument, str]:
    gpu, asked = gpu_of(library, handle, function), target(info)
    if asked.version != pynvml.nvmlClockOffset_v1:
        raise Answer(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    if not gpu.board.offset_ranges:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if asked.type not in CLOCKS or asked.pstate not in gpu.board.pstates:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    clock = CLOCKS[asked.type]
    if clock not in gpu.board.offset_ranges:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return gpu, asked, clock


def _layout(info: Argument) -> tuple[str, str, str]:
    """Names of the last three fields of nvmlClockOffset_v1_t, whoever declared it."""
    names = [name for name, *_ in info._fields_]
    return names[3], names[4], names[5]


@nvml("nvmlDeviceGetClockOffsets", since=OFFSETS)
def _get_offset(library: SimulatedLibrary, handle: Argument, info: Argument) -> None:
    gpu, asked, clock = _offset_asked(library, handle, info, "nvmlDeviceGetClockOffsets")
    offset, minimum, maximum = _layout(asked)
    low, high = gpu.board.offset_ranges[clock]
    set_to = library.world.settings_of(gpu).offsets.get(f"{clock}/{asked.pstate}", 0)
    setattr(asked, minimum, low)
    setattr(asked, maximum, high)
    setattr(asked, offset, set_to if gpu.board.offsets_reported else 0)


@nvml("nvmlDeviceSetClockOffsets", since=OFFSETS, root=True)
def _set_offset(library: SimulatedLibrary, handle: Argument, info: Argument) -> None:
    gpu, asked, clock = _offset_asked(library, handle, info, "nvmlDeviceSetClockOffsets")
    wanted = int(getattr(asked, _layout(asked)[0]))
    low, high = gpu.board.offset_ranges[clock]
    if not low <= wanted <= high:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    snapped = int(wanted / gpu.board.offset_step) * gpu.board.offset_step
    states = gpu.board.pstates if gpu.board.linked_pstates else [asked.pstate]
    with library.world.setting(gpu) as settings:
        settings.offsets.update({f"{clock}/{state}": snapped for state in states})


def _lock_handlers(clock: str, name: str, since: tuple[int, ...]) -> None:
    def lock(library: SimulatedLibrary, handle: Argument, low: Argument, high: Argument) -> None:
        gpu = _lockable(library, handle, f"nvmlDeviceSet{name}LockedClocks")
        if number(low) > number(high):
            raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        with library.world.setting(gpu) as settings:
            settings.locked_clocks[clock] = (number(low), number(high))

    def reset(library: SimulatedLibrary, handle: Argument) -> None:
        gpu = _lockable(library, handle, f"nvmlDeviceReset{name}LockedClocks")
        with library.world.setting(gpu) as settings:
            settings.locked_clocks.pop(clock, None)

    def _lockable(library: SimulatedLibrary, handle: Argument, function: str) -> SimulatedGpu:
        gpu = gpu_of(library, handle, function)
        if clock not in gpu.board.lockable:
            raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return gpu

    nvml(f"nvmlDeviceSet{name}LockedClocks", since=since, root=True)(lock)
    nvml(f"nvmlDeviceReset{name}LockedClocks", since=since, root=True)(reset)


_lock_handlers("graphics", "Gpu", (415, 13))
_lock_handlers("memory", "Memory", (465, 19))


@nvml("nvmlDeviceGetClockInfo")
def _clock(library: SimulatedLibrary, handle: Argument, which: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetClockInfo")
    if number(which) not in CLOCKS:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    target(out).value = running_at(gpu.board, library.world.settings_of(gpu), CLOCKS[number(which)])


def running_at(board: Board, settings: Settings, clock: str) -> int:
    """MHz: the load's own, moved by the offset (memory by half of it), held by the lock and by the power limit."""
    offset = settings.offsets.get(f"{clock}/{board.pstate}", 0)
    speed = float(board.clocks[clock] + (offset // 2 if clock == "memory" else offset))
    low, high = settings.locked_clocks.get(clock, (0, board.max_clocks[clock] + max(offset, 0)))
    speed = min(max(speed, low), high)
    limit = power_limit(board, settings)
    if clock == "graphics" and board.power > limit:
        speed *= (limit / board.power) ** (1 / 3)  # power goes with the cube of the clock, voltage following it
    return round(speed)


@nvml("nvmlDeviceGetMaxClockInfo")
def _max_clock(library: SimulatedLibrary, handle: Argument, which: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetMaxClockInfo")
    if number(which) not in CLOCKS:
        raise Answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    target(out).value = gpu.board.max_clocks[CLOCKS[number(which)]]


@nvml("nvmlDeviceGetArchitecture", since=(450, 51))
def _architecture(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    target(out).value = gpu_of(library, handle, "nvmlDeviceGetArchitecture").board.architecture


@nvml("nvmlDeviceGetPerformanceState")
def _pstate(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    target(out).value = gpu_of(library, handle, "nvmlDeviceGetPerformanceState").board.pstate


@nvml("nvmlDeviceGetSupportedPerformanceStates", since=(515, 43, 4))
def _pstates(library: SimulatedLibrary, handle: Argument, out: Argument, _size: Argument) -> None:
    states = gpu_of(library, handle, "nvmlDeviceGetSupportedPerformanceStates").board.pstates
    for index in range(ARRAY_STATES):
        out[index] = states[index] if index < len(states) else UNKNOWN_STATE


def _reasons_handler(function: str) -> Handler:
    def handler(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
        gpu = gpu_of(library, handle, function)
        board, settings = gpu.board, library.world.settings_of(gpu)
        reasons = board.clock_event_reasons
        if settings.locked_clocks:
            reasons |= pynvml.nvmlClocksEventReasonApplicationsClocksSetting
        if board.power > power_limit(board, settings):
            reasons |= pynvml.nvmlClocksEventReasonSwPowerCap
        if board.slowdown is not None and board.temperature >= board.slowdown:
            reasons |= pynvml.nvmlClocksEventReasonHwSlowdown | pynvml.nvmlClocksEventReasonHwThermalSlowdown
        target(out).value = reasons

    return handler


for _function, _since in (
    ("nvmlDeviceGetCurrentClocksEventReasons", (535, 43, 2)),
    ("nvmlDeviceGetCurrentClocksThrottleReasons", (0,)),
):
    nvml(_function, since=_since)(_reasons_handler(_function))


@nvml("nvmlDeviceGetPersistenceMode")
def _persistence(library: SimulatedLibrary, handle: Argument, out: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceGetPersistenceMode")
    if not gpu.board.persistence_supported:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    target(out).value = int(library.world.settings_of(gpu).persistence)


@nvml("nvmlDeviceSetPersistenceMode", root=True)
def _set_persistence(library: SimulatedLibrary, handle: Argument, mode: Argument) -> None:
    gpu = gpu_of(library, handle, "nvmlDeviceSetPersistenceMode")
    if not gpu.board.persistence_supported:
        raise Answer(pynvml.NVML_ERROR_NOT_SUPPORTED)
    with library.world.setting(gpu) as settings:
        settings.persistence = bool(number(mode))
