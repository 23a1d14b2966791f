"""The service's own judgement, run over a stage in virtual time.

Nothing here judges: observatory, arbiter and supervisor are the service's; only the machine below them, the clock and
the catalogue's folders are a film's.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from gpusupervisor.arbitration.events import Event, PlanMade, PlanStarted
from gpusupervisor.arbitration.learned import Fact
from gpusupervisor.arbitration.situation import Assessment, ReleasePlan, Situation
from gpusupervisor.automatic import AutomaticSwitch
from gpusupervisor.autotune.run import Rules
from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.effective import Configuration, telemetry_limits
from gpusupervisor.errors import SupervisorError
from gpusupervisor.films import virtual_time
from gpusupervisor.films.seams import StagedHelper, StagedHttp, StagedMonitor, StagedProcfs, StagedUnits
from gpusupervisor.films.stage import Stage
from gpusupervisor.films.values import Command, Learned
from gpusupervisor.films.virtual_time import ORIGIN, VirtualClock
from gpusupervisor.journal.entry import Entry
from gpusupervisor.keepers.autotuner import Autotuner
from gpusupervisor.observatory import Observatory
from gpusupervisor.peers.hardware_client import HardwareClient
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.settings import Settings
from gpusupervisor.state import Check
from gpusupervisor.supervisor import Judged, Supervisor
from gpusupervisor.telemetry.service import Telemetry
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.catalog import Catalog

STEADY = frozenset({"absent", "idle", "busy"})
SETTLED = 15 * MICROSECONDS
"""Everything that is remembered for a while only has been forgotten after so long, or has become steady."""
_LOG = logging.getLogger("gpusupervisor")


class Script(Protocol):
    """What changes the stage."""

    def advance(self, now: int) -> None:
        """Bring the stage to an instant of the virtual clock."""

    def rests_until(self, now: int) -> int | None:
        """The instant until which nothing changes by itself; None where that cannot be told."""

    def asked(self, now: int, address: str, question: str, body: bytes) -> None:
        """An engine is asked for something; what it does about it is up to the script."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What the service believed at one look. `at`: microseconds after the beginning."""

    at: int
    situation: Situation
    activities: Mapping[str, Activity]
    assessments: Mapping[str, Assessment]
    checks: tuple[Check, ...]
    needs: Mapping[str, int]
    """What was learned by then, by "kind tenant"."""


@dataclass(frozen=True, slots=True)
class Happening:
    """An event of a plan."""

    at: int
    event: Event


@dataclass(frozen=True, slots=True)
class Ask:
    """A tenant was asked for its memory or, where nobody may be asked, would have been."""

    at: int
    tenant: str
    beneficiary: str
    """Empty: nobody in particular."""
    plan: str
    cause: str


@dataclass(frozen=True, slots=True)
class Written:
    """An entry of the journal."""

    at: int
    kind: str
    text: str
    level: int


@dataclass(slots=True)
class Record:
    """Everything that the service believed, planned and did."""

    lasts: int
    moments: list[Moment] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    journal: list[Written] = field(default_factory=list)
    refusals: list[tuple[int, str, str]] = field(default_factory=list)
    """Commands that ended with an error: when, what, the error."""


@dataclass(frozen=True, slots=True)
class Production:
    """What is replayed, and how."""

    stage: Stage
    script: Callable[[VirtualClock], Script]
    catalog: Catalog
    lasts: int
    acts: bool
    settings: Settings = field(default_factory=Settings)
    learned: tuple[Learned, ...] = ()
    commands: tuple[Command, ...] = ()
    started_at: int = 1_700_000_000_000_000
    shown_every: int = 5 * MICROSECONDS
    """How often what is only shown (health, engines, models) is worked out too; 0: never, and no moments are kept."""
    leaps: bool = False
    """Do not look at a machine on which nothing changes until shortly before something does."""
    observe: Callable[[int, Judged], None] = lambda _now, _judged: None
    """Hears of every look."""


def replay(production: Production) -> Record:
    """Run the judgement over it, from beginning to end."""
    return virtual_time.run(lambda clock: _Take(production, clock).run(), production.started_at)


