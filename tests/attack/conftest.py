"""Attackers and an honest client on a bus of our own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.state import State
from tests.attack.raw import ATTACKER, HONEST, RawPeer, Watch
from tests.bus.builders import GIB, make_state
from tests.bus.conftest import (  # noqa: F401  (fixtures)
    PrivateBus,
    Starter,
    controller,
    hardware,
    jobs,
    mortal_bus,
    shared_bus,
    start,
    started,
)

Enter = Callable[..., Awaitable[RawPeer]]


def crowded(count: int = 200) -> State:
    """A state whose GetManagedObjects is large."""
    return make_state({f"tenant-{number}": GIB // 64 for number in range(count)})


@pytest.fixture
async def service(start: Starter) -> BusService:  # noqa: F811
    """A service with a great many tenants."""
    service = await start()
    service.publish(crowded())
    return service


@pytest.fixture
async def enter(shared_bus: PrivateBus) -> AsyncIterator[Enter]:  # noqa: F811
    """Connects peers, attackers unless told otherwise; all are gone after the test."""
    peers: list[RawPeer] = []

    async def connect(uid: int = ATTACKER) -> RawPeer:
        peers.append(await RawPeer.connect(shared_bus.address, uid))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.die()


@pytest.fixture
async def honest(enter: Enter, service: BusService) -> AsyncIterator[Watch]:
    """An honest user of another name, who asks throughout the test."""
    watch = Watch()
    peer = await enter(HONEST)
    asking = asyncio.create_task(watch.ask_for_ever(peer, 0.01))
    yield watch
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
