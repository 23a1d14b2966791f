"""What the helper tells over D-Bus: its values as dictionaries of variants. Pure."""

import json
from collections.abc import Iterable, Mapping

from dbus_fast import Variant

from gpusupervisor.clock import Clock
from gpusupervisor.helper.control import Moment, Shown
from gpusupervisor.helper.drift.verdict import Verdict
from gpusupervisor.helper.fans.report import FanReport, FanStatus
from gpusupervisor.helper.profile.document import profile_table
from gpusupervisor.helper.profile.items import LOCKED_CLOCKS, OFFSETS, PERSISTENCE, POWER_LIMIT
from gpusupervisor.helper.profile_state import ProfileState
from gpusupervisor.helper.values import Capabilities, Capability, FanSetting, ItemResult, Profile

Details = dict[str, Variant]


def gpu_details(shown: Shown, clock: Clock) -> Details:
    """Everything about one GPU."""
    details = {
        "name": Variant("s", shown.identity.name),
        "pci_bus_id": Variant("s", shown.identity.pci_bus_id),
        "condition": Variant("s", shown.condition),
        "detail": Variant("s", shown.detail),
        **_profile_details(shown.profile, clock),
    }
    if shown.capabilities is not None:
        details["capabilities"] = Variant("aa{sv}", _capabilities(shown.capabilities))
        details["fans"] = Variant("aa{sv}", _fans(shown, shown.capabilities.fan_count))
    if shown.fans is not None:
        details |= _fan_control(shown.fans, clock)
    return details


def moment_details(moment: Moment) -> Details:
    """What sensors tell; what they do not is left out."""
    sensors = moment.sensors
    read = {
        "power": ("x", sensors.power),
        "energy": ("t", sensors.energy),
        "temperature": ("x", sensors.temperature),
        "power_limit": ("x", sensors.power_limit),
        "offset_graphics": ("x", sensors.offset),
        "trial_ends": ("t", moment.trial_deadline),
    }
    return {
        "at": Variant("t", sensors.at),
        "reasons": Variant("as", sorted(sensors.reasons)),
        "xid_count": Variant("t", moment.xid_count),
        "xids": Variant("au", list(moment.xids)),
        **{name: Variant(signature, value) for name, (signature, value) in read.items() if value is not None},
    }


def result_details(results: Iterable[ItemResult]) -> list[Details]:
    """What became of settings, one by one."""
    return [
        {
            "item": Variant("s", result.item),
            "ok": Variant("b", result.ok),
            "asked": Variant("s", result.asked),
            "accepted": Variant("s", result.accepted),
            "detail": Variant("s", result.detail),
        }
        for result in results
    ]


def verdict_details(verdict: Verdict) -> Details:
    """What was found out about one setting."""
    return {
        "item": Variant("s", verdict.item),
        "verdict": Variant("s", verdict.verdict),
        "cause": Variant("s", verdict.cause),
        "accepted": Variant("s", verdict.accepted),
        "found": Variant("s", verdict.found),
        "detail": Variant("s", verdict.detail),
    }


def _capabilities(known: Capabilities) -> list[Details]:
    by_item: Mapping[str, Capability] = {
        "fans": known.fans,
        "temperature": known.temperature,
        PERSISTENCE: known.persistence,
        POWER_LIMIT: known.power_limit,
        **{LOCKED_CLOCKS[domain]: capability for domain, capability in known.locked_clocks.items()},
        **{OFFSETS[domain]: capability for domain, capability in known.offsets.items()},
    }
    return [_capability(item, capability) for item, capability in by_item.items()]


def _capability(item: str, capability: Capability) -> Details:
    limits = {"minimum": capability.minimum, "maximum": capability.maximum, "default": capability.default}
    return {
        "item": Variant("s", item),
        "support": Variant("s", capability.support),
        "reason": Variant("s", capability.reason),
        **{name: Variant("x", value) for name, value in limits.items() if value is not None},
    }


def _fan_control(report: FanReport, clock: Clock) -> Details:
    details = {
        "fan_control": Variant("s", report.state),
        "fan_control_reason": Variant("s", report.reason),
        "read_at": Variant("t", clock.realtime(report.at)),
    }
    if report.temperatures is not None and report.temperatures.gpu is not None:
        details["temperature"] = Variant("x", report.temperatures.gpu)
    return details


def _fans(shown: Shown, count: int) -> list[Details]:
    statuses = {fan.reading.index: fan for fan in shown.fans.fans} if shown.fans else {}
    return [_fan(index, shown.settings.get(index, FanSetting()), statuses.get(index)) for index in range(count)]


def _fan(index: int, setting: FanSetting, status: FanStatus | None) -> Details:
    details = {"fan": Variant("u", index), "mode": Variant("s", setting.mode)}
    if setting.mode == "fixed":
        details["percent"] = Variant("x", setting.percent)
    if setting.mode == "curve":
        details |= {
            "points": Variant("a(uu)", [list(point) for point in setting.points]),
            "hysteresis": Variant("x", setting.hysteresis),
            "spin-down-delay": Variant("x", setting.spin_down_delay),
            "zero-rpm-below": Variant("x", setting.zero_rpm_below),
        }
    if status is not None:
        read = {"speed": status.reading.percent, "target": status.reading.target, "rpm": status.reading.rpm}
        details |= {
            "policy": Variant("s", status.reading.policy),
            "verdict": Variant("s", status.verdict),
            **{name: Variant("x", value) for name, value in read.items() if value is not None},
        }
    return details


def _profile_details(state: ProfileState, clock: Clock) -> Details:
    details = {
        "drift": Variant("aa{sv}", [verdict_details(verdict) for verdict in state.verdicts]),
        "problem": Variant("s", state.problem),
    }
    if (record := state.record) is not None:
        details |= {
            "profile": Variant("s", _document(record.requested)),
            "accepted": Variant("s", _document(record.accepted)),
            "results": Variant("aa{sv}", result_details(record.results)),
            "applied_at": Variant("t", record.applied_at),
            "phase": Variant("s", record.phase),
            "distrust": Variant("s", record.distrust),
        }
    if state.trial is not None:
        details |= {
            "trial": Variant("s", _document(state.trial.profile)),
            "trial_deadline": Variant("t", clock.realtime(state.trial.deadline)),
            "trial_results": Variant("aa{sv}", result_details(state.trial_results)),
        }
    if state.last_trial is not None:
        details |= {
            "last_trial": Variant("s", state.last_trial.end),
            "last_trial_reason": Variant("s", state.last_trial.reason),
        }
    return details


def _document(profile: Profile) -> str:
    return json.dumps(profile_table(profile))
