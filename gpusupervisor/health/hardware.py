"""Checks of what the helper controls: fans and profiles."""

from collections.abc import Iterable

from gpusupervisor.controls import Controls, GpuControls
from gpusupervisor.health.facts import Facts
from gpusupervisor.state import Check


def check_fans(controls: Controls) -> tuple[Check, ...]:
    """Fans that somebody wants controlled are."""
    checks = []
    for uuid, gpu in controls.gpus.items():
        wanted = any(fan.mode != "automatic" for fan in gpu.fans)
        if not wanted or gpu.condition in ("asleep", "given-away"):
            continue
        name, reason = f"fans-{uuid}", gpu.fan_control_reason or gpu.detail
        if controls.problem or gpu.fan_control in ("unavailable", ""):
            summary = f"the fans of {gpu.identity.name} cannot be controlled: {controls.problem or reason}"
            impact = "the driver controls them, or they keep their current speed until it answers"
            remedy = "see journalctl -u gpusupervisor-helper"
            checks.append(Check(name, "degraded", summary, impact, remedy))
        elif gpu.fan_control == "fail-safe":
            summary = f"the fans of {gpu.identity.name} were returned to the driver: {reason}"
            impact = "they run under the driver's control or at full speed, not as they were set"
            remedy = "they are controlled again when the cause is gone, or when they are set again"
            checks.append(Check(name, "degraded", summary, impact, remedy))
        else:
            checks.append(Check(name, "ok", f"the fans of {gpu.identity.name} are controlled as they were set"))
    return tuple(checks)


KEEP_INITIALISED = (
    "if this happens again, have the driver keep the GPU initialised: systemctl enable --now nvidia-persistenced, or "
    "set persistence in the profile"
)
"""What keeps a driver from forgetting settings while nobody uses the GPU."""


def check_persistence(facts: Facts) -> Iterable[Check]:
    """The driver keeps settings while nobody uses the GPU, where there are settings to be kept."""
    for gpu in facts.sample.gpus:
        if gpu.state != "ok" or gpu.sensors.persistence is None:
            continue
        name, of = f"persistence-{gpu.identity.uuid}", gpu.identity.name
        known = facts.controls.gpus.get(gpu.identity.uuid)
        kept = "" if known is None else ", ".join(each.item for each in known.drift)
        if gpu.sensors.persistence:
            yield Check(name, "ok", f"persistence mode of {of} is on")
        elif kept:
            yield Check(
                name,
                "degraded",
                f"persistence mode of {of} is off, and a profile sets {kept}",
                "when no program uses the GPU the driver forgets these settings until they are set again, and the "
                "next program waits for seconds until the GPU is initialised",
                KEEP_INITIALISED.partition(": ")[2],
            )
        else:
            yield Check(name, "ok", f"persistence mode of {of} is off, and no profile sets what would be lost")


def check_drift(controls: Controls) -> tuple[Check, ...]:
    """Profiles are applied, and stand."""
    return tuple(_drift_of(uuid, gpu) for uuid, gpu in controls.gpus.items() if gpu.profile)


def _drift_of(uuid: str, gpu: GpuControls) -> Check:
    name, of = f"drift-{uuid}", gpu.identity.name
    fought = [verdict for verdict in gpu.drift if verdict.verdict in ("contested", "drifted")]
    if gpu.distrust:
        return Check(
            name,
            "degraded",
            f"the profile of {of} is not applied automatically: {gpu.distrust}",
            "the GPU runs with the driver's settings after the next start, and drift is not repaired",
            "apply the profile again if it is known to be good, try a more conservative one, or reset it",
        )
    if gpu.problem:
        return Check(
            name,
            "degraded",
            f"the profile of {of}: {gpu.problem}",
            "the settings of the GPU may differ from the profile",
            "see journalctl -u gpusupervisor-helper; the helper keeps trying",
        )
    if fought and all(verdict.cause == "reset-to-default" for verdict in fought):
        return Check(
            name,
            "degraded",
            f"{fought[0].item} of {of} was {fought[0].detail}; it is set again automatically",
            "until then the GPU runs with the driver's settings",
            KEEP_INITIALISED,
        )
    fought = [verdict for verdict in fought if verdict.cause != "reset-to-default"]
    if fought:
        return Check(
            name,
            "degraded",
            f"{fought[0].item} of {of} is {fought[0].verdict}: {fought[0].detail}",
            "the settings of the GPU differ from the profile",
            "find the program that also sets it and end it, then apply the profile again",
        )
    return Check(name, "ok", f"the profile of {of} is in force, as far as it can be read")
