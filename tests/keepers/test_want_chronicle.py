"""Journal entries about tenants that lack memory."""

import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.pressure import Pressure
from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.arbitration.swaps import Thrash
from gpusupervisor.journal.entry import Entry
from gpusupervisor.journal.messages import plans
from gpusupervisor.keepers.want_chronicle import RESTLESS, WantChronicle
from tests.arbitration.builders import CARD, GIB, NOW, situation, starving, tenant

SECOND = 1_000_000


class Seen(logging.Handler):
    """The entries that were written."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.entries.append(record.__dict__["entry"])


@pytest.fixture
def seen() -> Iterator[list[Entry]]:
    handler, ours = Seen(), logging.getLogger("gpusupervisor")
    before = ours.level
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    yield handler.entries
    ours.removeHandler(handler)
    ours.setLevel(before)


def look(chronicle: WantChronicle, now: Situation, *thrashing: Thrash) -> None:
    chronicle.assessed(now, assess(now), thrashing, {"ollama": "ollama"})


def test_a_load_that_failed_for_lack_of_memory_is_told_once_with_what_rested(seen: list[Entry]) -> None:
    pressure = Pressure("out-of-memory", NOW, 7 * GIB, 6 * GIB)
    failed = tenant("ollama", 1, pressure=pressure, cards=(CARD,))
    now = situation(failed, tenant("comfyui", 16.5), tenant("busy", 2, "busy"))
    chronicle = WantChronicle()
    for second in range(3):
        look(chronicle, replace(now, now=NOW + second * SECOND))
    (entry,) = [entry for entry in seen if isinstance(entry, plans.RanOutOfMemory)]
    assert (entry.tenant, entry.engine, entry.gpu) == ("ollama", "ollama", CARD)
    assert entry.resting == ("comfyui (16.5 GiB)",)
    assert "grown by 6.0 GiB" in entry.message()


def test_want_that_comes_and_goes_does_not_fill_the_journal(seen: list[Entry]) -> None:
    chronicle = WantChronicle()
    for second in range(40):
        free = 9 if second % 2 else 0
        look(chronicle, replace(situation(starving("ollama", need=8), free=free), now=NOW + second * SECOND))
    kinds = [type(entry).__name__ for entry in seen]
    assert kinds == ["TenantStarved", "TenantRelieved"] * RESTLESS


def test_a_pair_that_thrashes_is_named_once(seen: list[Entry]) -> None:
    chronicle, pair = WantChronicle(), Thrash(("comfyui", "ollama"), 4)
    for thrashing in ((pair,), (pair,), (), (pair,)):
        look(chronicle, situation(), *thrashing)
    assert [entry.message() for entry in seen] == [
        "comfyui and ollama take the memory from each other: 4 times within ten minutes"
    ] * 2
