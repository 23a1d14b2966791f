"""The reader as a process on a private bus."""

from collections.abc import Iterator

import pytest

from tests.bus.conftest import shared_bus  # noqa: F401  (a fixture)
from tests.helper.conftest import ReaderBench, set_up


@pytest.fixture
def bench() -> Iterator[ReaderBench]:
    bench = ReaderBench(*set_up())
    yield bench
    bench.close()
