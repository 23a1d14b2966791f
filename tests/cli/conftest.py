"""The command line as a process, on a private bus with a service behind it that does what a test wants."""

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from gpusupervisor.bus.service import BusService
from tests.bus.builders import FakeClock, no_jobs
from tests.bus.conftest import PERMISSIVE, PrivateBus, Result
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority

Run = Callable[..., Awaitable[Result]]
COMMAND = (sys.executable, "-m", "gpusupervisor.cli.main")


@pytest.fixture(scope="module")
def bus() -> Iterator[PrivateBus]:
    one = PrivateBus(PERMISSIVE)
    yield one
    one.stop()


@pytest.fixture
def mortal_bus() -> Iterator[PrivateBus]:
    """A bus that the test may kill."""
    one = PrivateBus(PERMISSIVE)
    yield one
    one.stop()


@pytest.fixture
def controller() -> FakeController:
    return FakeController()


@pytest.fixture
def authority() -> FixedAuthority:
    return FixedAuthority()


@pytest.fixture
def hardware() -> FakeHardware:
    return FakeHardware()


@pytest.fixture
async def service(
    bus: PrivateBus, controller: FakeController, hardware: FakeHardware, authority: FixedAuthority
) -> AsyncIterator[BusService]:
    one = await BusService.start(
        bus.address, controller, hardware, no_jobs(), "1.2.3", FakeClock(), lambda _bus: authority
    )
    yield one
    await one.stop()


@pytest.fixture
def ctl(bus: PrivateBus) -> Run:
    """Runs gpusupervisorctl to its end."""

    async def run(*arguments: str | os.PathLike[str]) -> Result:
        return await bus.run(*COMMAND, *map(str, arguments))

    return run
