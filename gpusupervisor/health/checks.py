"""Self-checks over what the last tick saw. Each is a small pure function that can come to each of its states."""

from collections.abc import Mapping

from gpusupervisor.arbitration.situation import Situation
from gpusupervisor.controls import Controls, GpuControls
from gpusupervisor.foreign_text import harmless
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.state import Check, EngineStatus
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.census import Census

NAMED = 4
"""Processes that a check names."""
LISTED = 50
"""Problems of the configuration that have a check of their own."""


def check_driver(sample: Sample) -> Check:
    """NVML and the kernel driver answer."""
    driver = sample.driver
    if driver.state == "ok":
        if driver.impact:
            return Check("driver", "degraded", driver.detail, driver.impact, driver.remedy)
        return Check("driver", "ok", f"driver {driver.version} answers")
    if driver.state in ("asleep", "starting"):
        return Check("driver", "skipped", driver.detail or f"the driver is {driver.state}")
    return Check("driver", "failed", driver.detail, driver.impact, driver.remedy)


def check_gpus(sample: Sample) -> tuple[Check, ...]:
    """Every GPU can be read, and its processes believed."""
    checks = []
    for gpu in sample.gpus:
        name = f"gpu-{gpu.identity.uuid}"
        if gpu.state in ("lost", "failing"):
            impact = "its memory is not known and nothing on it is released"
            remedy = "look at the kernel log (journalctl -k) for Xid messages; a lost GPU needs a reboot"
            checks.append(Check(name, "failed", f"{gpu.identity.name} is {gpu.state}: {gpu.detail}", impact, remedy))
        elif gpu.attribution_problem:
            impact = "who holds its memory is not known, so nothing on it is released"
            remedy = "update the driver; on a MIG GPU only observing is possible"
            checks.append(Check(name, "degraded", gpu.attribution_problem, impact, remedy))
        else:
            checks.append(Check(name, "ok", f"{gpu.identity.name} is {gpu.state}"))
    return tuple(checks)


def check_configuration(problems: tuple[str, ...], refused: tuple[str, ...]) -> tuple[Check, ...]:
    """All configuration files are understood; else a check for every problem, the first few of very many.

    refused: problems of a reload that was not taken over.
    """
    found = refused or problems
    if not found:
        return (Check("configuration", "ok", "all configuration files are understood"),)
    start = "reload failed: " if refused else ""
    impact = (
        "what was running before is kept"
        if refused
        else "what this file says has no effect, and the tenant it describes is asked for nothing"
    )
    remedy = "correct the file (gpusupervisorctl lint shows every problem), then systemctl reload gpusupervisor"
    shown = found if len(found) <= LISTED else (*found[:LISTED], f"{len(found) - LISTED} more problems")
    return tuple(
        Check("configuration" if number == 1 else f"configuration-{number}", "degraded", start + text, impact, remedy)
        for number, text in enumerate(shown, start=1)
    )


def check_declarations(problems: tuple[str, ...]) -> tuple[Check, ...]:
    """What units declare of themselves is understood: a check for every problem, the first few of very many."""
    impact = "what the unit says has no effect; a system unit's tenant is asked for nothing until it is right"
    remedy = "correct its Environment= (systemctl edit UNIT), then systemctl daemon-reload; a user's unit: restart it"
    shown = problems if len(problems) <= LISTED else (*problems[:LISTED], f"{len(problems) - LISTED} more problems")
    return tuple(
        Check(f"declaration-{number}", "degraded", text, impact, remedy) for number, text in enumerate(shown, start=1)
    )


def check_tenants(
    situation: Situation, activities: Mapping[str, Activity], reloaded: frozenset[str]
) -> tuple[Check, ...]:
    """No tenant is stuck, orphaned, or reloaded by a client as soon as it has released."""
    checks = []
    for tenant in situation.tenants.values():
        name = f"tenant-{tenant.id}"
        activity = activities.get(tenant.id)
        if activity is not None and activity.state == "stuck":
            checks.append(Check(name, "degraded", f"{tenant.id}: {activity.reason}", activity.impact, activity.remedy))
        elif tenant.orphan_on:
            checks.append(
                Check(
                    name,
                    "degraded",
                    f"{tenant.id}: a process has outlived its server and still holds VRAM",
                    "its memory cannot be asked for",
                    "end the process; restarting the engine does not",
                )
            )
        elif tenant.id in reloaded:
            checks.append(
                Check(
                    name,
                    "degraded",
                    f"{tenant.id}: a client had it reload at once after a release",
                    "releasing it only costs time, so it is left alone for ten minutes",
                    "raise its priority, or find the client that keeps asking for the model",
                )
            )
    return tuple(checks)


