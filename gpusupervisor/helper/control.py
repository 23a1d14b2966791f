"""All that is controlled of one GPU: its fans and its profile, and when both are let be."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.errors import Busy, GpuUnavailable, InvalidArgument, NoSuchGpu, NotSupported, SupervisorError
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.nvml_thread import DriverUnresponsive
from gpusupervisor.gpu.sample import GpuIdentity
from gpusupervisor.helper.drift.verdict import Verdict
from gpusupervisor.helper.fans.controller import FanController
from gpusupervisor.helper.fans.report import Alert, FanReport
from gpusupervisor.helper.profile.access import NvmlAccess
from gpusupervisor.helper.profile.card import CardError, present
from gpusupervisor.helper.profile_keeper import HasLeft, ProfileKeeper
from gpusupervisor.helper.profile_state import ProfileEvent, ProfileState
from gpusupervisor.helper.values import Capabilities, FanSetting, ItemResult, Profile, Sensors
from gpusupervisor.journal.entry import write
from gpusupervisor.journal.messages.hardware import FanFailSafe

WATCHED = 10 * MICROSECONDS
"""A GPU whose sensors are read in turn is watched until so long after the last time: NVML stays open, which alone tells
of Xids."""
XIDS_KEPT = 64

Condition = Literal["ok", "asleep", "given-away", "unavailable"]


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that `GpuControl.shown` tells is different."""


GpuEvent = ProfileEvent | Alert | Changed
Tell = Callable[[str, GpuEvent], None]
"""Takes the GPU's UUID and what happened."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What can be shown of one GPU, as it was when it was looked at last."""

    identity: GpuIdentity
    condition: Condition
    detail: str
    """Why it is `unavailable`."""
    capabilities: Capabilities | None
    """None while it has not answered yet."""
    fans: FanReport | None
    settings: Mapping[int, FanSetting]
    """What is wanted of the fans."""
    profile: ProfileState


@dataclass(frozen=True, slots=True)
class Moment:
    """One GPU at one moment, and what has happened to it."""

    sensors: Sensors
    xid_count: int
    """Errors that the driver reported since this helper started."""
    xids: tuple[int, ...]
    """The last of them, oldest first."""
    trial_deadline: int | None
    """Microseconds of the domain clock; None while no profile is on trial."""


