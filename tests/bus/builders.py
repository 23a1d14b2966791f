"""Sample values for the bus: a machine with one card, Ollama busy, ComfyUI idle, a desktop and a stranger."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.situation import (
    Assessment,
    Blocker,
    GpuSituation,
    PlanResult,
    PlanStep,
    ReleasePlan,
    Reservation,
    Situation,
    StepResult,
    TenantSituation,
)
from gpusupervisor.cli.client import plain
from gpusupervisor.controls import Ability, Controls, DriftVerdict, FanState, GpuControls, SettingResult
from gpusupervisor.gpu.sample import DriverStatus, GpuIdentity, GpuMemory, GpuSample, Sample
from gpusupervisor.jobs import Jobs
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey
from gpusupervisor.state import Check, EngineStatus, State
from gpusupervisor.tenants.activity.verdict import Activity, ActivityState
from gpusupervisor.tenants.census import Census, GpuAccount, Holder, TenantPresence
from gpusupervisor.tenants.definition import Match, ReleaseMethod, TenantDefinition

MIB = 1024 * 1024
GIB = 1024 * MIB
CARD = "GPU-3f9c1a52-0000-4000-8000-00000000a090"
EPOCH = 1_790_000_000_000_000
"""What the tests' clock calls the wall-clock time of instant 0."""


class FakeClock:
    """A domain clock that stands still; its wall clock jitters as a real one does."""

    def __init__(self) -> None:
        self.jitter = 0

    def now(self) -> int:
        return 5_000_000_000

    def realtime(self, instant: int) -> int:
        self.jitter = (self.jitter + 7) % 50
        return EPOCH + instant + self.jitter


def bare(value: object) -> Any:
    """A D-Bus value without its variants."""
    return plain(value)


def no_jobs() -> Jobs:
    """Jobs that nobody starts."""
    return Jobs(FakeClock(), lambda _job: None)


def identity(pid: int, executable: str) -> ProcessIdentity:
    return ProcessIdentity(ProcessKey(pid, 100 + pid), 1, 1000, executable[:15], executable=executable)


def definition(tenant: str, *, releasable: bool = True, **changes: object) -> TenantDefinition:
    release = (ReleaseMethod("http", "POST", "/free"),) if releasable else ()
    base = TenantDefinition(tenant, tenant.title(), Match(), engine=tenant, release=release)
    return replace(base, **changes)  # type: ignore[arg-type]


def activity(state: ActivityState, reason: str = "as its API says", **changes: object) -> Activity:
    base = Activity(state, reason, (f"http: {state}: {reason}",), observed_at=4_000_000_000, since=3_000_000_000)
    return replace(base, **changes)  # type: ignore[arg-type]


def presence(tenant: str, pid: int, used: int | None, card: str = CARD) -> TenantPresence:
    holder = Holder(card, pid, used, identity(pid, f"/usr/bin/{tenant}"), tenant, f"unit {tenant}.service")
    holdings = {} if used is None else {card: used}
    unknown = frozenset({card}) if used is None else frozenset[str]()
    return TenantPresence(tenant, tenant, "http://127.0.0.1:1", (holder,), holdings, unknown)


def sample(used: int, *, sampled_at: int = 4_900_000_000, total: int = 24 * GIB) -> Sample:
    memory = GpuMemory(total, used, total - used - 512 * MIB, 512 * MIB, "nvml-v2")
    gpu = GpuSample(GpuIdentity(CARD, "NVIDIA GeForce RTX 4090", "0000:01:00.0"), "ok", sampled_at, memory)
    return Sample(sampled_at, DriverStatus("ok", version="580.95.05"), (gpu,))


