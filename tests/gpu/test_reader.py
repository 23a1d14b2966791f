"""Reading through the real pynvml, with a simulated library beneath it."""

from collections.abc import Iterator
from pathlib import Path

import psutil
import pynvml
import pytest

from gpusupervisor.gpu import device, driver_access
from gpusupervisor.gpu.driver_access import SystemFiles
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.reader import NvmlReader, ReadRequest
from gpusupervisor.gpu.sample import GpuMemory, GpuProcess, GpuSample, GpuSensors
from gpusupervisor.simulation.nvml import GIB, MIB, SimulatedGpu, SimulatedProcess, World, installed
from tests.gpu.machine import HandClock

A, B, C = "GPU-aaaaaaaa", "GPU-bbbbbbbb", "GPU-cccccccc"
EVERYTHING = ReadRequest()
COMPUTE_LIST = "nvmlDeviceGetComputeRunningProcesses_v3"


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu(A)])) as world:
        yield world


@pytest.fixture
def reader(world: World, clock: HandClock) -> NvmlReader:
    return NvmlReader(clock)


def read(reader: NvmlReader, request: ReadRequest = EVERYTHING) -> tuple[GpuSample, ...]:
    if not reader.is_open:
        reader.open()
    return tuple(reading.gpu for reading in reader.read(request))


def read_one(reader: NvmlReader, request: ReadRequest = EVERYTHING) -> GpuSample:
    (gpu,) = read(reader, request)
    return gpu


def test_gpus_are_named_by_uuid_and_ordered_by_pci_bus_id_whatever_their_index(
    world: World, reader: NvmlReader
) -> None:
    world.gpus[:] = [
        SimulatedGpu(A, "RTX 4090", "00000000:C1:00.0"),
        SimulatedGpu(B, "RTX 3090", "00000000:01:00.0"),
        SimulatedGpu(C, "RTX 5090", "00010000:01:00.0"),
    ]
    gpus = read(reader)
    assert [gpu.identity.uuid for gpu in gpus] == [B, A, C]
    assert [gpu.identity.pci_bus_id for gpu in gpus] == ["0000:01:00.0", "0000:c1:00.0", "10000:01:00.0"]
    world.gpus.reverse()
    assert [gpu.identity for gpu in read(reader)] == [gpu.identity for gpu in gpus]
    reader.close()
    assert [gpu.identity for gpu in read(reader)] == [gpu.identity for gpu in gpus]


def test_memory_of_version_two(world: World, reader: NvmlReader, clock: HandClock) -> None:
    world.gpus[0].other_used = 5 * GIB
    gpu = read_one(reader)
    assert gpu.memory == GpuMemory(24 * GIB, 5 * GIB, 19 * GIB - 400 * MIB, 400 * MIB, "nvml-v2")
    assert gpu.sampled_at == clock.now()
    assert gpu.state == "ok"


def test_an_old_driver_gives_memory_of_version_one_and_lists_of_version_two(clock: HandClock) -> None:
    old = World([SimulatedGpu(A, processes=[SimulatedProcess(7, GIB)])], driver="470.256.02")
    with installed(old):
        gpu = read_one(NvmlReader(clock))
    assert gpu.memory == GpuMemory(24 * GIB, GIB + 400 * MIB, 23 * GIB - 400 * MIB, 0, "nvml-v1")
    assert gpu.processes == (GpuProcess(7, GIB, frozenset({"compute"})),)
    assert gpu.attribution_problem == ""


