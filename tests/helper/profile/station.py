"""A profile keeper on a simulated card, and a card that only remembers."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from gpusupervisor.gpu.nvml_thread import NvmlThread
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.profile.access import NvmlAccess
from gpusupervisor.helper.profile.card import Card
from gpusupervisor.helper.profile.record import Record
from gpusupervisor.helper.profile.store import ProfileStore
from gpusupervisor.helper.profile.trial import Trial
from gpusupervisor.helper.profile_keeper import ProfileKeeper
from gpusupervisor.helper.profile_state import ProfileEvent
from gpusupervisor.helper.values import Capabilities, Capability, ClockDomain, FanSetting, Support
from gpusupervisor.simulation.nvml import Board, Settings, SimulatedGpu, World
from tests.gpu.machine import HandClock

Result = TypeVar("Result")
GPU = "GPU-11111111-2222-3333-4444-555555555555"
BOOT = "11111111-0000-0000-0000-000000000001"
NEXT_BOOT = "22222222-0000-0000-0000-000000000002"


def capabilities(
    *,
    power: Capability = Capability("supported", "", 150_000, 480_000, 450_000),  # noqa: B008  (a frozen value)
    offset: Capability = Capability("supported", "", -500, 500, 0),  # noqa: B008
    locked: Capability = Capability("unverifiable", "no getter", 210, 3105),  # noqa: B008
    fans: Capability = Capability("supported", "", 30, 100),  # noqa: B008
    fan_count: int = 2,
    persistence: Support = "supported",
) -> Capabilities:
    domains: tuple[ClockDomain, ...] = ("graphics", "memory")
    return Capabilities(
        fans=fans,
        fan_count=fan_count,
        temperature=Capability("supported"),
        power_limit=power,
        offsets=dict.fromkeys(domains, offset),
        locked_clocks=dict.fromkeys(domains, locked),
        persistence=Capability(persistence, "" if persistence == "supported" else "a laptop"),
    )


class RecordingCard:
    """Takes everything it is asked to set and remembers it."""

    def __init__(self, able: Capabilities) -> None:
        self.able = able
        self.calls: list[tuple[object, ...]] = []
        self.power = 450_000
        self.enforced: int | None = None
        self.offsets: dict[ClockDomain, int] = {"graphics": 0, "memory": 0}
        self.persistent = False
        self.reasons: frozenset[str] = frozenset()

    @property
    def generation(self) -> int:
        return 1

    async def ask(self, work: Callable[[Card], Result]) -> Result:
        return work(self)

    def capabilities(self) -> Capabilities:
        return self.able

    def power_limit(self) -> int:
        return self.power

    def enforced_power_limit(self) -> int | None:
        return self.enforced

    def set_power_limit(self, milliwatts: int) -> int:
        self.calls.append(("power-limit", milliwatts))
        self.power = milliwatts
        return milliwatts

    def offset(self, domain: ClockDomain) -> int:
        return self.offsets[domain]

    def set_offset(self, domain: ClockDomain, megahertz: int) -> int | None:
        self.calls.append((f"offset-{domain}", megahertz))
        self.offsets[domain] = megahertz
        return megahertz

    def set_locked_clocks(self, domain: ClockDomain, low: int, high: int) -> tuple[int, int]:
        self.calls.append((f"locked-clocks-{domain}", low, high))
        return low, high

    def reset_locked_clocks(self, domain: ClockDomain) -> None:
        self.calls.append((f"reset-{domain}",))

    def persistence(self) -> bool:
        return self.persistent

    def set_persistence(self, on: bool) -> bool:
        self.calls.append(("persistence", on))
        self.persistent = on
        return on

    def clock_event_reasons(self) -> frozenset[str]:
        return self.reasons


@dataclass
class RecordingFans:
    """A fan loop that takes everything."""

    now: dict[int, FanSetting] = field(default_factory=lambda: {0: FanSetting(), 1: FanSetting()})
    calls: list[tuple[object, ...]] = field(default_factory=list)

    def settings(self) -> Mapping[int, FanSetting]:
        return dict(self.now)

    async def set_fan(self, index: int, setting: FanSetting) -> None:
        self.calls.append((f"fan-{index}", setting))
        self.now[index] = setting


class Station:
    """The simulated machine with one card, and helpers that start and die on it."""

    def __init__(self, folder: Path, world: World) -> None:
        self.world = world
        self.folder = folder
        self.clock = HandClock()
        self.boot = BOOT
        self.fans = RecordingFans()
        self.events: list[ProfileEvent] = []
        self.thread = NvmlThread()
        self.session = HardwareSession()
        self.keeper = self._keeper()

    @property
    def board(self) -> Board:
        return self.gpu.board

    @property
    def gpu(self) -> SimulatedGpu:
        return self.world.gpus[0]

    @property
    def now_set(self) -> Settings:
        """What the card is set to."""
        return self.world.settings_of(self.gpu)

    @property
    def store(self) -> ProfileStore:
        return ProfileStore(self.folder, owner=self.folder.stat().st_uid)

    @property
    def power(self) -> int:
        """The power limit that is set, mW."""
        limit = self.now_set.power_limit
        return self.board.power_default if limit is None else limit

    async def stored(self) -> Record | None:
        """The profile on disk."""
        return await asyncio.to_thread(self.store.load, GPU)

    async def stored_trial(self) -> Trial | None:
        """The running trial on disk."""
        return await asyncio.to_thread(self.store.load_trial, GPU)

    def _keeper(self) -> ProfileKeeper:
        access = NvmlAccess(self.thread, self.session, GPU)
        return ProfileKeeper(GPU, access, self.fans, self.store, self.clock, self.boot, self.events.append)

    async def killed_and_started(self, *, down: float = 1.0) -> ProfileKeeper:
        """The helper dies without a word, and another one starts."""
        self.clock.advance(down)
        self.fans = RecordingFans()
        self.session = HardwareSession()
        self.keeper = self._keeper()
        await self.keeper.start()
        return self.keeper

    async def rebooted(self, *, orderly: bool) -> ProfileKeeper:
        """The machine goes down and comes up: the driver forgot everything."""
        if orderly:
            await self.keeper.close()
        self.world.reload_driver()
        self.world.references = 0
        self.boot = NEXT_BOOT
        self.clock.instant = 20_000_000
        return await self.killed_and_started()

    async def later(self, seconds: float) -> None:
        """Time passes, and what is due is done."""
        self.clock.advance(seconds)
        await self.keeper.tick()

    async def close(self) -> None:
        await asyncio.wait_for(self.thread.call(self.session.close, deadline=5.0), 6.0)
        await self.thread.close()
