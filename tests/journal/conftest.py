"""A journald of the test's own, and a root logger that is put back."""

import logging
from collections.abc import Iterator

import pytest

from tests.journal.journald import Journald


@pytest.fixture
def journald() -> Iterator[Journald]:
    with Journald() as journald:
        yield journald


@pytest.fixture(autouse=True)
def loggers_as_they_were() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("gpusupervisor")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
