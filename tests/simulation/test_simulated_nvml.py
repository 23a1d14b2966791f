"""The simulated library as the real pynvml sees it."""

import ctypes
import threading

import pynvml
import pytest

from gpusupervisor.simulation.nvml import GIB, MIB, SimulatedGpu, SimulatedProcess, World, installed

A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"


def two_gpus() -> World:
    return World([SimulatedGpu(A), SimulatedGpu(B, "NVIDIA GB10", "0000000F:02:00.0")])


def test_identity_goes_through_pynvml_unharmed() -> None:
    with installed(two_gpus()) as world:
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 2
        handle = pynvml.nvmlDeviceGetHandleByIndex(1)
        assert pynvml.nvmlDeviceGetUUID(handle) == B
        assert pynvml.nvmlDeviceGetName(handle) == "NVIDIA GB10"
        assert pynvml.nvmlDeviceGetPciInfo(handle).busId == "0000000F:02:00.0"
        assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
        assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
        by_pci = pynvml.nvmlDeviceGetHandleByPciBusId("000f:02:00.0")
        by_uuid = pynvml.nvmlDeviceGetHandleByUUID(B)
        assert pynvml.nvmlDeviceGetUUID(by_pci) == pynvml.nvmlDeviceGetUUID(by_uuid) == B
        pynvml.nvmlShutdown()
        assert world.references == 0
        assert world.calls[-1] == "nvmlShutdown"


def test_memory_of_both_versions_agrees() -> None:
    world = World([SimulatedGpu(A, other_used=GIB, processes=[SimulatedProcess(7, 4 * GIB)])])
    with installed(world):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        first = pynvml.nvmlDeviceGetMemoryInfo(handle)
        second = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        assert (first.total, first.free) == (second.total, second.free)
        assert second.used == 5 * GIB
        assert first.used == second.used + second.reserved
        with pytest.raises(pynvml.NVMLError_ArgumentVersionMismatch):
            pynvml.nvmlDeviceGetMemoryInfo(handle, version=1)


def test_process_lists_with_unknown_sizes_and_dual_entries() -> None:
    processes = [
        SimulatedProcess(1, GIB),
        SimulatedProcess(2, MIB, ("compute", "graphics")),
        SimulatedProcess(3, None, ("mps",)),
    ]
    with installed(World([SimulatedGpu(A, processes=processes)])):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        compute = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        assert [(p.pid, p.usedGpuMemory) for p in compute] == [(1, GIB), (2, MIB)]
        assert [p.pid for p in pynvml.nvmlDeviceGetGraphicsRunningProcesses(handle)] == [2]
        assert [(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle)] == [(3, None)]


def test_drivers_of_the_scrambling_kind_scramble() -> None:
    processes = [SimulatedProcess(pid, GIB) for pid in (11, 12, 13)]
    with installed(World([SimulatedGpu(A, processes=processes)], driver="535.86.05")):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        pids = [p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
        assert len(pids) == 3
        assert pids != [11, 12, 13]


def test_symbols_depend_on_the_release() -> None:
    with installed(World([SimulatedGpu(A)], driver="470.256.02")):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        with pytest.raises(pynvml.NVMLError_FunctionNotFound):
            pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        with pytest.raises(pynvml.NVMLLibraryMismatchError):
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        assert pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle) == []


def test_no_library_no_module_and_the_wrong_module() -> None:
    world = World([SimulatedGpu(A)])
    world.library_present = False
    with installed(world):
        with pytest.raises(pynvml.NVMLError_LibraryNotFound):
            pynvml.nvmlInit()
        world.library_present, world.driver_loaded = True, False
        with pytest.raises(pynvml.NVMLError_DriverNotLoaded):
            pynvml.nvmlInit()
        world.driver_loaded, world.kernel_driver = True, "575.57.08"
        with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
            pynvml.nvmlInit()