def check_helper(sight: Sight, census: Census) -> Check:
    """What /proc hides of the processes that hold VRAM is told by the helper."""
    holders = {h.pid: h for tenant in census.tenants.values() for h in tenant.holders}
    holders |= {h.pid: h for account in census.gpus.values() for h in account.unmanaged}
    unseen = [
        f"{harmless(holder.identity.name, 32)} (PID {pid})"
        for pid, holder in sorted(holders.items())
        if holder.identity and holder.identity.hidden & {"executable", "working_directory"}
    ]
    if sight.state == "ok":
        return Check("helper", "ok", "the helper tells what /proc hides of other users' processes")
    if sight.state == "unasked" or not unseen:
        return Check("helper", "skipped", "nothing is hidden from the supervisor, so the helper is not asked")
    named = ", ".join(unseen[:NAMED]) + (" and others" if len(unseen) > NAMED else "")
    why, remedy = _HELPER_TROUBLE[sight.state]
    detail = f" ({sight.detail})" if sight.detail else ""
    return Check(
        "helper",
        "degraded",
        f"{why}{detail}, so what {named} runs, in which folder and on which ports, could not be seen",
        "a program that was started by hand may stay unmanaged, and an engine on an unusual port is not reached",
        remedy,
    )


def check_engines(engines: Mapping[str, EngineStatus]) -> tuple[Check, ...]:
    """What engines are configured to is in force, and can be seen."""
    return tuple(check for engine in engines.values() if (check := _engine(engine)) is not None)


def _engine(engine: EngineStatus) -> Check | None:
    """None for an engine of which nothing was looked up: it does not run here."""
    name, pending = f"engine-{engine.id}", [setting.name for setting in engine.settings if setting.pending]
    if pending:
        listed = ", ".join(pending[:NAMED]) + (" and others" if len(pending) > NAMED else "")
        return Check(
            name,
            "degraded",
            f"{engine.id}: {listed} is configured and not in force",
            "the engine goes on with what it was started with",
            f"systemctl restart {engine.unit}",
        )
    if engine.needs_reload:
        return Check(
            name,
            "degraded",
            f"{engine.id}: the files of {engine.unit} have changed since systemd read them",
            "what they say now is not known, and a restart does not bring it into force",
            f"systemctl daemon-reload, then systemctl restart {engine.unit}",
        )
    if engine.hidden:
        return Check(
            name,
            "degraded",
            f"{engine.id}: {', '.join(engine.hidden[:NAMED])} could not be read",
            "what is set there is not known, and is not shown",
            "see the check of the helper; an environment file can be made readable for the user gpusupervisor",
        )
    return Check(name, "ok", f"{engine.id}: its settings are in force") if engine.settings else None


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
            impact = "the driver controls them, or they keep the speed they have until it answers"
            remedy = "see journalctl -u gpusupervisor-helper"
            checks.append(Check(name, "degraded", summary, impact, remedy))
        elif gpu.fan_control == "fail-safe":
            summary = f"the fans of {gpu.identity.name} were given back to the driver: {reason}"
            impact = "they run as the driver has it, or at full, and not as they were set"
            remedy = "they are controlled again by themselves when the cause is gone, or when they are set anew"
            checks.append(Check(name, "degraded", summary, impact, remedy))
        else:
            checks.append(Check(name, "ok", f"the fans of {gpu.identity.name} are controlled as they were set"))
    return tuple(checks)


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
            f"the profile of {of} is not applied by itself: {gpu.distrust}",
            "the GPU runs with the driver's settings after the next start, and drift is not repaired",
            "apply the profile again when it is well, try a tamer one, or reset it",
        )
    if gpu.problem:
        return Check(
            name,
            "degraded",
            f"the profile of {of}: {gpu.problem}",
            "the GPU may run with other settings than the profile's",
            "see journalctl -u gpusupervisor-helper; it is tried again by itself",
        )
    if fought:
        return Check(
            name,
            "degraded",
            f"{fought[0].item} of {of} is {fought[0].verdict}: {fought[0].detail}",
            "the GPU runs with other settings than the profile's",
            "find the program that sets it too; applying the profile again makes the helper keep it once more",
        )
    return Check(name, "ok", f"the profile of {of} stands as far as it can be read")


_HELPER_TROUBLE: Mapping[str, tuple[str, str]] = {
    "missing": (
        "the helper is not there",
        "install it (make install does) and see systemctl status gpusupervisor-helper",
    ),
    "refused": (
        "the helper does not let the supervisor call it",
        "run the service as its unit does, as the user gpusupervisor, with the installed bus policy "
        "org.gpusupervisor1.Helper.conf; systemctl reload dbus reads it anew",
    ),
    "failing": (
        "the helper fails",
        "see journalctl -u gpusupervisor-helper",
    ),
}
"""By the state of the sight: what is wrong, and what to do."""
