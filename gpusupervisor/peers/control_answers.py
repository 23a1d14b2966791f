"""What the helper answered, as values. It is believed, being root's; what is missing is passed over."""

from collections.abc import Iterable, Mapping
from typing import Any

from dbus_fast import Variant

from gpusupervisor.controls import Ability, DriftVerdict, FanState, GpuControls, SettingResult
from gpusupervisor.gpu.sample import GpuIdentity

Details = Mapping[str, Variant]

OPTIONS = ("hysteresis", "spin-down-delay", "zero-rpm-below")


def parse_state(told: Mapping[str, Details]) -> dict[str, GpuControls]:
    """All GPUs, by UUID."""
    return {uuid: _gpu(uuid, _plain(details)) for uuid, details in told.items()}


def parse_results(told: Iterable[Details]) -> tuple[SettingResult, ...]:
    """What became of settings."""
    return tuple(
        SettingResult(_text(each, "item"), bool(each.get("ok")), *(_text(each, key) for key in _RESULT))
        for each in map(_plain, told)
    )


def parse_verdicts(told: Iterable[Details]) -> tuple[DriftVerdict, ...]:
    """Whether settings still stand."""
    return tuple(DriftVerdict(*(_text(each, key) for key in _VERDICT)) for each in map(_plain, told))


_RESULT = ("asked", "accepted", "detail")
_VERDICT = ("item", "verdict", "cause", "accepted", "found", "detail")


def _gpu(uuid: str, told: Mapping[str, Any]) -> GpuControls:
    return GpuControls(
        identity=GpuIdentity(uuid, _text(told, "name"), _text(told, "pci_bus_id")),
        condition=_text(told, "condition"),
        detail=_text(told, "detail"),
        abilities=tuple(_ability(each) for each in map(_plain, told.get("capabilities", ()))),
        fans=tuple(_fan(each) for each in map(_plain, told.get("fans", ()))),
        fan_control=_text(told, "fan_control"),
        fan_control_reason=_text(told, "fan_control_reason"),
        read_at=told.get("read_at"),
        profile=_text(told, "profile"),
        accepted=_text(told, "accepted"),
        results=parse_results(told.get("results", ())),
        applied_at=told.get("applied_at"),
        phase=_text(told, "phase"),
        distrust=_text(told, "distrust"),
        problem=_text(told, "problem"),
        drift=parse_verdicts(told.get("drift", ())),
        trial=_text(told, "trial"),
        trial_deadline=told.get("trial_deadline"),
        last_trial=_text(told, "last_trial"),
        last_trial_reason=_text(told, "last_trial_reason"),
    )


def _ability(told: Mapping[str, Any]) -> Ability:
    limits = (told.get(key) for key in ("minimum", "maximum", "default"))
    return Ability(_text(told, "item"), _text(told, "support"), _text(told, "reason"), *limits)


def _fan(told: Mapping[str, Any]) -> FanState:
    return FanState(
        index=told.get("fan", 0),
        mode=_text(told, "mode"),
        percent=told.get("percent"),
        points=tuple((degrees, percent) for degrees, percent in told.get("points", ())),
        options={name: told[name] for name in OPTIONS if name in told},
        policy=_text(told, "policy"),
        verdict=_text(told, "verdict"),
        speed=told.get("speed"),
        target=told.get("target"),
        rpm=told.get("rpm"),
    )


def _plain(details: Details) -> dict[str, Any]:
    return {name: value.value for name, value in details.items()}


def _text(told: Mapping[str, Any], key: str) -> str:
    return str(told.get(key, ""))
