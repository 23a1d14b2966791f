"""Pure functions from what the helper told to the properties of a GPU's fans and profile, by their D-Bus names."""

from dbus_fast import Variant

from gpusupervisor.bus.published import Values
from gpusupervisor.bus.wire import details, variant
from gpusupervisor.controls import Ability, Controls, DriftVerdict, FanState, GpuControls, SettingResult
from gpusupervisor.gpu.sample import GpuIdentity

Details = dict[str, Variant]

SETTABLE = ("supported", "unverifiable")
NOT_FOR_PROFILES = ("fans", "temperature")
"""Abilities that say nothing about a profile's own settings."""
WORST_FIRST = ("contested", "drifted", "overridden", "unverifiable", "ok")


def fans_view(controls: Controls, gpu: str) -> Values:
    """Properties of a GPU's fans."""
    known = controls.gpus.get(gpu)
    ability = known.ability("fans") if known else None
    support, reason = _support(controls, known, ability)
    return {
        "Support": support,
        "SupportReason": reason,
        "Minimum": ability.minimum if ability else None,
        "Maximum": ability.maximum if ability else None,
        "Control": known.fan_control if known else "",
        "ControlReason": known.fan_control_reason if known else "",
        "Fans": [_fan(fan) for fan in known.fans] if known else [],
        "ReadAt": known.read_at if known else None,
    }


def profile_view(controls: Controls, gpu: str) -> Values:
    """Properties of a GPU's profile."""
    known = controls.gpus.get(gpu)
    support, reason = _support(controls, known, _whole_profile(known))
    shown = known or _NOTHING
    return {
        "Support": support,
        "SupportReason": reason,
        "Capabilities": [_ability(ability) for ability in shown.abilities],
        "Profile": shown.profile,
        "Accepted": shown.accepted,
        "Results": result_list(shown.results),
        "AppliedAt": shown.applied_at,
        "Phase": shown.phase,
        "Distrust": shown.distrust,
        "Problem": shown.problem,
        "DriftState": drift_state(shown.drift),
        "Drift": verdict_list(shown.drift),
        "Trial": shown.trial,
        "TrialDeadline": shown.trial_deadline,
        "LastTrial": shown.last_trial,
        "LastTrialReason": shown.last_trial_reason,
    }


def drift_state(verdicts: tuple[DriftVerdict, ...]) -> str:
    """The worst of them; empty where there is none."""
    found = {verdict.verdict for verdict in verdicts}
    return next((verdict for verdict in WORST_FIRST if verdict in found), "")


def result_list(results: tuple[SettingResult, ...]) -> list[Details]:
    """What became of settings."""
    return [
        details(
            item=("s", result.item),
            ok=("b", result.ok),
            asked=("s", result.asked),
            accepted=("s", result.accepted),
            detail=("s", result.detail),
        )
        for result in results
    ]


def verdict_list(verdicts: tuple[DriftVerdict, ...]) -> list[Details]:
    """Whether settings still stand."""
    return [
        details(
            item=("s", verdict.item),
            verdict=("s", verdict.verdict),
            cause=("s", verdict.cause),
            accepted=("s", verdict.accepted),
            found=("s", verdict.found),
            detail=("s", verdict.detail),
        )
        for verdict in verdicts
    ]


def _support(controls: Controls, known: GpuControls | None, ability: Ability | None) -> tuple[str, str]:
    """Whether something can be set now, and why not."""
    if controls.problem:
        return "unsupported", controls.problem
    if known is not None and known.condition == "given-away":
        return "unsupported", "the GPU is detached: call Attach first"
    if ability is not None:
        return ability.support, ability.reason
    if known is not None and known.detail:
        return "unsupported", known.detail
    return "unsupported", "it is not known yet what can be set: the helper has not examined this GPU"


def _whole_profile(known: GpuControls | None) -> Ability | None:
    """A profile can be set as soon as one of its settings can."""
    if known is None or not known.abilities:
        return None
    own = [ability for ability in known.abilities if ability.item not in NOT_FOR_PROFILES]
    if any(ability.support in SETTABLE for ability in own) or _can_set_fans(known):
        return Ability("profile", "supported")
    reasons = list(dict.fromkeys(ability.reason for ability in own if ability.reason))
    return Ability("profile", "unsupported", "; ".join(reasons))


def _can_set_fans(known: GpuControls) -> bool:
    fans = known.ability("fans")
    return fans is not None and fans.support == "supported"


def _ability(ability: Ability) -> Details:
    limits = {"minimum": ability.minimum, "maximum": ability.maximum, "default": ability.default}
    entry = details(item=("s", ability.item), support=("s", ability.support), reason=("s", ability.reason))
    return entry | {name: variant("x", value) for name, value in limits.items() if value is not None}


def _fan(fan: FanState) -> Details:
    entry = details(fan=("u", fan.index), mode=("s", fan.mode), policy=("s", fan.policy), verdict=("s", fan.verdict))
    figures = {"percent": fan.percent, "speed": fan.speed, "target": fan.target, "rpm": fan.rpm, **fan.options}
    entry |= {name: variant("x", value) for name, value in figures.items() if value is not None}
    if fan.points:
        entry["points"] = Variant("a(uu)", [list(point) for point in fan.points])
    return entry


_NOTHING = GpuControls(GpuIdentity("", "", ""), "unavailable")
