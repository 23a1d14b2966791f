import pytest

from gpusupervisor.bus.declare import Interface, Property
from gpusupervisor.bus.published import PublishedProperties, moved
from gpusupervisor.bus.wire import details
from gpusupervisor.clock import UNKNOWN
from tests.bus.builders import MIB

BAND = 64 * MIB
INTERFACE = Interface(
    "a.B",
    properties=(
        Property("Id", "s", "const"),
        Property("State", "s"),
        Property("Used", "t", gauge=True),
        Property("SampledAt", "t", "false"),
        Property("Processes", "aa{sv}", "invalidates", gauge=True),
    ),
)


def values(state: str = "idle", used: int | None = 1000 * MIB, sampled_at: int = 1) -> dict[str, object]:
    processes = [details(pid=("u", 7), used=("t", used))]
    return {"Id": "x", "State": state, "Used": used, "SampledAt": sampled_at, "Processes": processes}


@pytest.fixture
def published() -> PublishedProperties:
    return PublishedProperties(INTERFACE, values(), 0.0)


@pytest.mark.parametrize(
    ("old", "new", "worth_it"),
    [
        (1000 * MIB, 1063 * MIB, False),
        (1000 * MIB, 1064 * MIB, True),
        (1000 * MIB, 936 * MIB, True),
        (1 * MIB, 0, True),
        (0, 1 * MIB, False),
        (UNKNOWN, 1, True),
        (UNKNOWN, 0, True),
        (5 * MIB, UNKNOWN, True),
        ({"a": MIB}, {"a": 2 * MIB}, False),
        ({"a": MIB}, {"b": MIB}, True),
        ([details(pid=("u", 1), used=("t", 1))], [details(pid=("u", 1), used=("t", 2))], False),
        ([details(pid=("u", 1), used=("t", 1))], [details(pid=("u", 2), used=("t", 1))], True),
        ([], [details(pid=("u", 2), used=("t", 1))], True),
    ],
)
def test_the_dead_band(old: object, new: object, worth_it: bool) -> None:
    assert moved(old, new, BAND) is worth_it


def test_readers_get_the_newest_value_though_it_is_not_worth_a_signal(published: PublishedProperties) -> None:
    published.update(values(used=1001 * MIB, sampled_at=2))
    assert published.changes(BAND) is None
    assert published.shown["Used"].value == 1001 * MIB
    assert published.shown["SampledAt"].value == 2


def test_small_moves_add_up_from_what_was_last_sent(published: PublishedProperties) -> None:
    for used in range(1010 * MIB, 1064 * MIB, 10 * MIB):
        published.update(values(used=used))
        assert published.changes(BAND) is None
    published.update(values(used=1064 * MIB))
    changes = published.changes(BAND)
    assert changes is not None
    assert changes.changed["Used"].value == 1064 * MIB
    assert changes.invalidated == ["Processes"]


def test_when_something_is_sent_all_that_differs_goes_with_it(published: PublishedProperties) -> None:
    published.update(values("busy", used=1001 * MIB, sampled_at=9))
    changes = published.changes(BAND)
    assert changes is not None
    assert set(changes.changed) == {"State", "Used"}
    published.mark_sent(1.0)
    assert published.changes(BAND) is None


def test_a_value_that_came_back_before_it_was_sent_sends_nothing(published: PublishedProperties) -> None:
    published.update(values("busy"))
    published.update(values("idle"))
    assert published.changes(BAND) is None
