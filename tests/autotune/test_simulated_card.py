"""A sweep of the simulated card, through the helper's own way of setting it, as a job, with its own power model."""

import asyncio
from collections.abc import Iterator

import pytest

from gpusupervisor.autotune.curve import Look, Tuning, Work
from gpusupervisor.autotune.points import Point, subsample, sweep
from gpusupervisor.autotune.run import Autotune, Load, Rules
from gpusupervisor.errors import GpuUnavailable
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.jobs import Job, Jobs
from gpusupervisor.simulation.nvml import Board, SimulatedGpu, World, installed
from gpusupervisor.simulation.nvml.power_handlers import running_at
from tests.autotune.rig import SECOND, FakeClock

GPU = "GPU-aaaaaaaa"
RULES = Rules(settle=0, period=0)


class Card:
    """Control and sensors over the helper's view of one GPU."""

    def __init__(self, session: HardwareSession, clock: FakeClock) -> None:
        self._session = session
        self._clock = clock
        self._before = self.gpu.power_limit(), self.gpu.offset("graphics")

    @property
    def gpu(self) -> GpuHardware:
        return self._session.gpu(GPU)

    async def set(self, point: Point, within: int) -> Point:
        try:
            accepted = self.gpu.set_power_limit(point.power_limit)
            return Point(accepted, None if point.offset is None else self.gpu.set_offset("graphics", point.offset))
        except DriverError as error:
            raise GpuUnavailable(f"The GPU cannot be set: {error}") from error

    async def restore(self) -> None:
        if (self.gpu.power_limit(), self.gpu.offset("graphics")) != self._before:
            self.gpu.set_power_limit(self._before[0])
            self.gpu.set_offset("graphics", self._before[1])

    async def look(self) -> Look:
        self._clock.time += SECOND // 4
        xids = tuple(xid.code for xid in self._session.xids())
        reasons = self.gpu.clock_event_reasons()
        return Look(self._clock.now(), self.gpu.power_usage(), self.gpu.temperatures().gpu, reasons, xids=xids)


class ClockBound:
    """Work that is as fast as the graphics clock: a token for each 50 MHz in a second."""

    unit = "token"

    def __init__(self, world: World, clock: FakeClock) -> None:
        self._world = world
        self._clock = clock

    async def prepare(self) -> None:
        pass

    async def run(self, timeout: int) -> Work:
        gpu = self._world.gpus[0]
        speed = running_at(gpu.board, self._world.settings_of(gpu), "graphics")
        duration = 200 * SECOND * 50 // speed
        assert duration < timeout
        ends = self._clock.now() + duration
        while self._clock.now() < ends:
            await asyncio.sleep(0)
        return Work(200, duration)


@pytest.fixture
def world() -> Iterator[World]:
    with installed(World([SimulatedGpu(GPU, board=Board(power=420_000, offset_step=15))])) as world:
        yield world


@pytest.fixture
def session(world: World) -> Iterator[HardwareSession]:
    session = HardwareSession()
    session.gpu(GPU)  # opened here, where nothing else waits meanwhile
    yield session
    session.close()


async def tune(world: World, session: HardwareSession, *points: Point) -> Job:
    """The sweep as a job, to its end."""
    clock = FakeClock()
    card, load = Card(session, clock), ClockBound(world, clock)
    checked: Load = load
    jobs = Jobs(clock, lambda _: None)
    job = jobs.start("autotune", lambda report: Autotune(card, card, checked, clock, RULES).run(points, report))
    async with asyncio.timeout(20):
        while jobs.get(job.id).state == "running":
            await asyncio.sleep(0)
    return jobs.get(job.id)


async def test_the_efficient_limit_is_proposed_and_the_one_before_stays(world: World, session: HardwareSession) -> None:
    world.settings_of(world.gpus[0]).power_limit = 333_000
    allowed = session.gpu(GPU).capabilities().power_limit
    assert allowed.minimum is not None
    assert allowed.maximum is not None
    limits = subsample(range(allowed.minimum, allowed.maximum + 1, 10_000), 12)
    job = await tune(world, session, *sweep(limits))
    assert (job.state, job.progress, job.detail) == ("succeeded", 100, "")
    tuning = job.result
    assert isinstance(tuning, Tuning)
    assert [each.point.power_limit for each in tuning.curve] == list(limits)
    assert [each.power for each in tuning.curve] == [min(limit, 420_000) for limit in limits]
    assert tuning.proposal is not None
    assert 0.857 * 420_000 <= tuning.proposal.power < 0.95 * 420_000  # a clock 5 % lower needs 0.95³ of the power
    assert "sw-power-cap" in tuning.proposal.reasons
    assert world.settings_of(world.gpus[0]).power_limit == 333_000


async def test_an_offset_is_measured_as_it_was_snapped(world: World, session: HardwareSession) -> None:
    job = await tune(world, session, *sweep([300_000], [0, 50]))
    tuning = job.result
    assert isinstance(tuning, Tuning)
    assert [each.point for each in tuning.curve] == [Point(300_000, 0), Point(300_000, 45)]
    assert tuning.proposal == tuning.curve[1]
    assert session.gpu(GPU).offset("graphics") == 0


async def test_an_xid_stops_the_job_and_what_was_measured_is_kept(
    world: World, session: HardwareSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = GpuHardware.set_power_limit

    def crashing(gpu: GpuHardware, milliwatts: int) -> int:
        if milliwatts == 250_000:
            world.gpus[0].xids.append(13)
        return setting(gpu, milliwatts)

    monkeypatch.setattr(GpuHardware, "set_power_limit", crashing)
    job = await tune(world, session, *sweep([200_000, 250_000, 300_000]))
    assert (job.state, job.detail) == ("failed", "The sweep was stopped: the GPU reported Xid 13")
    assert isinstance(job.result, Tuning)
    assert [each.point.power_limit for each in job.result.curve] == [200_000]
    assert job.result.proposal is None
    assert session.gpu(GPU).power_limit() == 450_000


async def test_a_card_that_takes_no_limit_is_left_as_it_was(world: World, session: HardwareSession) -> None:
    world.privileged = False
    job = await tune(world, session, Point(200_000))
    assert (job.state, job.result) == ("failed", Tuning("token", 5))
    assert "Insufficient permissions" in job.detail
    assert world.settings_of(world.gpus[0]).power_limit is None
