"""A simulated card, and simulated engines as processes on it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from gpusupervisor.engine_http import EngineHttp
from gpusupervisor.simulation.engines.launch import Engine, start_engine
from gpusupervisor.simulation.nvml import CardWorld, SimulatedCard, SimulatedProcess

Start = Callable[..., Awaitable[Engine]]


@pytest.fixture(autouse=True)
def no_blocking_calls() -> None:
    """Not here: the engines are other processes, and these tests look at the card's files as they please."""


@pytest.fixture
def card(tmp_path: Path) -> Path:
    directory = tmp_path / "card"
    SimulatedCard(directory).write_card()
    return directory


@pytest.fixture
async def start(card: Path) -> AsyncIterator[Start]:
    engines: list[Engine] = []

    async def starting(name: str, *arguments: str, executable: Path | None = None) -> Engine:
        port = () if name == "desktop" else ("--port", "0")
        engine = await start_engine(
            name, "--card", card, "--return-delay", "100ms", *port, *arguments, executable=executable
        )
        engines.append(engine)
        return engine

    yield starting
    for engine in engines:
        await engine.stop()


@pytest.fixture
async def http() -> AsyncIterator[EngineHttp]:
    client = EngineHttp()
    yield client
    await client.aclose()


class CardView:
    """What the simulated driver would list."""

    def __init__(self, directory: Path) -> None:
        self._world = CardWorld(directory)

    def processes(self) -> list[SimulatedProcess]:
        self._world.refresh()
        return self._world.gpus[0].listed()

    def held(self) -> int:
        return sum(process.used or 0 for process in self.processes())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until it is so, ten seconds at most."""
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
def view(card: Path) -> CardView:
    return CardView(card)