def test_handles_do_not_outlive_a_reload_but_follow_their_gpu_when_indexes_change() -> None:
    with installed(two_gpus()) as world:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        world.gpus.reverse()
        assert pynvml.nvmlDeviceGetUUID(handle) == A
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(0)) == B
        world.reload_driver()
        with pytest.raises(pynvml.NVMLError_Uninitialized):
            pynvml.nvmlDeviceGetName(handle)
        pynvml.nvmlInit()
        with pytest.raises(pynvml.NVMLError_InvalidArgument):
            pynvml.nvmlDeviceGetName(handle)


def test_a_library_that_was_mapped_stays_old_after_an_upgrade() -> None:
    with installed(World([SimulatedGpu(A)])) as world:
        pynvml.nvmlInit()
        world.upgrade_driver("590.44.01")
        with pytest.raises(pynvml.NVMLError_LibRmVersionMismatch):
            pynvml.nvmlInit()


def test_errors_can_be_played_once_for_ever_and_for_one_gpu() -> None:
    with installed(two_gpus()) as world:
        pynvml.nvmlInit()
        first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
        world.fail_next("nvmlDeviceGetName", None, pynvml.NVML_ERROR_UNKNOWN)
        assert pynvml.nvmlDeviceGetName(first)
        with pytest.raises(pynvml.NVMLError_Unknown):
            pynvml.nvmlDeviceGetName(first)
        assert pynvml.nvmlDeviceGetName(first)
        world.gpus[0].errors["nvmlDeviceGetName"] = pynvml.NVML_ERROR_NO_PERMISSION
        with pytest.raises(pynvml.NVMLError_NoPermission):
            pynvml.nvmlDeviceGetName(first)
        assert pynvml.nvmlDeviceGetName(second)
        world.gpus[1].lost = True
        with pytest.raises(pynvml.NVMLError_GpuIsLost):
            pynvml.nvmlDeviceGetHandleByIndex(1)
        world.errors["nvmlDeviceGetCount_v2"] = pynvml.NVML_ERROR_TIMEOUT
        for _ in range(3):
            with pytest.raises(pynvml.NVMLError_Timeout):
                pynvml.nvmlDeviceGetCount()


def test_a_hanging_call_returns_when_it_is_let_go() -> None:
    with installed(two_gpus()) as world:
        pynvml.nvmlInit()
        world.hang("nvmlDeviceGetCount_v2")
        answers: list[int] = []
        caller = threading.Thread(target=lambda: answers.append(pynvml.nvmlDeviceGetCount()))
        caller.start()
        caller.join(0.05)
        assert caller.is_alive()
        world.release_hanging()
        caller.join(10)
        assert answers == [2]


def test_utilisation_and_mig() -> None:
    world = World([SimulatedGpu(A, mig=False, processes=[SimulatedProcess(1, GIB, sm=42), SimulatedProcess(2, GIB)])])
    with installed(world):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert [(s.pid, s.smUtil) for s in pynvml.nvmlDeviceGetProcessUtilization(handle, 0)] == [(1, 42)]
        world.gpus[0].processes[0].sm = 0
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetProcessUtilization(handle, 0)
        assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]
        world.gpus[0].mig = None
        with pytest.raises(pynvml.NVMLError_NotSupported):
            pynvml.nvmlDeviceGetMigMode(handle)


def test_what_a_real_library_would_refuse_or_crash_on_is_refused() -> None:
    with installed(two_gpus()):
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        memory = pynvml._nvmlGetFunctionPointer("nvmlDeviceGetMemoryInfo")
        with pytest.raises(AssertionError, match="by value"):
            memory(handle, pynvml.c_nvmlMemory_t())
        with pytest.raises(ctypes.ArgumentError):
            memory(handle, 1.5)


def test_uninstalling_leaves_pynvml_as_it_was() -> None:
    before = (pynvml.CDLL, pynvml.nvmlLib, pynvml._nvmlLib_refcount)
    with installed(two_gpus()):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 2
    assert (pynvml.CDLL, pynvml.nvmlLib, pynvml._nvmlLib_refcount) == before
    with installed(World([SimulatedGpu(A)])):
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 1
