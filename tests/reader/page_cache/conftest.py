"""A folder on a disk, and tests that may block."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.model_files import disk_folder


@pytest.fixture
def disk() -> Iterator[Path]:
    folder = disk_folder()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """What blocks is what is tested; it runs away from the event loop."""
