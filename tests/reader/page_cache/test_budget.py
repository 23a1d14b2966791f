"""Whatever a user puts into a model directory, a look at it ends soon and says what it left out."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpusupervisor.reader.page_cache import measure
from gpusupervisor.reader.page_cache.budget import Budget
from gpusupervisor.reader.page_cache.extents import data_of
from gpusupervisor.reader.page_cache.measure import Gauge
from gpusupervisor.reader.page_cache.residency import Residency, measure_all
from gpusupervisor.tenants.definition import ModelFolders, ModelLayout
from tests.model_files import ME, MIB, disk_folder, ollama_model, write

SOON = 30.0
"""Seconds: the budget is 5, and the machine may be busy."""


@pytest.fixture
def disk() -> Iterator[Path]:
    import shutil

    folder = disk_folder()
    yield folder
    shutil.rmtree(folder)


def examined(folder: Path, budget: Budget, layout: ModelLayout = "files") -> Residency:
    started = time.monotonic()
    found = measure_all(ModelFolders((str(folder),), layout), Gauge(budget), ME)
    assert time.monotonic() - started < SOON
    return found


def test_data_without_end_is_measured_only_as_far_as_the_budget_goes(disk: Path) -> None:
    for name in ("a.gguf", "b.gguf", "c.gguf"):
        write(disk / name)
    found = examined(disk, Budget(bytes=MIB))
    assert [model.cached for model in found.models] == [MIB, None, None]
    assert all("was not measured" in model.problem for model in found.models[1:])
    assert len(found.problems) == 1


@pytest.mark.parametrize("method", ["cachestat", "mincore"])
def test_a_file_system_that_knows_no_holes_is_measured_until_the_time_is_up(
    disk: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """There a sparse file is data throughout: the old way to spin for ever."""
    path = disk / "m.gguf"
    path.touch()
    os.truncate(path, 1 << 43)
    monkeypatch.setattr(measure, "data_of", lambda _, start, end: iter([(start, end)]))
    gauge = Gauge(Budget(until=time.monotonic() + 0.5))
    if method == "mincore":
        gauge.method = "mincore"
    started = time.monotonic()
    found = measure_all(ModelFolders((str(disk),), "files"), gauge, ME)
    assert time.monotonic() - started < SOON
    assert found.models[0].cached is None
    assert found.problems == ("to examine the files takes longer than 5 s, and the rest was left out",)


def test_a_file_of_a_hundred_thousand_extents_does_not_outlast_the_budget(disk: Path) -> None:
    with (disk / "m.gguf").open("wb") as file:
        for number in range(100_000):
            os.pwrite(file.fileno(), b"x", number * 16384)
    found = examined(disk, Budget(until=time.monotonic() + 0.05))
    assert found.models == () or found.models[0].cached is None


def test_manifests_count_as_work_too(disk: Path) -> None:
    for number in range(20):
        ollama_model(disk, f"registry.ollama.ai/library/m{number}/latest", 1)

    class Ending(Budget):
        """Runs out after the walk."""

        def allow_entry(self) -> bool:
            return True

        def allow(self, size: int = 0) -> bool:
            self.cut = "spent"
            return False

    assert examined(disk, Ending(), "ollama").problems == ("spent",)


@contextmanager
def growing(path: Path) -> Iterator[None]:
    """A file to which somebody writes all the time."""
    stop = threading.Event()

    def grow() -> None:
        with path.open("ab") as file:
            while not stop.is_set():
                file.write(b"x" * 65536)
                file.flush()
                if file.tell() > 64 * MIB:
                    file.truncate(0)

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_file_that_grows_and_shrinks_meanwhile_is_measured_once(disk: Path) -> None:
    path = write(disk / "m.gguf")
    with growing(path):
        for _ in range(20):
            (model,) = examined(disk, Budget()).models
            assert model.cached is None or 0 <= model.cached <= model.size


def test_fifos_sockets_and_devices_with_the_names_of_models_are_not_opened(disk: Path) -> None:
    os.mkfifo(disk / "fifo.gguf")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(disk / "socket.gguf"))
    (disk / "device.gguf").symlink_to("/dev/zero")
    found = examined(disk, Budget())
    assert [model.cached for model in found.models] == [None] * len(found.models)


def test_data_ranges_of_a_file(disk: Path) -> None:
    path = disk / "m.gguf"
    with path.open("wb") as file:
        os.pwrite(file.fileno(), b"x" * MIB, 4 * MIB)
        os.truncate(file.fileno(), 16 * MIB)
        file.flush()
        os.fsync(file.fileno())
    descriptor = os.open(path, os.O_RDONLY)
    try:
        assert list(data_of(descriptor, 0, 16 * MIB)) == [(4 * MIB, 5 * MIB)]
        assert list(data_of(descriptor, 4 * MIB + 5, 16 * MIB)) == [(4 * MIB + 5, 5 * MIB)]
        assert list(data_of(descriptor, 6 * MIB, 16 * MIB)) == []
        assert list(data_of(descriptor, 0, 0)) == []
    finally:
        os.close(descriptor)
