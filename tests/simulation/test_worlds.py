"""The simulated libraries have the functions that the real ones have, and unified memory is its host's."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from gpusupervisor.gpu.reader import NvmlReader, ReadRequest
from gpusupervisor.gpu.sample import GpuSample
from gpusupervisor.gpu.symbols import SYMBOLS, Symbol
from gpusupervisor.simulation.nvml import GIB, CardWorld, SimulatedProcess, World, installed
from gpusupervisor.simulation.nvml.library import SimulatedLibrary
from gpusupervisor.simulation.worlds import WORLDS, lay_out
from tests.gpu.machine import HandClock

OLDEST = "390.157"


def release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


@pytest.mark.parametrize("symbol", SYMBOLS, ids=lambda symbol: symbol.name)
def test_a_simulated_library_has_a_function_from_the_release_on_that_has_it(symbol: Symbol) -> None:
    def has(driver: str) -> bool:
        return hasattr(SimulatedLibrary(World(driver=driver)), symbol.name)

    assert has("999.0.0")
    assert has(OLDEST) is not bool(symbol.since)
    if symbol.since:
        major, minor = release(symbol.since)
        assert has(f"{major}.{minor}.99")
        assert not has(f"{major}.{minor - 1}.99")


def read(directory: Path, name: str) -> GpuSample:
    """A sample of one of the worlds."""
    lay_out(directory, name)
    with installed(CardWorld(directory)):
        reader = NvmlReader(HandClock())
        reader.open()
        (reading,) = reader.read(ReadRequest(sensors=True))
        reader.close()
    return reading.gpu


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_every_world_can_be_written_read_and_written_again(tmp_path: Path, name: str) -> None:
    card = lay_out(tmp_path, name)
    assert json.dumps(asdict(card.read())) == json.dumps(asdict(WORLDS[name]()))
    gpu = read(tmp_path, name)
    assert gpu.state == ("failing" if name == "mig-unprivileged" else "ok")
    assert gpu.remedy == "" or "MIG" in gpu.remedy


def test_of_unified_memory_what_gpu_processes_hold_is_used_and_the_rest_is_the_hosts(tmp_path: Path) -> None:
    card = lay_out(tmp_path, "spark")
    with installed(CardWorld(tmp_path)):
        reader = NvmlReader(HandClock())
        reader.open()
        card.change_gpu(card.read().gpus[0].uuid, processes=[SimulatedProcess(7, 19 * GIB)])
        (reading,) = reader.read(ReadRequest(fresh_processes=True))
        memory = reading.gpu.memory
        assert memory is not None
        assert (memory.shared, memory.used, memory.reserved) == (True, 19 * GIB, 9 * GIB)
        card.change(host_memory=(card.read().host_memory[0], 30 * GIB))  # type: ignore[index]
        (reading,) = reader.read(ReadRequest())
        reader.close()
    memory = reading.gpu.memory
    assert memory is not None
    assert (memory.used, memory.reserved) == (19 * GIB, 30 * GIB)
    assert memory.total == memory.used + memory.free + memory.reserved


def test_a_superchip_is_known_by_its_addressing_or_by_its_name(tmp_path: Path) -> None:
    assert read(tmp_path / "a", "gh200").identity.coherent
    card = lay_out(tmp_path / "b", "gh200")
    card.change(driver="550.163.01")
    with installed(CardWorld(tmp_path / "b")):
        reader = NvmlReader(HandClock())
        reader.open()
        (reading,) = reader.read(ReadRequest())
        reader.close()
    assert reading.gpu.identity.coherent
    assert not read(tmp_path / "c", "tesla-no-fans").identity.coherent