def make_state(
    holdings: Mapping[str, int | None] | None = None,
    *,
    states: Mapping[str, ActivityState] | None = None,
    checks: tuple[Check, ...] = (Check("driver", "ok", "driver 580.95.05 answers"),),
    status: str = "RTX 4090: 13.1 of 24.0 GiB held - healthy",
    sampled_at: int = 4_900_000_000,
    reservations: tuple[Reservation, ...] = (),
    engines: Mapping[str, EngineStatus] | None = None,
) -> State:
    """A state with these tenants holding these bytes (default: ollama 12 GiB, comfyui 5 GiB), and a stranger."""
    holdings = {"ollama": 12 * GIB, "comfyui": 5 * GIB} if holdings is None else holdings
    states = {"ollama": "busy"} if states is None else states
    presences = {t: presence(t, 1000 + i, used) for i, (t, used) in enumerate(holdings.items())}
    stranger = Holder(CARD, 4242, 1 * GIB, identity(4242, "/home/me/train.py"))
    known = {tenant: used for tenant, used in holdings.items() if used is not None}
    used = sum(known.values()) + 1 * GIB + 100 * MIB
    tenants = {t: _situation(t, presences[t], states.get(t, "idle")) for t in holdings}
    taken = sample(used, sampled_at=sampled_at)
    return State(
        sample=taken,
        census=Census(presences, {CARD: GpuAccount(CARD, known, (stranger,), 100 * MIB)}),
        situation=Situation(
            sampled_at, {CARD: GpuSituation(CARD, "RTX 4090", 24 * GIB, 5 * GIB)}, tenants, reservations=reservations
        ),
        definitions={t: definition(t) for t in holdings},
        activities={t: activity(states.get(t, "idle")) for t in holdings},
        assessments={t: Assessment(t, False, CARD, 0, "it is not busy") for t in holdings},
        engines=_engines(holdings) if engines is None else engines,
        checks=checks,
        automatic=True,
        status=status,
    )


def _situation(tenant: str, where: TenantPresence, state: ActivityState) -> TenantSituation:
    return TenantSituation(
        id=tenant,
        title=tenant.title(),
        priority=50,
        activity=state,
        activity_reason="as its API says",
        holdings=where.holdings,
        unknown_on=where.unknown_on,
        floors={CARD: 512 * MIB},
        need=Need(14 * GIB, 14 * GIB, "needs-vram") if state == "busy" else None,
        has_release=True,
        idle_since=3_000_000_000 if state == "idle" else None,
    )


def _engines(tenants: Mapping[str, object]) -> dict[str, EngineStatus]:
    return {t: EngineStatus(t, t, t.title(), "http://127.0.0.1:1", True, "0.12.0", "") for t in tenants}


def make_controls(**changes: object) -> Controls:
    """What the helper tells of the card: a curve, a power limit that has drifted, an offset nobody can read."""
    card = GpuControls(
        identity=GpuIdentity(CARD, "NVIDIA GeForce RTX 4090", "0000:01:00.0"),
        condition="ok",
        abilities=(
            Ability("fans", "supported", "", 30, 100),
            Ability("power-limit", "supported", "", 150_000, 480_000, 450_000),
            Ability("offset-graphics", "unverifiable", "this driver does not report it", -500, 500, 0),
        ),
        fans=(
            FanState(0, "curve", None, ((40, 30), (80, 100)), {"hysteresis": 3}, "manual", "ok", 48, 48, 1500),
            FanState(1, "automatic", policy="automatic", verdict="ok", speed=35),
        ),
        fan_control="controlling",
        read_at=EPOCH,
        profile='{"power-limit": "300W"}',
        accepted='{"power-limit": "300W"}',
        results=(SettingResult("power-limit", True, "300 W", "300 W", ""),),
        applied_at=EPOCH,
        phase="settled",
        drift=(DriftVerdict("power-limit", "drifted", "reset-to-default", "300 W", "450 W", "reset to the default"),),
    )
    return Controls({CARD: replace(card, **changes)}, "")  # type: ignore[arg-type]


def make_plan(plan_id: str = "p1", *, sufficient: bool = True) -> ReleasePlan:
    return ReleasePlan(
        id=plan_id,
        cause="make-room",
        gpu=CARD,
        beneficiary="ollama",
        shortfall=2 * GIB,
        steps=(PlanStep("comfyui", 4 * GIB, "idle for 12min, priority 30 below 60"),),
        blockers=(Blocker("train.py (pid 4242)", "unmanaged", None, "it matches no tenant"),),
        sufficient=sufficient,
        reclaimable=4 * GIB,
        summary="comfyui is asked for 4.0 GiB",
        made_at=4_950_000_000,
    )


def make_result(plan: ReleasePlan | None = None) -> PlanResult:
    step = StepResult("comfyui", "freed", 4 * GIB, 4 * GIB, 800_000, "memory back within 0.8 s")
    return PlanResult(plan or make_plan(), "satisfied", (step,), 4 * GIB, 9 * GIB, 900_000, "room for ollama")