class GpuControl:
    """Of one GPU. What a caller asks for raises SupervisorErrors only."""

    def __init__(
        self,
        identity: GpuIdentity,
        access: NvmlAccess,
        keeper: ProfileKeeper,
        fans: FanController,
        clock: Clock,
        tell: Tell,
        *,
        stored: bool,
        given_away: bool,
    ) -> None:
        """stored: something on disk waits to be applied. given_away: it was when this helper started."""
        self.identity = identity
        self.given_away = given_away
        self.dormant = False
        """The GPU sleeps by itself: asking it anything would wake it."""
        self._access = access
        self._keeper = keeper
        self._fans = fans
        self._clock = clock
        self._tell = tell
        self._stored = stored
        self._begun = False
        self._machine_sleeps = False
        self._beginning = asyncio.Lock()
        self._fan_turn = asyncio.Lock()
        self._xids: list[int] = []
        self._xid_count = 0
        self._last_xids: deque[int] = deque(maxlen=XIDS_KEPT)
        self._watched_until = 0
        self._capabilities: Capabilities | None = None
        self._report: FanReport | None = None
        self._problem = ""
        self._told: object = None
        self._notice()

    @property
    def held(self) -> str:
        """What is controlled, in a few words for a person; empty for nothing."""
        if self.given_away:
            return ""
        profile = self._keeper.held if self._begun else "a profile" if self._stored else ""
        fans = "fans" if self._fans.held or self._fans.is_parked else ""
        return " and ".join(part for part in (fans, profile) if part)

    def note_dormant(self, dormant: bool) -> None:
        """The GPU sleeps by itself, or does not; one that wakes may have lost what was set."""
        if self.dormant and not dormant:
            self._keeper.trigger("waking")
        self.dormant = dormant

    @property
    def needs_driver(self) -> bool:
        """NVML must stay open although the GPU could sleep: fans are held, or a profile could still do harm."""
        record = self._keeper.state().record
        unsettled = record is not None and record.phase != "settled" and not record.distrust
        return self._fans.held or self._keeper.state().trial is not None or unsettled

    @property
    def watched(self) -> bool:
        """Its sensors were read only just now."""
        return self._may_act() and self._clock.now() < self._watched_until

    def shown(self) -> Shown:
        """How things are, without asking the GPU."""
        condition: Condition = "ok"
        if self.given_away:
            condition = "given-away"
        elif self.dormant:
            condition = "asleep"
        elif self._problem:
            condition = "unavailable"
        return Shown(
            self.identity,
            condition,
            self._problem,
            self._capabilities,
            self._report,
            self._fans.settings(),
            self._keeper.state(),
        )

    async def look(self) -> None:
        """Ask the GPU how it is, unless it is to be left alone."""
        if not self._may_act():
            return
        await self._begin()
        try:
            self._capabilities = await present(self._access)
            self._problem = ""
        except CardError as error:
            self._problem = str(error)
        async with self._fan_turn:
            self._take(await self._fans.tick(self._clock.now()))

    async def control_fans_for_ever(self, pause: float) -> None:
        """A tick of the fans every `pause` seconds, while any is held."""
        while True:
            async with self._fan_turn:
                if self._may_act():
                    await self._unpark()
                    if self._fans.held:
                        self._take(await self._fans.tick(self._clock.now()))
            self._notice()
            await asyncio.sleep(pause)

    async def keep_profile_for_ever(self, pause: float) -> None:
        """What is due for the profile, looked at every `pause` seconds."""
        while True:
            if self._may_act():
                await self._begin()
                while self._xids:
                    await self._keeper.xid(self._xids.pop(0))
                due = self._keeper.next_due()
                if due is not None and due <= self._clock.now():
                    await self._keeper.tick()
            self._notice()
            await asyncio.sleep(pause)

    def xid(self, code: int) -> None:
        """The driver reported an error of it."""
        self._xids.append(code)
        self._last_xids.append(code)
        self._xid_count += 1

    async def watch(self) -> Moment:
        """How it is now, for whoever looks again soon. Raises GpuUnavailable."""
        await self._ready()
        self._watched_until = self._clock.now() + WATCHED
        try:
            sensors = await self._access.read_sensors(self._clock)
        except CardError as error:
            raise GpuUnavailable(f"The sensors of the GPU cannot be read: {error}") from error
        trial = self._keeper.state().trial
        deadline = None if trial is None else trial.deadline
        return Moment(sensors, self._xid_count, tuple(self._last_xids), deadline)

    async def set_fan(self, index: int, setting: FanSetting) -> None:
        """Set one fan, until the helper ends: what is to last belongs in a profile."""
        await self._ready()
        if self._keeper.state().trial is not None:
            raise Busy("A profile is on trial: confirm it or revert it first")
        async with self._fan_turn:
            self._refuse()
            await self._fans.set_fan(index, setting)
            self._take(await self._fans.tick(self._clock.now()))
        self._notice()

    async def apply(self, profile: Profile) -> tuple[ItemResult, ...]:
        """Set a profile and keep it."""
        await self._ready()
        return self._noticing(await self._keeper.apply(profile))

    async def try_(self, profile: Profile, within: int, has_left: HasLeft | None = None) -> tuple[ItemResult, ...]:
        """Set a profile until it is confirmed or the time is up. has_left: see `ProfileKeeper.try_`."""
        await self._ready()
        return self._noticing(await self._keeper.try_(profile, within, has_left))

    async def confirm(self) -> None:
        """Keep the profile on trial."""
        await self._ready()
        await self._keeper.confirm()
        self._notice()

    async def revert(self) -> tuple[ItemResult, ...]:
        """Set the state before the trial again."""
        await self._ready()
        return self._noticing(await self._keeper.revert())

    async def reset(self) -> tuple[ItemResult, ...]:
        """The card's defaults, and no profile any more."""
        await self._ready()
        return self._noticing(await self._keeper.reset())

    async def check_drift(self) -> tuple[Verdict, ...]:
        """Look now whether what was set still stands."""
        await self._ready()
        verdicts = await self._keeper.check_drift()
        self._notice()
        return verdicts

    async def give_away(self) -> None:
        """Let go of everything: the fans are automatic when this returns.

        Raises Busy during a trial, GpuUnavailable when a fan cannot be given back; then nothing has changed.
        """
        self.given_away = True
        try:
            await self._keeper.freeze()
            if self._keeper.state().trial is not None:  # only now, because one may just have been beginning
                raise Busy("A profile is on trial: confirm it or revert it first")
            await self._park()
            if self._fans.held and not await self._is_gone():
                raise GpuUnavailable("A fan could not be given back to the driver, so the GPU was kept: try again")
        except SupervisorError:
            self.take_back()
            raise
        self._notice()

    def take_back(self) -> None:
        """It is ours again: what was set before is set again."""
        self.given_away = False
        self._thaw()
        self._notice()

    async def machine_goes_to_sleep(self) -> None:
        """The fans are automatic and nothing is being set when this returns."""
        self._machine_sleeps = True
        await self._park()

    def machine_woke_up(self) -> None:
        """May come without a call of the above: then what the sleep has undone is found by looking."""
        self._machine_sleeps = False
        self._thaw()

    async def close(self) -> None:
        """Leave the hardware safe: fans automatic, a trial taken back."""
        async with self._fan_turn:
            if self._fans.held:
                self._take(await self._fans.release(self._clock.now()))
        if self._begun:
            await self._keeper.close()

    def _may_act(self) -> bool:
        return not (self.given_away or self.dormant or self._machine_sleeps)

    def _refuse(self) -> None:
        if self.given_away:
            raise GpuUnavailable("The GPU is detached: call Attach first")
        if self._machine_sleeps:
            raise Busy("The machine is going to sleep: nothing is read or set until it is awake again")
        if self.dormant:
            raise GpuUnavailable("The GPU sleeps and is not woken for this: try again when a program uses it")

    async def _ready(self) -> None:
        self._refuse()
        await self._begin()

    async def _begin(self) -> None:
        async with self._beginning:
            if not self._begun:
                await self._keeper.start()
                self._begun = True

    async def _park(self) -> None:
        await self._keeper.freeze()  # first: it may be setting fans
        async with self._fan_turn:
            if self._fans.held:
                self._take(await self._fans.park(self._clock.now()))

    async def _is_gone(self) -> bool:
        """The GPU or its driver is not there, so nothing of it is in our hands."""
        try:
            await present(self._access)
        except DriverUnresponsive:
            return False
        except (DriverError, NoSuchGpu):
            return True
        return False

    def _thaw(self) -> None:
        if not (self._machine_sleeps or self.given_away):
            self._keeper.thaw()

    async def _unpark(self) -> None:
        """Set the fans again as they were; while the driver does not answer, later."""
        if not self._fans.is_parked:
            return
        with suppress(GpuUnavailable):
            try:
                await self._fans.unpark()
            except (NotSupported, InvalidArgument) as error:
                text = f"The fans of GPU {self.identity.uuid} are left automatic: {error}"
                write(FanFailSafe(self.identity.uuid, "not-restored", text))

    def _take(self, report: FanReport) -> None:
        self._report = report
        for alert in report.alerts:
            self._tell(self.identity.uuid, alert)

    def _noticing(self, results: tuple[ItemResult, ...]) -> tuple[ItemResult, ...]:
        self._notice()
        return results

    def _notice(self) -> None:
        """Tell that something is different; figures that move all the time are not something."""
        shown = self.shown()
        report = shown.fans and (
            shown.fans.state,
            shown.fans.reason,
            tuple((fan.mode, fan.verdict, fan.reading.policy) for fan in shown.fans.fans),
        )
        news = (replace(shown, fans=None), report)
        if self._told is not None and news != self._told:
            self._tell(self.identity.uuid, Changed())
        self._told = news
