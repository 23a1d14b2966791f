"""The fan control of one GPU: looks, decides, tells the fans, and gives them back when anything is not well."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.errors import GpuUnavailable, InvalidArgument, NoSuchGpu, NotSupported
from gpusupervisor.gpu.backoff import Backoff
from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.gpu.nvml_thread import DriverUnresponsive, NvmlThread
from gpusupervisor.helper.fans import curve
from gpusupervisor.helper.fans.command import FanVerdict
from gpusupervisor.helper.fans.hands import Hands
from gpusupervisor.helper.fans.marker import Marker
from gpusupervisor.helper.fans.report import Alert, FanAction, FanControlState, FanReport, FanStatus
from gpusupervisor.helper.fans.safety import Safety, failed, judge
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.hardware.session import HardwareSession
from gpusupervisor.helper.values import Capability, FanReading, FanSetting, Temperatures

AUTOMATIC = FanSetting()
DEADLINE = 5.0
CHANGES_KEPT = 600 * MICROSECONDS
CHANGES_ALLOWED = 3
"""Within CHANGES_KEPT; with one more we give way to whoever else sets the fans."""


class FanController:
    """Everything but the asynchronous methods runs in the NVML thread, which all of its state belongs to."""

    def __init__(
        self,
        uuid: str,
        session: HardwareSession,
        thread: NvmlThread,
        runtime_directory: Path,
        *,
        left: frozenset[int] = frozenset(),
        deadline: float = DEADLINE,
    ) -> None:
        """runtime_directory: where the mark of fans that are taken over is kept. deadline: seconds of one tick.

        left: fans that an earlier helper could not give back, which is tried again.
        """
        self.uuid = uuid
        self._session = session
        self._thread = thread
        self._deadline = deadline
        self._hands = Hands(Marker(runtime_directory, uuid, left))
        self._settings: dict[int, FanSetting] = {}
        self._parked: dict[int, FanSetting] = {}
        """What is to be set again by `unpark`."""
        self._curves: dict[int, curve.CurveState] = {}
        self._safety = Safety()
        self._changes: list[int] = []
        self._generation = 0
        self._count = 0
        self._backoff = Backoff()
        self._unavailable = ""
        self._told: set[str] = set()
        """Alerts of conditions that last and have been told."""
        self.held = bool(self._hands.held)
        """Fans are in our hands, or are to be: as of the last tick or setting."""

    async def control(self, settings: Mapping[int, FanSetting]) -> None:
        """Want these settings from the next tick on, fans that are not named automatic. Ends a fail-safe.

        Raises NotSupported with the reason (a laptop), InvalidArgument for a fan that there is not; nothing changes.
        While the driver cannot be asked the settings are kept all the same, unless it does not answer (GpuUnavailable).
        """
        try:
            await self._thread.call(self._control, dict(settings), deadline=self._deadline)
        except DriverUnresponsive as problem:
            raise GpuUnavailable(f"The fans cannot be set: {problem}") from problem

    async def set_fan(self, index: int, setting: FanSetting) -> None:
        """Want one setting from the next tick on, the others as they are; otherwise as `control`."""
        await self.control({**self.settings(), index: setting})

    def settings(self) -> Mapping[int, FanSetting]:
        """What is wanted of every fan that is known, now or once it is no longer parked."""
        return {**dict.fromkeys(range(self._count), AUTOMATIC), **self._settings, **self._parked}

    @property
    def is_parked(self) -> bool:
        """Fans wait to be set again."""
        return bool(self._parked)

    async def tick(self, now: int) -> FanReport:
        """Look and act once; never raises for the driver's errors. now: microseconds of the domain clock."""
        return await self._in_thread(self._tick, now)

    async def release(self, now: int) -> FanReport:
        """Give back every fan that we hold, and want nothing any more."""
        return await self._in_thread(self._release, now)

    async def park(self, now: int) -> FanReport:
        """Give back every fan that we hold until `unpark`: before a sleep, a detachment."""
        parked = {index: setting for index, setting in self.settings().items() if setting.mode != "automatic"}
        report = await self.release(now)
        self._parked = parked
        return report

    async def unpark(self) -> None:
        """Want again what was parked. Raises as `control`; what can never be set is not wanted any more."""
        try:
            await self.control(self.settings())
        except (NotSupported, InvalidArgument):
            self._parked = {}
            raise

    async def _in_thread(self, work: Callable[[int], FanReport], now: int) -> FanReport:
        try:
            report = await self._thread.call(work, now, deadline=self._deadline)
        except DriverUnresponsive as problem:
            text = f"The fans of GPU {self.uuid} cannot be controlled: {problem}"
            return FanReport(self.uuid, now, "unavailable", str(problem), alerts=self._once("unresponsive", text))
        self._told.discard("unresponsive")
        return report

    def _control(self, settings: dict[int, FanSetting]) -> None:
        wanted = {index: setting for index, setting in settings.items() if setting.mode != "automatic"}
        try:
            known = self._session.gpu(self.uuid).capabilities()
        except (DriverError, NoSuchGpu):
            self._want(wanted)  # the ticks say so, and go on when it is there again
            return
        if wanted and known.fans.support != "supported":
            raise NotSupported(f"The fans of GPU {self.uuid} cannot be set: {known.fans.reason}")
        self._count = known.fan_count
        absent = [index for index in wanted if not 0 <= index < known.fan_count]
        if absent:
            raise InvalidArgument(f"GPU {self.uuid} has no fan {absent[0]}: it has {known.fan_count}, numbered from 0")
        self._want(wanted)

    def _want(self, settings: dict[int, FanSetting]) -> None:
        self._settings, self._parked, self._curves, self._safety, self._changes = settings, {}, {}, Safety(), []
        self.held = bool(settings or self._hands.held)

    def _tick(self, now: int) -> FanReport:
        if self._backoff.waiting(now):
            return FanReport(self.uuid, now, "unavailable", self._unavailable)
        try:
            hardware = self._session.gpu(self.uuid)
            self._notice_generation()
            report = self._look_and_act(hardware, now)
        except (DriverError, NoSuchGpu) as error:
            self._unavailable = str(error)
            if isinstance(error, NoSuchGpu) or error.error_class == "lifecycle":
                self._session.close()  # opened again by the next tick that is due: NVML knows only what it found then
                self._backoff.failed(now)
            return FanReport(self.uuid, now, "unavailable", self._unavailable)
        self._backoff.succeeded()
        self.held = bool(self._settings or self._hands.held)
        return report

    def _release(self, now: int) -> FanReport:
        self._want({})
        self._backoff.succeeded()  # tried at once, for there may be no other time
        return self._tick(now)

    def _notice_generation(self) -> None:
        if self._generation != self._session.generation:
            self._generation = self._session.generation
            self._hands.forget()
            self._curves, self._changes = {}, []

    def _look_and_act(self, hardware: GpuHardware, now: int) -> FanReport:
        known = hardware.capabilities()
        temperatures, readings = hardware.temperatures(), self._read(hardware)
        self._count = known.fan_count
        if known.fans.support != "supported" and not self._hands.held:
            return self._unsupported(known.fans, temperatures, readings, now)
        if not self._settings and not self._hands.held:
            self._safety = Safety()
        before = self._safety.trip
        verdicts = self._hands.watch(readings, now)
        if self._settings:
            self._safety = judge(self._safety, temperatures, hardware.power_usage(), now)
            self._judge_fans(verdicts, now)
        wanted = self._wanted(temperatures, readings, known.fans, now)
        actions: list[FanAction] = []
        if self._safety.trip is None:
            actions += self._steer(hardware, wanted, verdicts, now)
        if self._safety.trip is not None:
            actions += self._fail_safe(hardware, readings, now, again=before is not None)
        fans = tuple(
            FanStatus(
                reading,
                self._settings.get(reading.index, AUTOMATIC).mode,
                wanted[reading.index],
                verdicts[reading.index],
            )
            for reading in readings
        )
        trip = self._safety.trip
        alerts = self._alerts(actions)
        if trip != before:
            alerts = (self._alert_of_change(), *alerts)
        state: FanControlState = "fail-safe" if trip else "controlling" if self._settings else "idle"
        return FanReport(self.uuid, now, state, trip.reason if trip else "", temperatures, fans, tuple(actions), alerts)

    def _judge_fans(self, verdicts: Mapping[int, FanVerdict], now: int) -> None:
        if self._safety.trip is not None:
            return
        for index, verdict in verdicts.items():
            if verdict == "not-following":
                reason = f"fan {index} stays slower than it was told to run"
                self._safety = failed(self._safety, "not-following", reason, now)
                return
        if "changed" in verdicts.values():
            self._changes = [*(at for at in self._changes if now - at < CHANGES_KEPT), now]
            if len(self._changes) > CHANGES_ALLOWED:
                reason = "another program, or the driver, sets the fans again and again"
                self._safety = failed(self._safety, "contested", reason, now)

    def _wanted(
        self, temperatures: Temperatures, readings: tuple[FanReading, ...], allowed: Capability, now: int
    ) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        low, high = allowed.minimum or 0, 100 if allowed.maximum is None else allowed.maximum
        for reading in readings:
            setting = self._settings.get(reading.index, AUTOMATIC)
            state = self._curves.get(reading.index)
            if setting.mode == "curve" and temperatures.gpu is not None:
                state = self._curves[reading.index] = curve.follow(setting, state, temperatures.gpu, now)
            found[reading.index] = curve.wanted(setting, state, low, high)
        return found

    def _steer(
        self, hardware: GpuHardware, wanted: Mapping[int, int | None], verdicts: Mapping[int, FanVerdict], now: int
    ) -> list[FanAction]:
        actions: list[FanAction] = []
        held = self._hands.held
        for index, percent in wanted.items():
            if index not in self._settings and index not in held:
                continue  # not ours
            action = self._hands.steer(hardware, index, percent, verdicts[index], now)
            if action is None:
                continue
            actions.append(action)
            if action.error:
                reason = f"fan {index} could not be set: {action.error}"
                self._safety = failed(self._safety, "write-failed", reason, now, hopeless=action.hopeless)
                return actions
        self._hands.put_down()
        return actions

    def _fail_safe(
        self, hardware: GpuHardware, readings: tuple[FanReading, ...], now: int, *, again: bool
    ) -> tuple[FanAction, ...]:
        """All fans of the GPU; but a program that contests them is not fought any longer than once."""
        trip = self._safety.trip
        if again and trip is not None and trip.cause == "contested" and not self._hands.held:
            return ()
        return self._hands.give_back(hardware, self._read(hardware) if not again else readings, now)

    def _read(self, hardware: GpuHardware) -> tuple[FanReading, ...]:
        """Every fan; those that we hold at least, though the driver cannot count them now."""
        unread = (FanReading(index, None, None, None, "unknown") for index in sorted(self._hands.held))
        return hardware.fans() or tuple(unread)

    def _alert_of_change(self) -> Alert:
        trip = self._safety.trip
        if trip is None:
            return Alert("recovered", f"The fans of GPU {self.uuid} are controlled again")
        return Alert(trip.cause, f"The fans of GPU {self.uuid} are given back to the driver: {trip.reason}")

    def _alerts(self, actions: list[FanAction]) -> tuple[Alert, ...]:
        stranded = [action for action in actions if action.what == "full" and action.error]
        if not stranded:
            if actions:
                self._told.discard("stranded")
            return ()
        numbers = ", ".join(str(action.index) for action in stranded)
        text = f"Fans {numbers} of GPU {self.uuid} could be set neither to automatic nor to full: {stranded[0].error}"
        return self._once("stranded", text)

    def _unsupported(
        self, fans: Capability, temperatures: Temperatures, readings: tuple[FanReading, ...], now: int
    ) -> FanReport:
        text = f"The fans of GPU {self.uuid} cannot be set: {fans.reason}"
        alerts = self._once("unsupported", text) if self._settings else ()
        statuses = tuple(FanStatus(reading, "automatic", None, "ok") for reading in readings)
        return FanReport(self.uuid, now, "unsupported", fans.reason, temperatures, statuses, alerts=alerts)

    def _once(self, kind: Literal["unsupported", "unresponsive", "stranded"], text: str) -> tuple[Alert, ...]:
        if kind in self._told:
            return ()
        self._told.add(kind)
        return (Alert(kind, text),)
