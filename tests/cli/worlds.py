"""Machines to look at screens with: from none to eight cards, from one to forty tenants, names of every script."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpusupervisor.arbitration.assess import assess
from gpusupervisor.arbitration.need import Need
from gpusupervisor.arbitration.plan import Request, make_plan, make_release
from gpusupervisor.arbitration.request import interpret, require_tenant
from gpusupervisor.arbitration.situation import (
    GpuSituation,
    PlanResult,
    ReleasePlan,
    Reservation,
    Situation,
    StepResult,
    TenantSituation,
    UnmanagedHolder,
)
from gpusupervisor.engines.setting import Setting
from gpusupervisor.errors import GpuUnavailable, NotReclaimable
from gpusupervisor.gpu.sample import DriverStatus, GpuIdentity, GpuMemory, GpuSample, Sample, told_apart
from gpusupervisor.models.fit import Manners, ceiling_of, fit_of, fit_summary
from gpusupervisor.models.fit_book import CardFit
from gpusupervisor.models.load_speed import LoadEstimate
from gpusupervisor.models.model import Model
from gpusupervisor.quantities import format_bytes
from gpusupervisor.state import Check, EngineStatus, State
from gpusupervisor.tenants.activity.verdict import ActivityState
from gpusupervisor.tenants.catalog import load_catalog
from gpusupervisor.tenants.census import Census, GpuAccount, Holder, TenantPresence
from tests.bus.builders import GIB, MIB, activity, definition, identity, make_controls
from tests.bus.fakes import FakeController
from tests.cli.shapes_of import EVERY_SCRIPT

NOW = 4_900_000_000
TOTAL, RESERVED = 24 * GIB, 512 * MIB
DRIVER = DriverStatus("ok", version="580.95.05")
SCRIPTS = (*EVERY_SCRIPT, "e\u0301cole-\u0915\u094d\u0937", "llama-🦙-👩‍🚀")
ABSENT = ("automatic1111", "invokeai", "koboldcpp", "lm-studio", "sglang", "text-generation-webui", "vllm")


def uuid(number: int) -> str:
    """Of the card with this number, counted from 0."""
    return f"GPU-{0x3F9C1A52 + number * 0x1111111:08x}-7d1e-4c55-9b1a-0c5d2f0a40{number:02d}"


@dataclass(frozen=True)
class Who:
    """A tenant that is there."""

    id: str
    state: ActivityState
    reason: str
    held: Mapping[int, int]
    """Bytes by number of the card."""
    need: int | None = None
    protected: bool = False
    models: tuple[Model, ...] = ()
    settings: tuple[Setting, ...] = ()
    more: Mapping[str, object] = field(default_factory=dict)
    """Of the activity."""


OLLAMA = Who(
    "ollama", "idle", "qwen3:14b is loaded and no request is running", {0: 12 * GIB},
    models=(
        Model("qwen3:14b", "loaded", 9 * GIB, 12 * GIB, "", 12 * GIB, load_estimate=LoadEstimate(3_000_000, "RAM")),
        Model("llama3.1:8b", "not-loaded", 5 * GIB, 6 * GIB, load_estimate=LoadEstimate(21_000_000, "disk")),
        Model("hf.co/bartowski/Qwen2.5-Coder-32B-Instruct-GGUF:Q4_K_M", "not-loaded", 19 * GIB, 22 * GIB, "estimated"),
        Model("llama3.3:70b", "not-loaded", 40 * GIB, 43 * GIB, "estimated from its size"),
        Model("new", "not-loaded"),
    ),
    settings=(
        Setting("OLLAMA_NUM_PARALLEL", "4", "environment", "each of 4 requests at a time has a context of its own in "
                "VRAM, so a model takes more than its file tells"),
        Setting("OLLAMA_KEEP_ALIVE", "5m", "default", "an idle model is unloaded by Ollama itself after 5 minutes",
                pending="30m, from /etc/systemd/system/ollama.service.d/override.conf"),
    ),
)  # fmt: skip
COMFYUI = Who(
    "comfyui", "busy", "its queue has 2 prompts, one runs", {0: 5 * GIB}, need=14 * GIB,
    models=(Model("checkpoints/flux1-dev-fp8.safetensors", "unknown", 17 * GIB),),
)  # fmt: skip
DESKTOP = Who(
    "desktop", "unknown", "no probe is defined that could tell whether it is working", {0: 700 * MIB}, protected=True
)
DARK = Who("llama-server", "unknown", "it does not answer at http://127.0.0.1:8080: connection refused", {0: 2 * GIB},
           more={"impact": "it is never asked for its memory while nobody knows whether it works",
                 "remedy": "systemctl status llama-server"})  # fmt: skip
SICK = (
    Check("driver", "ok", "driver 580.95.05 answers"),
    Check("api-llama-server", "degraded", "the API of llama-server does not answer: connection refused",
          "it counts as unknown, so it is never asked for its memory", "see systemctl status llama-server"),
    Check("helper", "failed", "gpusupervisor-helper does not start: it was killed by SIGSEGV",
          "fans, profiles and models in RAM are out of reach", "see why with journalctl --unit gpusupervisor-helper"),
    Check("drift", "skipped", "no profile is set"),
)  # fmt: skip


def machine(
    cards: Sequence[GpuSample],
    tenants: Sequence[Who],
    strangers: Sequence[Holder] = (),
    checks: tuple[Check, ...] | None = None,
    driver: DriverStatus = DRIVER,
) -> State:
    """A state of these."""
    accounts = {each.identity.uuid: _account(each.identity.uuid, tenants, strangers) for each in cards if each.memory}
    cards = told_apart([_filled(each, accounts) for each in cards])
    situation = Situation(NOW, _decidable(cards, accounts), {who.id: _situation(who) for who in tenants}, 512 * MIB)
    sample = Sample(NOW, driver, tuple(cards))
    ceilings = [ceiling_of(situation, gpu) for gpu in situation.gpus]
    needs = [(model.name, model.needs or 0) for who in tenants for model in who.models]
    return State(
        sample=sample,
        census=Census({who.id: _presence(who) for who in tenants}, accounts),
        situation=situation,
        definitions={
            **{name: definition(name) for name in ABSENT},
            **{w.id: definition(w.id, releasable=not w.protected, protected=w.protected) for w in tenants},
        },
        activities={
            **{name: activity("absent", "none of its processes holds VRAM") for name in ABSENT},
            **{who.id: activity(who.state, who.reason, **who.more) for who in tenants},
        },
        assessments=assess(situation),
        engines={
            **{n: EngineStatus(n, n, n, "", False, "", "none of its processes holds VRAM") for n in ABSENT},
            **{who.id: _engine(who, situation) for who in tenants if not who.protected},
        },
        checks=tuple(_checks(cards)) if checks is None else checks,
        automatic=True,
        status="",
        cards={c.gpu: CardFit(c.size, fit_summary(c, needs), c.limit, c.taken) for c in ceilings},
    )


def card(number: int = 0, **changes: object) -> GpuSample:
    """One card, empty."""
    gpu = GpuIdentity(uuid(number), "NVIDIA GeForce RTX 4090", f"0000:{number + 1:02x}:00.0")
    memory = GpuMemory(TOTAL, 0, 0, RESERVED, "nvml-v2")
    return replace(GpuSample(gpu, "ok", NOW, memory), **changes)  # type: ignore[arg-type]


def stranger(name: str, pid: int, used: int | None) -> Holder:
    """A process on the first card that nobody has described."""
    return Holder(uuid(0), pid, used, identity(pid, f"/home/me/{name}"))


def _filled(gpu: GpuSample, accounts: Mapping[str, GpuAccount]) -> GpuSample:
    if gpu.memory is None:
        return gpu
    account = accounts[gpu.identity.uuid]
    used = sum(account.tenants.values()) + sum(h.used or 0 for h in account.unmanaged) + account.unattributed
    return replace(gpu, memory=replace(gpu.memory, used=used, free=TOTAL - RESERVED - used))


def _account(gpu: str, tenants: Sequence[Who], strangers: Sequence[Holder]) -> GpuAccount:
    held = {who.id: size for who in tenants for number, size in who.held.items() if uuid(number) == gpu}
    return GpuAccount(gpu, held, tuple(each for each in strangers if each.gpu == gpu), 100 * MIB)


def _decidable(cards: Sequence[GpuSample], accounts: Mapping[str, GpuAccount]) -> dict[str, GpuSituation]:
    return {
        gpu.identity.uuid: GpuSituation(
            gpu.identity.uuid, gpu.identity.name, gpu.memory.total, gpu.memory.free,
            tuple(UnmanagedHolder(h.pid, h.identity.executable.rpartition("/")[2] if h.identity else "?", h.used)
                  for h in accounts[gpu.identity.uuid].unmanaged), 100 * MIB, reserved=RESERVED,
        )
        for gpu in cards if gpu.memory
    }  # fmt: skip


def _situation(who: Who) -> TenantSituation:
    idle = who.state == "idle"
    return TenantSituation(
        who.id, who.id.title(), 25 if idle else 50, who.state, who.reason,
        {uuid(number): size for number, size in who.held.items()}, default_floor=512 * MIB,
        need=Need(who.need, who.need, "needs-vram") if who.need else None, has_release=not who.protected,
        protected=who.protected,
        idle_since=NOW - 720_000_000 if idle else None,
    )  # fmt: skip


def _presence(who: Who) -> TenantPresence:
    holders = tuple(
        Holder(uuid(number), 2000 + number, size, identity(2000 + number, f"/usr/bin/{who.id}"), who.id,
               f"unit {who.id}.service") for number, size in who.held.items()
    )  # fmt: skip
    return TenantPresence(who.id, who.id, "", holders, {uuid(number): size for number, size in who.held.items()})


def _engine(who: Who, situation: Situation) -> EngineStatus:
    answers = who.state != "unknown"
    ceilings = [ceiling_of(situation, gpu) for gpu in situation.gpus]
    return EngineStatus(
        who.id, who.id, who.id.title(), "http://127.0.0.1:11434", answers, "0.12.0" if answers else "",
        "" if answers else "connection refused", who.settings, f"{who.id}.service", models=who.models,
        fits=tuple(fit_of(situation, who.id, model, Manners(), ceilings) for model in who.models),
        models_problem="" if answers else "it does not answer",
    )  # fmt: skip


def _checks(cards: Sequence[GpuSample]) -> list[Check]:
    """What is checked of every card, with those that are not well."""
    found = [Check("driver", "ok", "driver 580.95.05 answers")]
    for gpu in cards:
        id_, name = gpu.identity.uuid, gpu.identity.name
        if gpu.state in ("lost", "failing"):
            found.append(Check(f"gpu-{id_}", "failed", f"{name} is lost: {gpu.detail}", "nothing on it can be managed",
                               "look for Xid in journalctl --dmesg, and restart the machine"))  # fmt: skip
            continue
        found.append(Check(f"gpu-{id_}", "ok", f"{name} is ok"))
        found.append(Check(f"attribution-{id_}", "ok", f"the driver tells who holds memory on {name}"))
    return [*found, Check("configuration", "ok", "all configuration files are valid"),
            Check("fans", "skipped", "no fan is controlled")]  # fmt: skip


def _forty() -> list[Who]:
    """Of every activity, some on several cards."""
    states: tuple[tuple[ActivityState, str], ...] = (
        ("idle", "no request is running"), ("busy", "3 requests are running"), ("unknown", "it has not answered yet"),
        ("stuck", "its queue has not moved for 12min"),
    )  # fmt: skip
    found = [Who(f"worker-{n}", *states[n % 7 % 4], {n % 8: (n % 5 + 1) * 256 * MIB}) for n in range(50)]
    trainer = Who("trainer", "busy", "its processes compute", dict.fromkeys((0, 1, 2, 4), 3 * GIB), need=44 * GIB)
    return [trainer, OLLAMA, *(who for who in found if not {3, 6} & set(who.held))]


def worlds() -> dict[str, State]:
    """By name."""
    missing = DriverStatus(
        "missing", "libnvidia-ml.so.1 is not found", "nothing can be supervised", "install the driver"
    )
    dead = (Check("driver", "failed", "the NVIDIA driver is not there: libnvidia-ml.so.1 is not found",
                  "no GPU can be seen, so nothing is supervised", "install nvidia-driver"),)  # fmt: skip
    busy = machine([card()], [OLLAMA, COMFYUI, DESKTOP, DARK], [stranger("train.py", 4242, GIB)], SICK)
    kept = (Reservation(uuid(0), "comfyui", 2 * GIB, NOW + 60_000_000),)
    controls = make_controls().gpus.values()
    shown = {uuid(0): replace(each, identity=busy.sample.gpus[0].identity) for each in controls}
    lost = replace(card(3), state="lost", memory=None, detail="it has fallen off the bus (Xid 79)")
    asleep = replace(card(6), state="asleep", memory=None)
    eight = [lost if n == 3 else asleep if n == 6 else card(n) for n in range(8)]
    scripts = [
        Who(name, "idle" if n % 3 else "busy", f"{name} 休止中 / لا يعمل", {0: (12 - n) * 256 * MIB},
            models=(Model(f"{name}:8b", "loaded", GIB, 2 * GIB),))
        for n, name in enumerate(SCRIPTS)
    ]  # fmt: skip
    return {
        "none": machine([], [], checks=dead, driver=missing),
        "one": machine([card()], [OLLAMA]),
        "typical": replace(
            busy,
            situation=replace(busy.situation, reservations=kept),
            controls=replace(busy.controls, gpus=shown, problem=""),
            running={uuid(0): make_plan(busy.situation, Request("starved", uuid(0), "comfyui", 14 * GIB), "plan-7")},
        ),
        "eight": machine(eight, _forty(), [stranger("python3", 31337, None)]),
        "scripts": machine([card()], scripts, [stranger("тренер-訓練.py", 77, 300 * MIB)]),
    }


class Decider(FakeController):
    """Decides as the service does, on a world; what it asks for comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.world: State

    def plan_release(self, gpu: str, tenant: str, size: int) -> ReleasePlan:
        situation = self.world.situation
        if not situation.gpus:
            raise GpuUnavailable(f"No GPU can be read: {self.world.sample.driver.detail}.")
        return make_plan(situation, interpret(situation, gpu, tenant, size), "plan-7")

    async def make_room(self, gpu: str, tenant: str, size: int) -> PlanResult:
        return _carried_out(self.plan_release(gpu, tenant, size))

    async def release(self, tenant: str) -> PlanResult:
        require_tenant(self.world.situation, tenant)
        return _carried_out(make_release(self.world.situation, tenant, "plan-8", "release"))

    def explain(self, tenant: str) -> str:
        return load_catalog().explain(tenant if tenant in load_catalog().definitions else "ollama")

    async def check_definition(self, name: str, text: str) -> tuple[str, ...]:
        return tuple(str(problem) for problem in load_catalog().check_text(name, text))


def _carried_out(plan: ReleasePlan) -> PlanResult:
    if not plan.sufficient:
        raise NotReclaimable(plan.summary)
    steps = tuple(
        StepResult(s.tenant, "freed", s.expected, s.expected or 0, 812_000,
                   f"{format_bytes(s.expected or 0)} came back") for s in plan.steps
    )  # fmt: skip
    freed = sum(step.freed for step in steps)
    return PlanResult(plan, "satisfied", steps, freed, freed, 900_000, "there was room already")
