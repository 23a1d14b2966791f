"""The methods of a GPU's interfaces: the authority is asked first, then the form is checked, then it is done."""

from collections.abc import Mapping, Sequence
from functools import partial

from dbus_fast import Variant

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.control_views import result_list, verdict_list
from gpusupervisor.bus.job_methods import JobMethods
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.tuning_wish import tuning_wish
from gpusupervisor.bus.wire import unknown_option
from gpusupervisor.controls import FanWish, HardwareController
from gpusupervisor.errors import InvalidArgument
from gpusupervisor.state import Controller

PROFILE_LIMIT = 64 * 1024
"""Characters of a profile."""
MOST_POINTS = 32
OPTIONS = ("hysteresis", "spin-down-delay", "zero-rpm-below")


class ControlMethods:
    """Handlers by interface and GPU."""

    def __init__(
        self, hardware: HardwareController, controller: Controller, jobs: JobMethods, admission: Admission
    ) -> None:
        self._hardware = hardware
        self._controller = controller
        self._jobs = jobs
        self._admission = admission

    def gpu(self, gpu: str) -> Handlers:
        """Of the GPU itself."""
        return {"Detach": partial(self._detach, gpu), "Attach": partial(self._attach, gpu)}

    def fans(self, gpu: str) -> Handlers:
        """Of its fans."""
        return {
            "SetAutomatic": partial(self._set_automatic, gpu),
            "SetFixed": partial(self._set_fixed, gpu),
            "SetCurve": partial(self._set_curve, gpu),
        }

    def profile(self, gpu: str) -> Handlers:
        """Of its profile."""
        return {
            "Try": partial(self._try, gpu),
            "Confirm": partial(self._confirm, gpu),
            "Revert": partial(self._revert, gpu),
            "Apply": partial(self._apply, gpu),
            "Reset": partial(self._reset, gpu),
            "CheckDrift": partial(self._check_drift, gpu),
            "Autotune": partial(self._autotune, gpu),
        }

    async def _detach(self, gpu: str, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_DETACH, gpu=gpu):
            await self._hardware.detach(gpu)
        return []

    async def _attach(self, gpu: str, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_DETACH, gpu=gpu):
            await self._hardware.attach(gpu)
        return []

    async def _set_automatic(self, gpu: str, call: Call, fan: int) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_FANS, gpu=gpu):
            await self._hardware.set_fan(gpu, fan, FanWish("automatic"))
        return []

    async def _set_fixed(self, gpu: str, call: Call, fan: int, percent: int) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_FANS, gpu=gpu):
            await self._hardware.set_fan(gpu, fan, FanWish("fixed", percent))
        return []

    async def _set_curve(
        self, gpu: str, call: Call, fan: int, points: Sequence[Sequence[int]], options: Mapping[str, Variant]
    ) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_FANS, gpu=gpu):
            await self._hardware.set_fan(gpu, fan, _curve(points, options))
        return []

    async def _try(self, gpu: str, call: Call, document: str, within: int) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
            _check_length(document)
            return [result_list(await self._hardware.try_profile(gpu, document, within))]

    async def _confirm(self, gpu: str, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
            await self._hardware.confirm(gpu)
        return []

    async def _revert(self, gpu: str, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
            return [result_list(await self._hardware.revert(gpu))]

    async def _apply(self, gpu: str, call: Call, document: str) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
            _check_length(document)
            return [result_list(await self._hardware.apply_profile(gpu, document))]

    async def _reset(self, gpu: str, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
            return [result_list(await self._hardware.reset_profile(gpu))]

    async def _check_drift(self, gpu: str, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
            return [verdict_list(await self._hardware.check_drift(gpu))]

    async def _autotune(self, gpu: str, call: Call, engine: str, options: Mapping[str, Variant]) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
            work = await self._controller.autotune(gpu, tuning_wish(engine, options))
            return [await self._jobs.start(call, "autotune", gpu, work)]


def _check_length(document: str) -> None:
    if len(document) > PROFILE_LIMIT:
        raise InvalidArgument(f"profile: at most {PROFILE_LIMIT} characters are allowed")


def _curve(points: Sequence[Sequence[int]], options: Mapping[str, Variant]) -> FanWish:
    if len(points) > MOST_POINTS:
        raise InvalidArgument(f"points: a curve has at most {MOST_POINTS} points")
    for name, value in options.items():
        if name not in OPTIONS or value.signature not in ("u", "t"):
            raise unknown_option(name, value, f"{', '.join(OPTIONS)}, of type u or t")
    wanted = tuple((degrees, percent) for degrees, percent in points)
    return FanWish("curve", points=wanted, options={name: value.value for name, value in options.items()})
