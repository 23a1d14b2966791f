"""A peer that answers, and an HTTP client to ask it with."""

from collections.abc import AsyncIterator

import pytest

from gpusupervisor.engine_http import EngineHttp
from tests.http_peer import Peer


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.start()
    yield peer
    await peer.stop()


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    client = EngineHttp()
    yield client
    await client.aclose()
