"""A station for one test, or the start of one for a module."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.daemon.observer import Observer, observer_of
from tests.daemon.station import Station


@pytest.fixture
def lonely_station() -> Iterator[Station]:
    """A machine of this test's own."""
    station = Station()
    yield station
    station.close()


@pytest.fixture
async def observer(request: pytest.FixtureRequest) -> AsyncIterator[Observer]:
    """A client on the bus of the module's `station`."""
    station: Station = request.getfixturevalue("station")
    one = await observer_of(station.bus.address)
    yield one
    await hang_up(one)


async def hang_up(observer: Observer) -> None:
    observer.bus.disconnect()
    await observer.bus.wait_for_disconnect()  # type: ignore[no-untyped-call]
