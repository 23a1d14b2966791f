"""The fans of one GPU that are in our hands: what each was told, the mark, and the writes. NVML thread only."""

from collections.abc import Iterable

from gpusupervisor.gpu.errors import DriverError
from gpusupervisor.helper.fans.command import REASSERT, Command, FanVerdict, is_due, told, watch
from gpusupervisor.helper.fans.marker import Marker
from gpusupervisor.helper.fans.report import Done, FanAction
from gpusupervisor.helper.hardware.gpu import GpuHardware
from gpusupervisor.helper.values import FanReading

FULL = 100


class Hands:
    """Raises DriverError when the GPU or the driver is gone; other failures are in the actions that it returns."""

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._commands: dict[int, Command] = {}
        self._at_full: set[int] = set()
        """Fans that could not be made automatic."""

    @property
    def held(self) -> frozenset[int]:
        """Fans that may be manual by our doing."""
        commanded = {index for index, command in self._commands.items() if command.percent is not None}
        return self._marker.fans | commanded

    def forget(self) -> None:
        """The driver has begun anew: what the fans were told is gone. The mark stays until they are seen automatic."""
        self._commands = {}

    def watch(self, readings: Iterable[FanReading], now: int) -> dict[int, FanVerdict]:
        """Hold the readings against what the fans were told."""
        verdicts: dict[int, FanVerdict] = {}
        for reading in readings:
            command = self._commands.get(reading.index)
            verdicts[reading.index] = "ok"
            if command is not None:
                self._commands[reading.index], verdicts[reading.index] = watch(command, reading, now)
        return verdicts

    def steer(
        self, hardware: GpuHardware, index: int, percent: int | None, verdict: FanVerdict, now: int
    ) -> FanAction | None:
        """Tell a fan, where it is due. The mark is written before the fan becomes manual. None: nothing was due."""
        before = self._commands.get(index)
        if not is_due(before, percent, verdict, now):
            return None
        action = self._automatic(hardware, index) if percent is None else self._manual(hardware, index, percent)
        if not action.error:
            self._commands[index] = told(before, percent, action.percent, now)
        return action

    def give_back(self, hardware: GpuHardware, readings: Iterable[FanReading], now: int) -> tuple[FanAction, ...]:
        """Make fans automatic that are not; at full where that fails. Tried again at once after a failure."""
        actions: list[FanAction] = []
        for reading in readings:
            before = self._commands.get(reading.index)
            if reading.policy == "automatic":
                self._commands[reading.index] = told(before, None, None, now)
                self._at_full.discard(reading.index)
            elif before is None or now - before.written_at >= REASSERT or not self._is_safe(reading, before):
                actions += self._make_safe(hardware, reading.index, now)
        self.put_down()
        return tuple(actions)

    def put_down(self) -> None:
        """Remove the mark when all that it names are automatic again."""
        given_back = {index for index, command in self._commands.items() if command.percent is None}
        if self._marker.fans and self._marker.fans <= given_back:
            self._marker.clear()

    def _is_safe(self, reading: FanReading, before: Command) -> bool:
        """It was made so, as far as can be told."""
        return reading.index in self._at_full or (before.percent is None and reading.policy == "unknown")

    def _make_safe(self, hardware: GpuHardware, index: int, now: int) -> list[FanAction]:
        automatic = self._automatic(hardware, index)
        if not automatic.error:
            self._at_full.discard(index)
            self._commands[index] = Command(None, None, now)
            return [automatic]
        full = self._manual(hardware, index, FULL, "full")
        if full.error:
            self._commands.pop(index, None)
        else:
            self._at_full.add(index)
            self._commands[index] = Command(FULL, full.percent, now)
        return [automatic, full]

    def _automatic(self, hardware: GpuHardware, index: int) -> FanAction:
        try:
            policy = hardware.set_fan_automatic(index)
        except DriverError as error:
            return _failed(index, "automatic", error)
        return FanAction(index, "automatic", None, "the fan stays manual" if policy == "manual" else "")

    def _manual(self, hardware: GpuHardware, index: int, percent: int, what: Done = "set") -> FanAction:
        try:
            self._marker.take(frozenset({index}))
            return FanAction(index, what, hardware.set_fan(index, percent))
        except DriverError as error:
            return _failed(index, what, error)
        except OSError as error:
            reason = f"the mark of fans that are taken over cannot be written ({error.strerror})"
            return FanAction(index, what, None, reason)


def _failed(index: int, what: Done, error: DriverError) -> FanAction:
    if error.error_class == "lifecycle":
        raise error
    return FanAction(index, what, None, str(error), hopeless=error.error_class in ("unsupported", "permission"))