def test_version_one_is_used_where_version_two_is_refused(world: World, reader: NvmlReader) -> None:
    world.errors["nvmlDeviceGetMemoryInfo_v2"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    for _ in range(3):
        memory = read_one(reader).memory
        assert memory is not None
        assert memory.source == "nvml-v1"
    assert world.calls.count("nvmlDeviceGetMemoryInfo_v2") == 1


@pytest.mark.parametrize("unified", ["not-supported", "zero"])
def test_shared_memory_is_the_hosts_and_used_is_what_gpu_processes_hold(
    world: World, reader: NvmlReader, unified: str
) -> None:
    world.gpus[0] = SimulatedGpu(
        A,
        unified="zero" if unified == "zero" else "not-supported",
        processes=[SimulatedProcess(7, 3 * MIB), SimulatedProcess(8, None)],
    )
    memory = read_one(reader).memory
    assert memory is not None
    assert memory.source == "unified"
    assert memory.total == psutil.virtual_memory().total
    assert memory.used == 3 * MIB
    assert memory.total == memory.reserved + memory.used + memory.free


def test_the_three_lists_are_merged(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [
        SimulatedProcess(7, 2 * GIB, ("compute", "graphics")),
        SimulatedProcess(8, None, ("compute",)),
        SimulatedProcess(8, GIB, ("mps",)),
        SimulatedProcess(9, None, ("graphics",)),
    ]
    assert read_one(reader).processes == (
        GpuProcess(7, 2 * GIB, frozenset({"compute", "graphics"})),
        GpuProcess(8, GIB, frozenset({"compute", "mps"})),
        GpuProcess(9, None, frozenset({"graphics"})),
    )


def test_a_list_that_grew_between_nvmls_two_calls_is_read_again(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [SimulatedProcess(7, GIB)]
    insufficient = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    world.fail_next(COMPUTE_LIST, None, insufficient, None, insufficient)
    gpu = read_one(reader)
    assert [process.pid for process in gpu.processes] == [7]
    assert gpu.attribution_problem == ""


def test_a_list_that_never_fits_is_a_problem_and_not_an_empty_list(world: World, reader: NvmlReader) -> None:
    world.errors[COMPUTE_LIST] = pynvml.NVML_ERROR_INSUFFICIENT_SIZE
    gpu = read_one(reader)
    assert gpu.state == "ok"
    assert gpu.processes == ()
    assert gpu.attribution_problem.startswith(
        "attribution unavailable: listing the compute processes: Insufficient size"
    )


def test_a_failing_list_does_not_stand_and_is_read_again_at_once(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [SimulatedProcess(7, GIB)]
    assert read_one(reader).processes
    world.fail_next(COMPUTE_LIST, pynvml.NVML_ERROR_TIMEOUT)
    failed = read_one(reader, ReadRequest(fresh_processes=True))
    assert (failed.processes, failed.attribution_problem != "") == ((), True)
    world.gpus[0].processes.append(SimulatedProcess(8, MIB))
    assert [process.pid for process in read_one(reader).processes] == [7, 8]


def test_a_driver_without_an_mps_list_is_no_problem_but_one_without_any_is(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [SimulatedProcess(7, GIB)]
    world.errors["nvmlDeviceGetMPSComputeRunningProcesses_v3"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert [process.pid for process in read_one(reader).processes] == [7]
    for part in ("Compute", "Graphics"):
        world.errors[f"nvmlDeviceGet{part}RunningProcesses_v3"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    gpu = read_one(reader, ReadRequest(fresh_processes=True))
    assert "does not list the processes" in gpu.attribution_problem
    assert gpu.attribution_remedy


def test_scrambled_lists_are_refused(clock: HandClock) -> None:
    processes = [SimulatedProcess(pid, GIB) for pid in (11, 12, 13)]
    with installed(World([SimulatedGpu(A, processes=processes)], driver="535.86.05")) as world:
        gpu = read_one(NvmlReader(clock))
        assert COMPUTE_LIST not in world.calls
    assert gpu.processes == ()
    assert gpu.attribution_problem.startswith("attribution unavailable: drivers 535.43")
    assert gpu.memory is not None


@pytest.mark.parametrize(
    "process", [SimulatedProcess(0, GIB), SimulatedProcess(7_000_000, GIB), SimulatedProcess(7, 25 * GIB)]
)
def test_lists_that_cannot_be_are_refused(world: World, reader: NvmlReader, process: SimulatedProcess) -> None:
    world.gpus[0].processes = [SimulatedProcess(5, GIB), process]
    world.gpus[0].other_used = -(process.used or 0)  # the card itself counts right
    gpu = read_one(reader)
    assert gpu.processes == ()
    assert gpu.attribution_problem.startswith("attribution unavailable: ")
    assert gpu.memory is not None
    assert gpu.memory.used == GIB


def test_a_pid_that_is_gone_stays_listed(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [SimulatedProcess(31_999, GIB)]
    assert [process.pid for process in read_one(reader).processes] == [31_999]


def test_the_parent_of_mig_instances_is_observed_without_attribution(world: World, reader: NvmlReader) -> None:
    world.gpus[0].mig = True
    world.gpus[0].processes = [SimulatedProcess(7, GIB)]
    gpu = read_one(reader)
    assert (gpu.state, gpu.processes) == ("ok", ())
    assert "MIG is enabled" in gpu.attribution_problem
    world.gpus[0].mig = False
    assert read_one(reader, ReadRequest(fresh_processes=True)).attribution_problem == ""


def test_the_last_list_is_carried_forward_while_little_moves(
    world: World, reader: NvmlReader, clock: HandClock
) -> None:
    world.gpus[0].processes = [SimulatedProcess(7, GIB)]
    first = read_one(reader)
    world.calls.clear()
    clock.advance(4)
    world.gpus[0].other_used = 15 * MIB
    carried = read_one(reader)
    assert list(world.calls) == ["nvmlDeviceGetMemoryInfo_v2"]
    assert carried.processes == first.processes
    assert carried.sampled_at == clock.now()


def test_the_list_is_read_again_when_memory_moved_when_old_or_when_asked_for(
    world: World, reader: NvmlReader, clock: HandClock
) -> None:
    read_one(reader)
    world.calls.clear()
    world.gpus[0].other_used = 16 * MIB
    read_one(reader)
    assert COMPUTE_LIST in world.calls
    world.calls.clear()
    clock.advance(5.1)
    read_one(reader)
    assert COMPUTE_LIST in world.calls
    world.calls.clear()
    read_one(reader, ReadRequest(fresh_processes=True))
    assert COMPUTE_LIST in world.calls


def test_utilisation_joins_the_processes_only_when_asked_for(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [
        SimulatedProcess(7, GIB, sm=55),
        SimulatedProcess(8, GIB),
        SimulatedProcess(9, GIB, sm=2147483632),
    ]
    assert [process.sm_utilization for process in read_one(reader).processes] == [None, None, None]
    told = read_one(reader, ReadRequest(utilization=True))
    assert [process.sm_utilization for process in told.processes] == [55, 0, None]
    assert [process.sm_utilization for process in read_one(reader).processes] == [None, None, None]


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS])
def test_no_samples_mean_that_nothing_worked(world: World, reader: NvmlReader, code: int) -> None:
    world.gpus[0].processes = [SimulatedProcess(7, GIB, sm=55)]
    world.errors["nvmlDeviceGetProcessUtilization"] = code
    assert read_one(reader, ReadRequest(utilization=True)).processes[0].sm_utilization == 0


def test_utilisation_that_is_not_supported_is_unknown_and_not_asked_for_again(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [SimulatedProcess(7, GIB, sm=55)]
    world.gpus[0].utilization_supported = False
    for _ in range(3):
        assert read_one(reader, ReadRequest(utilization=True)).processes[0].sm_utilization is None
    assert world.calls.count("nvmlDeviceGetProcessUtilization") == 1


def test_sensors_are_asked_only_when_wanted(world: World, reader: NvmlReader) -> None:
    world.gpus[0].processes = [SimulatedProcess(7, GIB, sm=55), SimulatedProcess(8, GIB, sm=10)]
    assert read_one(reader).sensors == GpuSensors()
    assert "nvmlDeviceGetPowerUsage" not in world.calls
    assert read_one(reader, ReadRequest(sensors=True)).sensors == GpuSensors(60_000, 50, 65, False)


@pytest.mark.parametrize("said", [0, 255])
def test_a_temperature_that_cannot_be_true_is_unknown(world: World, reader: NvmlReader, said: int) -> None:
    world.gpus[0].board.sensor_reads = said
    assert read_one(reader, ReadRequest(sensors=True)).sensors == GpuSensors(60_000, None, 0, False)


def test_sensors_that_are_not_there_are_asked_once_and_failing_ones_again(world: World, reader: NvmlReader) -> None:
    world.errors["nvmlDeviceGetPowerUsage"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    world.errors["nvmlDeviceGetTemperature"] = pynvml.NVML_ERROR_UNKNOWN
    for _ in range(3):
        gpu = read_one(reader, ReadRequest(sensors=True))
        assert (gpu.state, gpu.sensors) == ("ok", GpuSensors(None, None, 0, False))
    assert world.calls.count("nvmlDeviceGetPowerUsage") == 1
    assert world.calls.count("nvmlDeviceGetTemperature") == 3


@pytest.mark.parametrize("function", ["nvmlDeviceGetTemperature", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetName"])
def test_an_argument_that_only_one_function_refuses_costs_only_what_it_tells(
    world: World, reader: NvmlReader, function: str
) -> None:
    world.errors[function] = pynvml.NVML_ERROR_INVALID_ARGUMENT
    gpu = read_one(reader, ReadRequest(sensors=True))
    assert (gpu.state, gpu.sensors.utilization) == ("ok", 0)
    assert gpu.memory is not None


def test_a_driver_that_was_unloaded_is_not_loaded_again_by_opening_its_node(
    world: World, reader: NvmlReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, devices = tmp_path / "nvidiactl", tmp_path / "devices"
    node.touch()
    devices.write_text("Character devices:\n  1 mem\n  5 /dev/tty\n")
    monkeypatch.setattr(driver_access, "_files", SystemFiles(tmp_path, tmp_path))
    with pytest.raises(DriverError, match="Driver not loaded"):
        reader.open()
    assert not world.calls
    devices.write_text("Character devices:\n  1 mem\n195 nvidia-frontend\n")
    reader.open()
    assert reader.is_open


def test_a_gpu_that_is_lost_while_its_sensors_are_read_is_lost(world: World, reader: NvmlReader) -> None:
    world.errors["nvmlDeviceGetUtilizationRates"] = pynvml.NVML_ERROR_GPU_IS_LOST
    assert read_one(reader, ReadRequest(sensors=True)).state == "lost"


def test_a_gpu_that_is_lost_or_fails_leaves_the_others(world: World, reader: NvmlReader) -> None:
    world.gpus[:] = [SimulatedGpu(uuid, pci=f"00000000:0{n}:00.0") for n, uuid in enumerate((A, B, C), 1)]
    read(reader)
    world.gpus[0].lost = True
    world.gpus[1].errors["nvmlDeviceGetMemoryInfo_v2"] = pynvml.NVML_ERROR_UNKNOWN
    lost, failing, well = read(reader)
    assert (lost.state, lost.memory, lost.detail) == ("lost", None, "reading the memory: GPU is lost")
    assert (failing.state, failing.memory) == ("failing", None)
    assert failing.detail == "reading the memory: Unknown error"
    assert (well.state, well.memory is not None) == ("ok", True)


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_GPU_IS_LOST])
def test_a_gpu_without_a_handle_does_not_hide_the_others(world: World, reader: NvmlReader, code: int) -> None:
    world.gpus.insert(0, SimulatedGpu(B, errors={"nvmlDeviceGetHandleByIndex_v2": code}))
    assert [gpu.identity.uuid for gpu in read(reader)] == [A]
    assert [error.code for error in reader.unreachable] == [code]


def test_the_end_of_nvml_is_raised_and_a_new_generation_reads_again(world: World, reader: NvmlReader) -> None:
    read_one(reader)
    world.reload_driver()
    with pytest.raises(DriverError) as raised:
        reader.read(ReadRequest())
    assert raised.value.ends_session
    reader.close()
    assert read_one(reader).state == "ok"
    assert world.calls.count("nvmlInitWithFlags") == 2


def test_a_handle_of_an_earlier_generation_ends_the_session(world: World, reader: NvmlReader) -> None:
    read_one(reader)
    world.reload_driver()
    world.references = 1
    with pytest.raises(DriverError, match="earlier driver generation"):
        reader.read(ReadRequest())


def test_a_sleeping_gpu_is_not_touched_while_another_is_read(world: World, reader: NvmlReader) -> None:
    world.gpus.append(SimulatedGpu(B, pci="00000000:02:00.0"))
    present = ("0000:01:00.0", "0000:02:00.0")
    asleep = ReadRequest(present=present, asleep=frozenset({"0000:02:00.0"}))
    for _ in range(3):
        assert [gpu.identity.uuid for gpu in read(reader, asleep)] == [A]
    read_one(reader, ReadRequest(only=A))
    assert world.touched[B] == 0
    assert [gpu.identity.uuid for gpu in read(reader, ReadRequest(present=present))] == [A, B]
    world.touched.clear()
    assert [gpu.identity.uuid for gpu in read(reader, asleep)] == [A]
    assert world.touched[B] == 0


def test_names_of_the_driver_are_bounded_and_printable(world: World, reader: NvmlReader) -> None:
    world.gpus[0].name = "\x1b[2JRTX " + "9" * 60
    assert read_one(reader).identity.name.isprintable()
    world.gpus[0].errors["nvmlDeviceGetName"] = pynvml.NVML_ERROR_UNKNOWN
    reader.close()
    assert read_one(reader).identity.name == "NVIDIA GPU"


def test_closing_shuts_nvml_down_once(world: World, reader: NvmlReader) -> None:
    read_one(reader)
    reader.close()
    reader.close()
    assert world.references == 0
    assert world.calls.count("nvmlShutdown") == 1


@pytest.mark.parametrize(
    ("told", "expected"),
    [(b"00000000:01:00.0", "0000:01:00.0"), ("00010000:AF:00.0", "10000:af:00.0"), (b"", ""), ("nonsense", "")],
)
def test_bus_ids_are_written_as_sysfs_does(told: bytes | str, expected: str) -> None:
    assert device.sysfs_bus_id(told) == expected
