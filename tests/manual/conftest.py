"""The service with a little of everything, for what the pages say of it."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gpusupervisor.bus.service import BusService
from gpusupervisor.jobs import Job, Jobs
from tests.bus.builders import FakeClock, make_controls, make_state
from tests.bus.conftest import PrivateBus
from tests.bus.fakes import FakeController, FakeHardware, FixedAuthority
from tests.bus.test_models import with_models
from tests.bus.test_telemetry import FakeTelemetry
from tests.cli.conftest import authority, bus, controller, ctl, hardware
from tests.cli.labour import Labour

__all__ = ["authority", "bus", "controller", "ctl", "hardware"]


class Shown:
    """Jobs that the service shows."""

    service: BusService

    def __call__(self, job: Job) -> None:
        self.service.show_job(job)


@pytest.fixture
async def service(
    bus: PrivateBus,
    controller: FakeController,
    hardware: FakeHardware,
    authority: FixedAuthority,
) -> AsyncIterator[BusService]:
    """A card, tenants, a profile, telemetry, and job 1, which runs."""
    shown = Shown()
    jobs = Jobs(FakeClock(), shown)
    one = await BusService.start(
        bus.address, controller, hardware, jobs, "1.2.3", FakeClock(), lambda _bus: authority, FakeTelemetry()
    )
    shown.service = one
    one.publish(replace(with_models(make_state()), controls=make_controls()))
    labour = Labour()
    jobs.start("autotune", labour, "GPU-1", owner=0)
    await labour.begun.wait()
    yield one
    await jobs.close()
    await one.stop()
