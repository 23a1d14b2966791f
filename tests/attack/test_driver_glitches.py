"""A driver that answers wrongly for a moment: the sample fails, and the card stays what it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pynvml
import pytest

from gpusupervisor.gpu.reader import NvmlReader, ReadRequest
from gpusupervisor.gpu.sample import GpuSample
from gpusupervisor.gpu.session import DriverSession
from gpusupervisor.simulation.nvml import GIB, SimulatedGpu, SimulatedProcess, World, installed
from tests.gpu.machine import HandClock

Glitch = Literal["not-supported", "zero"]
GLITCHES: tuple[Glitch, ...] = ("not-supported", "zero")


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu(processes=[SimulatedProcess(7, GIB)])])) as world:
        yield world


@pytest.fixture
def reader(world: World) -> NvmlReader:
    return NvmlReader(HandClock())


def read(reader: NvmlReader, *, utilization: bool = False) -> GpuSample:
    if not reader.is_open:
        reader.open()
    (reading,) = reader.read(ReadRequest(fresh_processes=True, utilization=utilization))
    return reading.gpu


def source(gpu: GpuSample) -> str:
    return gpu.memory.source if gpu.memory else ""


@pytest.mark.parametrize("glitch", GLITCHES)
def test_a_discrete_card_that_tells_no_size_for_a_moment_fails_for_that_moment_only(
    world: World, reader: NvmlReader, glitch: Glitch
) -> None:
    before = read(reader)
    world.gpus[0].unified = glitch
    during = [read(reader) for _ in range(5)]
    reader.close()  # as the session does after failures
    during.append(read(reader))
    world.gpus[0].unified = ""
    assert {gpu.state for gpu in during} == {"failing"}
    assert all(gpu.memory is None for gpu in during)
    assert all("reading the memory" in gpu.detail for gpu in during)
    assert read(reader).memory == before.memory


@pytest.mark.parametrize("glitch", GLITCHES)
def test_a_discrete_card_of_an_old_driver_stays_one_too(glitch: Glitch) -> None:
    with installed(World([SimulatedGpu()], driver="470.256.02")) as old:
        reader = NvmlReader(HandClock())
        assert source(read(reader)) == "nvml-v1"
        old.gpus[0].unified = glitch
        assert read(reader).state == "failing"
        old.gpus[0].unified = ""
        assert source(read(reader)) == "nvml-v1"


def test_one_refusal_of_the_better_function_does_not_make_the_worse_one_the_source(
    world: World, reader: NvmlReader
) -> None:
    read(reader)
    world.gpus[0].errors["nvmlDeviceGetMemoryInfo_v2"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert read(reader).state == "failing"
    world.gpus[0].errors.clear()
    assert source(read(reader)) == "nvml-v2"


@pytest.mark.parametrize("glitch", GLITCHES)
def test_a_discrete_card_whose_very_first_answer_is_a_glitch_is_discrete_from_the_next_one_on(
    world: World, reader: NvmlReader, glitch: Glitch
) -> None:
    world.gpus[0].unified = glitch
    read(reader)
    world.gpus[0].unified = ""
    assert source(read(reader)) == "nvml-v2"


def test_partitions_and_utilisation_that_were_told_once_are_asked_for_again_after_a_refusal(
    world: World, reader: NvmlReader
) -> None:
    card = world.gpus[0]
    card.mig, card.processes[0].sm = False, 40
    assert read(reader, utilization=True).processes[0].sm_utilization == 40
    card.errors |= dict.fromkeys(("nvmlDeviceGetMigMode", "nvmlDeviceGetProcessUtilization"), 3)
    assert "MIG mode" in read(reader, utilization=True).attribution_problem
    card.errors.clear()
    gpu = read(reader, utilization=True)
    assert gpu.attribution_problem == ""
    assert gpu.processes[0].sm_utilization == 40


@pytest.mark.parametrize("function", ["nvmlDeviceGetMemoryInfo_v2", "nvmlInitWithFlags"])
def test_one_mismatch_of_versions_is_a_failure_and_no_reason_to_be_started_anew(
    world: World, tmp_path: Path, function: str
) -> None:
    clock = HandClock()
    session = DriverSession(NvmlReader(clock), clock, tmp_path)

    def look() -> str:
        clock.advance(70)
        return session.sample(fresh_processes=True, utilization=False, needed=True).driver.state

    assert look() == "ok"
    if function == "nvmlInitWithFlags":
        session.close()
    world.errors = {function: pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}
    assert look() == "failing"
    world.errors = {}
    assert look() == "ok"
    session.close()


def test_a_mismatch_at_every_initialisation_is_one(world: World, tmp_path: Path) -> None:
    clock = HandClock()
    session = DriverSession(NvmlReader(clock), clock, tmp_path)
    states = []
    for errors in ({}, *({"nvmlInitWithFlags": 18, "nvmlDeviceGetMemoryInfo_v2": 18},) * 4):
        world.errors = dict(errors)
        clock.advance(70)
        states.append(session.sample(fresh_processes=True, utilization=False, needed=True).driver.state)
    assert states == ["ok", "failing", "failing", "mismatch", "mismatch"]
    session.close()
