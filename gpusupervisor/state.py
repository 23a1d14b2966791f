"""What the last tick made of the world, as one immutable value; the bus shows this and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpusupervisor.arbitration.situation import Assessment, PlanResult, ReleasePlan, Situation
from gpusupervisor.controls import Controls, TuningWish
from gpusupervisor.engine_http import NO_USERS, Peer
from gpusupervisor.engines.setting import Setting
from gpusupervisor.gpu.sample import Sample
from gpusupervisor.jobs import Work
from gpusupervisor.models.fit import Fit
from gpusupervisor.models.fit_book import CardFit
from gpusupervisor.models.model import Model
from gpusupervisor.models.residency import Residency
from gpusupervisor.models.unload import UnloadResult
from gpusupervisor.models.warm_plan import WarmStep
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.census import Census
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.hypothetical import Recognised

CheckState = Literal["ok", "degraded", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """One self-check."""

    id: str
    """E.g. "driver", "attribution", "configuration", "tenant-comfyui"."""
    state: CheckState
    summary: str
    """What is broken, in one sentence."""
    impact: str = ""
    remedy: str = ""
    since: int = 0
    """When it came into this state, in microseconds of the domain clock; 0 when that is not known."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """Identity and reachability of an engine."""

    id: str
    """The tenant's id."""
    engine: str
    title: str
    endpoint: str
    reachable: bool
    version: str
    detail: str
    """Why it is not reachable; empty when it is."""
    settings: tuple[Setting, ...] = ()
    unit: str = ""
    """The system unit that runs it; empty when none does, or none is known."""
    hidden: tuple[str, ...] = ()
    """What may say more of its settings and could not be read."""
    needs_reload: bool = False
    """Its unit's files have changed since systemd read them."""
    settings_checked_against: str = ""
    """The version of the engine that the meanings of its settings were checked against; empty when not recorded."""
    settings_problem: str = ""
    """What is not known of its settings, and why; empty when nothing is unknown, or it is not reachable."""
    models: tuple[Model, ...] = ()
    fits: tuple[Fit, ...] = ()
    """Of the models, in their order."""
    models_problem: str = ""
    """What is not known of its models, and why; empty when nothing is unknown."""
    capabilities: tuple[str, ...] = ()
    """What can be done with its models by name: "list", "resident", "load", "unload"."""
    limits: tuple[str, ...] = ()
    """What cannot, each with the reason."""
    peer: Peer = NO_USERS
    """What must be at the other end of the endpoint."""


@dataclass(frozen=True, slots=True)
class State:
    """Everything that is published."""

    sample: Sample
    census: Census
    situation: Situation
    definitions: Mapping[str, TenantDefinition]
    """By tenant id, instances included."""
    activities: Mapping[str, Activity]
    assessments: Mapping[str, Assessment]
    engines: Mapping[str, EngineStatus]
    checks: tuple[Check, ...]
    automatic: bool
    status: str
    """The line of `systemctl status`."""
    running: Mapping[str, ReleasePlan] = field(default_factory=dict)
    """By GPU: the plan that is being executed."""
    controls: Controls = field(default_factory=Controls)
    """What the helper controls."""
    cards: Mapping[str, CardFit] = field(default_factory=dict)
    """By GPU: what it could ever offer to one more model."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """How often each branch of the decisions was taken since the service started, by name."""
    residencies: Mapping[str, Residency] = field(default_factory=dict)
    """By tenant: what is in RAM of its models' files, for those whose definition says where they are."""


class Warmer(Protocol):
    """What the bus may ask of models' files in RAM. Every method raises `SupervisorError`s only."""

    async def plan_warming(self) -> tuple[WarmStep, ...]:
        """A verdict on every model, the worthiest first."""

    async def warm(self, tenant: str, model: str, rate: int) -> Work:
        """The work that reads a model into RAM, at `rate` bytes a second at most (0: as fast as it goes)."""


class Controller(Warmer, Protocol):
    """What the bus may ask of the supervisor. Every method raises `SupervisorError`s only."""

    def plan_release(self, gpu: str, tenant: str, size: int) -> ReleasePlan:
        """Make a plan, do nothing. gpu: UUID or "" for the only one; tenant: beneficiary or ""; size: bytes wanted
        (with a beneficiary: its need in total; 0 = its own need)."""

    async def make_room(self, gpu: str, tenant: str, size: int) -> PlanResult:
        """Plan and execute; raises Blocked or WontFit when no plan suffices."""

    async def autotune(self, gpu: str, wish: TuningWish) -> Work:
        """The work of a job that sweeps the power limit of a GPU (UUID); raises when that cannot be done now."""

    async def release(self, tenant: str) -> PlanResult:
        """Ask one tenant for all it can give back on every GPU."""

    async def check(self) -> tuple[Check, ...]:
        """Run every self-check now, those too that are dear; a run that has just ended is not repeated."""

    async def reload(self) -> None:
        """Read the configuration again. With errors in it, InvalidConfiguration is raised and nothing has changed."""

    async def set_automatic(self, enabled: bool) -> None:
        """Act by itself, or only observe."""

    def load_work(self, engine: str, model: str, needs: int) -> Work:
        """The work of having an engine load a model, to be run as a job.

        needs: bytes of VRAM that it needs; 0: what is known. Raises NoSuchEngine, NoSuchModel, EngineUnreachable,
        NotSupported, Busy, WontFit or Blocked before anything is done.
        """

    async def unload_model(self, engine: str, model: str) -> UnloadResult:
        """Have an idle engine unload a model, and measure."""

    def explain(self, tenant: str) -> str:
        """The effective definition, every value with its source."""

    def recognise(self, process: ProcessIdentity) -> Recognised | None:
        """Which tenant a process that is only described would be; None when it would be nobody's."""

    async def check_definition(self, name: str, text: str) -> tuple[str, ...]:
        """Problems of a tenant file that is not installed yet; name ends in .toml or .json."""