class _Take:
    """One replay."""

    def __init__(self, production: Production, clock: VirtualClock) -> None:
        self._production = production
        self._clock = clock
        self._script = production.script(clock)
        self._record = Record(production.lasts)
        self._addresses: dict[str, str] = {}
        """By "host:port": the tenant that was last seen there."""
        self._plans: dict[str, ReleasePlan] = {}
        """By tenant: the plan that was begun last, of those that ask it."""
        self._checks: tuple[Check, ...] = ()
        self._shown_at = -production.shown_every
        self._commands = sorted(production.commands, key=lambda command: command.at)

    @property
    def _at(self) -> int:
        return self._clock.now() - ORIGIN

    async def run(self) -> Record:
        """Look, think and act until the end."""
        production, clock, stage = self._production, self._clock, self._production.stage
        monitor = StagedMonitor(stage, clock, lambda: self._script.advance(clock.now()))
        proc = StagedProcfs(stage, clock)
        http = StagedHttp(stage, self._asked)
        observatory = Observatory(
            monitor,
            ProcessReader(privileged=StagedHelper(stage), proc=proc),
            http,
            production.catalog,
            clock,
            StagedUnits(stage),
            cpu_time=proc.cpu_time_of,
        )
        telemetry = Telemetry(None, telemetry_limits(production.settings), clock)
        telemetry.start()
        for fact in production.learned:
            started = production.started_at
            telemetry.facts.learn(
                Fact(fact.kind, fact.tenant, fact.gpu, fact.value, started, "the film", model=fact.model)
            )
        configuration = Configuration(production.settings, production.catalog, ())
        async with asyncio.TaskGroup() as tasks:
            supervisor = Supervisor(
                configuration,
                lambda: configuration,
                observatory,
                http,
                clock,
                AutomaticSwitch(None, production.acts),
                self._happened,
                tasks,
                Autotuner(HardwareClient(), http, clock, Rules()),
                telemetry=telemetry,
            )
            with self._listening():
                await self._roll(supervisor, telemetry, tasks)
                supervisor.abandon_plans()
                await supervisor.close()
                await observatory.close()
        return self._record

    async def _roll(self, supervisor: Supervisor, telemetry: Telemetry, tasks: asyncio.TaskGroup) -> None:
        doing: set[asyncio.Task[None]] = set()
        while self._at <= self._production.lasts:
            self._script.advance(self._clock.now())
            while self._commands and self._commands[0].at <= self._at:
                doing.add(tasks.create_task(self._do(supervisor, self._commands.pop(0))))
            judged = await supervisor.judge()
            for tenant, presence in judged.census.tenants.items():
                if presence.endpoint and (presence.holders or presence.servers):
                    self._addresses[urlsplit(presence.endpoint).netloc] = tenant
            self._production.observe(self._clock.now(), judged)
            if self._production.shown_every:
                self._show(supervisor, judged)
                self._keep(judged, telemetry)
            if not await self._leap(judged):
                await supervisor.pause()
        for task in doing:
            task.cancel()

    async def _leap(self, judged: Judged) -> bool:
        """Let the time pass in which nothing happens; whether there was such a time."""
        now = self._clock.now()
        if not self._production.leaps or any(
            activity.state not in STEADY or now - activity.since < SETTLED
            for activity in judged.seen.activities.values()
        ):
            return False
        if any(assessment.starved for assessment in judged.assessments.values()):
            return False
        until = self._script.rests_until(now)
        if until is None or until - now < 2 * SETTLED or self._commands:
            return False
        await asyncio.sleep((until - SETTLED - now) / MICROSECONDS)
        return True

    def _show(self, supervisor: Supervisor, judged: Judged) -> None:
        if self._at >= self._shown_at + self._production.shown_every:
            self._shown_at = self._at
            self._checks = supervisor.show(judged).checks

    def _keep(self, judged: Judged, telemetry: Telemetry) -> None:
        at = judged.situation.now - ORIGIN
        learned = {f"{fact.kind} {fact.tenant}": fact.value for fact in telemetry.facts.all()}
        self._record.moments.append(
            Moment(at, judged.situation, judged.seen.activities, judged.assessments, self._checks, learned)
        )

    async def _do(self, supervisor: Supervisor, command: Command) -> None:
        try:
            match command.deed:
                case "release":
                    await supervisor.release(command.tenant)
                case "make-room":
                    await supervisor.make_room("", command.tenant, command.size)
                case _:
                    await supervisor.set_automatic(command.deed == "automatic")
        except SupervisorError as error:
            self._record.refusals.append((self._at, f"{command.deed} {command.tenant}".rstrip(), str(error)))

    def _happened(self, event: Event) -> None:
        self._record.happenings.append(Happening(self._at, event))
        match event:
            case PlanStarted(plan):
                self._plans |= {step.tenant: plan for step in plan.steps}
            case PlanMade(plan) if not self._production.acts:
                for step in plan.steps:
                    self._note_ask(step.tenant, plan)

    def _asked(self, address: str, question: str, body: bytes) -> None:
        tenant = self._addresses.get(address, address)
        if tenant in self._plans:
            self._note_ask(tenant, self._plans[tenant])
        self._script.asked(self._clock.now(), address, question, body)

    def _note_ask(self, tenant: str, plan: ReleasePlan) -> None:
        """One request for each of its models is one ask all the same."""
        if not any(ask.tenant == tenant and ask.plan == plan.id for ask in self._record.asks[-8:]):
            self._record.asks.append(Ask(self._at, tenant, plan.beneficiary, plan.id, plan.cause))

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Take down what the service writes into its journal, and let nothing of it through."""
        if not self._production.shown_every:
            with contextlib.ExitStack() as stack:
                _LOG.setLevel(logging.CRITICAL)
                stack.callback(_LOG.setLevel, logging.NOTSET)
                yield
            return
        handler = _Listener(self._record, lambda: self._at)
        level, propagates = _LOG.level, _LOG.propagate
        _LOG.addHandler(handler)
        _LOG.setLevel(logging.INFO)
        _LOG.propagate = False
        try:
            yield
        finally:
            _LOG.removeHandler(handler)
            _LOG.setLevel(level)
            _LOG.propagate = propagates


class _Listener(logging.Handler):
    """Takes entries of the journal down."""

    def __init__(self, record: Record, at: Callable[[], int]) -> None:
        super().__init__()
        self._record = record
        self._at = at

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        entry = getattr(record, "entry", None)
        kind = type(entry).__name__ if isinstance(entry, Entry) else ""
        self._record.journal.append(Written(self._at(), kind, record.getMessage(), record.levelno))
