"""The helper's methods and signals about what it controls."""

from collections.abc import Mapping, Sequence

from dbus_fast import Variant

from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.clock import Clock
from gpusupervisor.errors import InvalidArgument
from gpusupervisor.helper.asked import fan_setting_of, profile_of
from gpusupervisor.helper.control import Changed, GpuEvent
from gpusupervisor.helper.controllers import Controls
from gpusupervisor.helper.departures import Departures
from gpusupervisor.helper.drift.keeper import OVER, DriftContested, DriftDetected, DriftEnded, DriftRepaired
from gpusupervisor.helper.fans.report import Alert
from gpusupervisor.helper.profile.document import MAX_FANS
from gpusupervisor.helper.profile_state import TrialEnded
from gpusupervisor.helper.told import gpu_details, moment_details, result_details, verdict_details


class HardwareCalls:
    """Callers have been admitted already; what they ask for is checked here and below."""

    def __init__(self, controls: Controls, clock: Clock, departures: Departures) -> None:
        self._controls = controls
        self._clock = clock
        self._departures = departures

    def handlers(self) -> Handlers:
        """By method."""
        return {
            "State": self._state,
            "ReadSensors": self._read_sensors,
            "SetFan": self._set_fan,
            "TryProfile": self._try,
            "TryPoint": self._try_point,
            "Confirm": self._confirm,
            "Revert": self._revert,
            "ApplyProfile": self._apply,
            "ResetProfile": self._reset,
            "CheckDrift": self._check_drift,
            "Detach": self._detach,
            "Attach": self._attach,
        }

    async def _state(self, _call: Call) -> list[object]:
        return [{shown.identity.uuid: gpu_details(shown, self._clock) for shown in await self._controls.look()}]

    async def _read_sensors(self, _call: Call, gpu: str) -> list[object]:
        return [moment_details(await self._controls.watch(gpu))]

    async def _set_fan(
        self,
        _call: Call,
        gpu: str,
        fan: int,
        mode: str,
        percent: int,
        points: Sequence[Sequence[int]],
        options: Mapping[str, Variant],
    ) -> list[object]:
        if fan >= MAX_FANS:
            raise InvalidArgument(f"There is no fan {fan}: fans are numbered from 0")
        setting = fan_setting_of(fan, mode, percent, points, options)
        async with self._controls.gpu(gpu) as control:
            await control.set_fan(fan, setting)
        return []

    async def _try(self, _call: Call, gpu: str, document: str, within: int) -> list[object]:
        profile = profile_of(document)
        async with self._controls.gpu(gpu) as control:
            return [result_details(await control.try_(profile, within))]

    async def _try_point(self, call: Call, gpu: str, document: str, within: int) -> list[object]:
        """Nobody but a sweep knows when its point is to go, so the point goes with it."""
        profile = profile_of(document)
        has_left = await self._departures.follow(call.sender)
        async with self._controls.gpu(gpu) as control:
            return [result_details(await control.try_(profile, within, has_left))]

    async def _confirm(self, _call: Call, gpu: str) -> list[object]:
        async with self._controls.gpu(gpu) as control:
            await control.confirm()
        return []

    async def _revert(self, _call: Call, gpu: str) -> list[object]:
        async with self._controls.gpu(gpu) as control:
            return [result_details(await control.revert())]

    async def _apply(self, _call: Call, gpu: str, document: str) -> list[object]:
        profile = profile_of(document)
        async with self._controls.gpu(gpu) as control:
            return [result_details(await control.apply(profile))]

    async def _reset(self, _call: Call, gpu: str) -> list[object]:
        async with self._controls.gpu(gpu) as control:
            return [result_details(await control.reset())]

    async def _check_drift(self, _call: Call, gpu: str) -> list[object]:
        async with self._controls.gpu(gpu) as control:
            return [[verdict_details(verdict) for verdict in await control.check_drift()]]

    async def _detach(self, _call: Call, gpu: str) -> list[object]:
        await self._controls.detach(gpu)
        return []

    async def _attach(self, _call: Call, gpu: str) -> list[object]:
        await self._controls.attach(gpu)
        return []


def signal_of(gpu: str, event: GpuEvent) -> tuple[str, list[object]]:
    """The member and the body of the signal that tells of an event."""
    match event:
        case Changed():
            return "Changed", [gpu]
        case DriftDetected(verdict):
            return "DriftDetected", [gpu, verdict.item, verdict_details(verdict)]
        case DriftRepaired(result):
            return "DriftRepaired", [gpu, result.item, result_details([result])[0]]
        case DriftContested(verdict):
            return "DriftContested", [gpu, verdict.item, verdict_details(verdict)]
        case DriftEnded(item, cause):
            return "DriftEnded", [gpu, item, {"cause": Variant("s", cause), "detail": Variant("s", OVER[cause])}]
        case TrialEnded(ended, results):
            return "TrialEnded", [gpu, ended.end, ended.reason, result_details(results)]
        case Alert(cause, text):
            return "FanAlert", [gpu, cause, text]
