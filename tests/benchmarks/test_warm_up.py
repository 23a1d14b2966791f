"""Reading a model into RAM, against `cat file >/dev/null` in the same run, from a cold page cache each time."""

import os
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpusupervisor.memory import Memory
from gpusupervisor.models.model import Model
from gpusupervisor.models.residency import ModelResidency, residency_of, with_residency
from gpusupervisor.reader.page_cache.measure import Gauge
from gpusupervisor.reader.page_cache.residency import measure_one
from gpusupervisor.reader.page_cache.warm_up import WarmUps
from gpusupervisor.tenants.definition import ModelFolders
from tests.benchmarks.conftest import Report
from tests.model_files import MIB, disk_folder, make_cold, write

pytestmark = pytest.mark.benchmark_suite
SIZE = 512 * MIB
ROUNDS = 7


@pytest.fixture
def model() -> Iterator[Path]:
    folder = disk_folder()
    path = folder / "model.gguf"
    with path.open("wb") as file:
        block = os.urandom(MIB)
        for _ in range(SIZE // MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    yield path
    path.unlink()
    folder.rmdir()


def test_a_warm_up_is_as_fast_as_cat(model: Path, figure: Report) -> None:
    folders = ModelFolders((str(model.parent),))
    owner = os.geteuid()
    warm_ups = WarmUps(lambda: Memory(1 << 40, 1 << 40), owner)

    def warm() -> None:
        seen = measure_one(folders, model.name, Gauge(), owner)
        assert seen is not None
        total, position = warm_ups.begin("app", seen), 0
        while position < total:
            position = warm_ups.go_on("app", model.name, position, total).position

    def cat() -> None:
        subprocess.run(["/bin/sh", "-c", f"cat '{model}' >/dev/null"], check=True)

    works, took = (cat, warm), {cat: list[float](), warm: list[float]()}
    for number in range(ROUNDS):
        for work in works if number % 2 else works[::-1]:  # neither profits from being second
            took[work].append(timed(work, model))
            assert measured(model) > SIZE * 0.99  # the kernel may take a few pages away again
    figure("a warm-up's time, that of cat being 100", *share(took[warm], took[cat]), 100 / 0.9)


def share(ours: list[float], theirs: list[float]) -> tuple[float, str]:
    """Without the first round, in which the disk itself may have been cold."""
    return 100 * statistics.median(ours[1:]) / statistics.median(theirs[1:]), "%"


def timed(work: Callable[[], None], model: Path) -> float:
    """Seconds from a cold page cache."""
    make_cold(model)
    assert measured(model) == 0
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def measured(model: Path) -> int:
    with model.open("rb") as file:
        return Gauge().cached(file.fileno())


def test_joining_a_thousand_models_with_their_files_is_cheap(figure: Report) -> None:
    """It is done when something has changed; a tick in which nothing has does not do it at all."""
    names = [f"folder{number}/model-{number}.gguf" for number in range(1000)]
    residency = residency_of([ModelResidency(name, 1 << 30, 0) for name in names], "cachestat", (), 0)
    models = tuple(Model(name.rpartition("/")[2]) for name in names)
    started = time.perf_counter()
    joined = with_residency(models, residency)
    figure("1,000 models joined with their files", (time.perf_counter() - started) * 1000, "ms", 20)
    assert all(model.cached == 0 for model in joined)


def test_a_thousand_files_are_looked_at(figure: Report) -> None:
    from gpusupervisor.reader.page_cache.residency import measure_all

    folder = disk_folder()
    try:
        for number in range(1000):
            write(folder / f"{number}.gguf", 4096)
        started = time.perf_counter()
        found = measure_all(ModelFolders((str(folder),)), Gauge(), os.geteuid())
        figure("what is in RAM of 1,000 files", (time.perf_counter() - started) * 1000, "ms", 500)
        assert len(found.models) == 1000
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
