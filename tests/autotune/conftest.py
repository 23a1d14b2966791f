"""A client of engines."""

from collections.abc import AsyncIterator

import pytest

from gpusupervisor.engine_http import EngineHttp


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    client = EngineHttp()
    yield client
    await client.aclose()
