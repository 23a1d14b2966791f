"""The helper as a process: it tells what is in RAM, reads what it is asked for, and goes by root's files alone."""

import asyncio
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helper.conftest import ReaderBench as Bench
from tests.helper.conftest import bare
from tests.model_files import MIB, disk_folder, make_cold, write

TENANT = 'title = "App"\n[match]\nunits = ["app.service"]\n[models]\ndirectories = ["{folder}"]\n'
PLENTY = "MemTotal: 64000000 kB\nMemAvailable: 32000000 kB\n"
ERROR = "org.gpusupervisor1.Error."


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """What is tested runs in another process; here files are written."""


@pytest.fixture
def models(bench: Bench) -> Iterator[Path]:
    """The folder of the tenant's models."""
    folder = disk_folder()
    (bench.tenants / "app.toml").write_text(TENANT.format(folder=folder))
    (bench.memory / "pressure").mkdir(parents=True)
    (bench.memory / "meminfo").write_text(PLENTY)
    yield folder
    shutil.rmtree(folder)


async def residency(bench: Bench, tenant: str = "app") -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    answer = await bench.ask("Residency", "s", tenant)
    assert answer.status == 0, answer.errors
    found, about = bare(answer.json)
    return {model["model"]: model for model in found}, about


async def part(bench: Bench, position: int, most: int = 2**63, model: str = "m.gguf") -> tuple[int, str]:
    answer = await bench.ask("WarmPart", "sstt", "app", model, str(position), str(most))
    assert answer.status == 0, answer.errors
    return answer.json[0], answer.json[1]


async def test_it_tells_what_is_in_ram_and_warms_it(bench: Bench, models: Path) -> None:
    make_cold(write(models / "m.gguf", 3 * MIB))
    bench.start()
    told, about = await residency(bench)
    assert told["m.gguf"] == {"model": "m.gguf", "size": 3 * MIB, "files": 1, "cached": 0, "problem": ""}
    assert about["method"] in ("cachestat", "mincore")
    assert (await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")).json == [3 * MIB]
    assert await part(bench, 0, MIB) == (MIB, "")
    assert await part(bench, MIB) == (3 * MIB, "")
    assert (await residency(bench))[0]["m.gguf"]["cached"] == 3 * MIB


async def test_one_that_was_started_anew_says_so(bench: Bench, models: Path) -> None:
    make_cold(write(models / "m.gguf", 3 * MIB))
    bench.start()
    assert (await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")).status == 0
    bench.kill()
    bench.start()
    answer = await bench.ask("WarmPart", "sstt", "app", "m.gguf", "0", "1000")
    assert "was restarted since" in answer.errors


async def test_nothing_goes_on_when_nobody_calls(bench: Bench, models: Path) -> None:
    """So a supervisor that has died warms nothing."""
    make_cold(write(models / "m.gguf", 8 * MIB))
    bench.start()
    assert (await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")).status == 0
    assert (await part(bench, 0, MIB))[0] == MIB
    told, _ = await residency(bench)
    assert told["m.gguf"]["cached"] < 8 * MIB


async def test_a_sparse_file_of_eight_exbibytes_neither_takes_time_nor_is_read(bench: Bench, models: Path) -> None:
    """A user makes one with truncate(1) in a directory that root's file names."""
    with (models / "m.gguf").open("wb") as file:
        file.write(b"x" * MIB)
        file.flush()
        os.fsync(file.fileno())
        largest = next(size for size in (2**63 - 4096, 2**44 - 4096) if truncated(file.fileno(), size))
    bench.start()
    started = time.monotonic()
    told, about = await residency(bench)
    assert about["problems"] == []
    assert told["m.gguf"] == {"model": "m.gguf", "size": largest, "files": 1, "cached": largest, "problem": ""}
    make_cold(models / "m.gguf")
    assert (await residency(bench))[0]["m.gguf"]["cached"] == largest - MIB
    refused = await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")
    assert "would not stay in RAM" in refused.errors
    assert time.monotonic() - started < 30, "seconds of budget; it used to take centuries"


def truncated(descriptor: int, size: int) -> bool:
    """Whether the file system takes files of this size."""
    try:
        os.truncate(descriptor, size)
    except OSError:
        return False
    return True


async def test_it_stops_when_memory_becomes_short(bench: Bench, models: Path) -> None:
    make_cold(write(models / "m.gguf", 3 * MIB))
    bench.start()
    assert (await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")).status == 0
    (bench.memory / "pressure/memory").write_text("some avg10=40.00 avg60=0.00 avg300=0.00 total=0\n")
    assert await part(bench, 0) == (0, "programs have to wait for memory")
    refused = await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")
    assert "would not stay in RAM" in refused.errors


@pytest.mark.parametrize("text", ['title = "App"\n[match]\nunits = ["app.service"]\n', ""])
async def test_a_tenant_whose_models_nobody_has_named_has_none(bench: Bench, models: Path, text: str) -> None:
    (bench.tenants / "app.toml").write_text(text)
    bench.start()
    assert (await bench.ask("Residency", "s", "app")).status != 0
    assert (await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")).status != 0


async def test_a_file_that_others_could_have_written_is_not_believed(bench: Bench, models: Path) -> None:
    write(models / "m.gguf")
    (bench.tenants / "app.toml").chmod(0o666)
    bench.start()
    assert "No tenant is called 'app'" in (await bench.ask("Residency", "s", "app")).errors
    (bench.tenants / "app.toml").chmod(0o644)
    assert (await residency(bench))[0].keys() == {"m.gguf"}


async def test_layers_are_laid_over_each_other_as_the_supervisor_does(bench: Bench, models: Path) -> None:
    """An instance has what its base has, but for what its own file says."""
    write(models / "base/m.gguf")
    write(models / "own/n.gguf")
    text = TENANT.format(folder=models / "base").replace("[match]", "per-instance = true\n[match]")
    (bench.tenants / "app.toml").write_text(text)
    (bench.tenants / "app@two.toml").write_text(f'[models]\ndirectories = ["{models}/own"]\n')
    bench.start()
    assert (await residency(bench, "app@one"))[0].keys() == {"m.gguf"}
    assert (await residency(bench, "app@two"))[0].keys() == {"n.gguf"}


async def test_a_path_is_no_name_of_a_model(bench: Bench, models: Path) -> None:
    write(models / "m.gguf")
    bench.start()
    for name in ("/etc/passwd", "../m.gguf", str(models / "m.gguf"), ""):
        assert "Residency lists them" in (await bench.ask("BeginWarmUp", "ss", "app", name)).errors


async def test_warming_keeps_it_running(bench: Bench, models: Path) -> None:
    make_cold(write(models / "m.gguf", 4 * MIB))
    process = bench.start(idle=0.8)
    assert (await bench.ask("BeginWarmUp", "ss", "app", "m.gguf")).status == 0
    until = asyncio.get_running_loop().time() + 1.6
    while asyncio.get_running_loop().time() < until:
        assert (await part(bench, 0, 1000))[0] == 1000
    assert process.poll() is None
