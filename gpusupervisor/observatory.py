"""What is going on: samples, census and activities, made into one `Seen` per look.

The first half of the way of the data; it decides nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from gpusupervisor.arbitration.compose import Seen, measurement
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.clock import Clock
from gpusupervisor.configuration.document import Problem
from gpusupervisor.engine_http import EngineHttp, is_local
from gpusupervisor.engines.reading import Reading
from gpusupervisor.engines.tables import TABLES
from gpusupervisor.engines.variables import VARIABLES
from gpusupervisor.errors import GpuUnavailable, NoSuchGpu, NoSuchTenant
from gpusupervisor.gpu.driver_status import STARTING
from gpusupervisor.gpu.sample import DriverStatus, GpuSample, Sample
from gpusupervisor.keepers.engine_discovery import EngineDiscovery
from gpusupervisor.keepers.engine_scan import EngineScan
from gpusupervisor.peers.unit_client import Units
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.state import EngineStatus
from gpusupervisor.tenants.activity.cpu_time import cpu_time_of
from gpusupervisor.tenants.activity.tracker import ActivityTracker, CpuTime
from gpusupervisor.tenants.activity.verdict import Activity
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.tenants.census import Census, TenantPresence
from gpusupervisor.tenants.declared import VARIABLES as DECLARED_VARIABLES
from gpusupervisor.tenants.declared import Variables, tempered, with_declarations
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.matching import Recognition
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.release.versions import at_least
from gpusupervisor.tenants.signs import signs_of
from gpusupervisor.tenants.speakers import forget_accounts
from gpusupervisor.tenants.take_census import take_census

MOTION = 64 << 20
"""Bytes on a GPU between two looks that are worth the next one at once."""
_ANSWERED = ("idle", "busy", "claimed", "stirring", "stuck")


class Monitor(Protocol):
    """The GPUs; see `GpuMonitor`."""

    async def sample(
        self, *, fresh_processes: bool = False, utilization: bool = False, needed: bool = True, sensors: bool = False
    ) -> Sample:
        """All GPUs now."""

    async def wake(self) -> Sample:
        """All GPUs now, those woken that sleep."""

    async def sample_gpu(self, uuid: str) -> GpuSample:
        """One GPU now with its processes. Raises NoSuchGpu."""

    async def close(self) -> None:
        """Let the driver go."""


class Witness(Protocol):
    """Takes down what is seen."""

    async def saw(self, sample: Sample, identities: Mapping[int, ProcessIdentity]) -> None:
        """One look at GPUs and processes."""


class Observatory:
    """Looks at GPUs, processes and engines."""

    def __init__(
        self,
        monitor: Monitor,
        processes: ProcessReader,
        http: EngineHttp,
        catalog: Catalog,
        clock: Clock,
        units: Units,
        cpu_time: CpuTime = cpu_time_of,
        witness: Witness | None = None,
    ) -> None:
        """cpu_time: reads the CPU time of a tenant's processes. witness: takes down what is seen."""
        self._witness = witness
        self._units = units
        self._declared: Mapping[str, Variables] = {}
        self._users_problems: dict[str, tuple[Problem, ...]] = {}
        """By tenant: what is wrong with what users' units say."""
        self._discovery = EngineDiscovery(http, clock, units, EngineScan(processes.proc, clock))
        self.use(catalog)
        self._monitor = monitor
        self._processes = processes
        self._tracker = ActivityTracker(clock, http, cpu_time=cpu_time)
        self._recognizer = Recognizer()
        self._clock = clock

    def use(self, catalog: Catalog) -> None:
        """Recognise by another catalog from now on, with what units declare laid over it."""
        declared = with_declarations(catalog, self._declared)
        self._configured, self.catalog = catalog, declared.catalog
        forget_accounts()
        self._units_problems = declared.problems
        self._discovery.scan.use(signs_of(self.catalog.definitions.values()))
        self._broken = frozenset(Path(problem.file).stem for problem in catalog.problems)
        endpoints = [each.endpoint for each in self.catalog.definitions.values() if each.endpoint]
        named = {
            name
            for each in endpoints
            for name in (each.host_variable, each.port_variable, each.tls_variable, each.prefix_variable)
        }
        self._address_variables = frozenset(named - {""})

    def variables(self) -> frozenset[str]:
        """Environment variables that may be read: by which processes say where they listen, what users' units are, and
        what engines are set to.
        """
        return VARIABLES | DECLARED_VARIABLES | self._address_variables

    def declaration_problems(self) -> tuple[str, ...]:
        """What is wrong with what system units declare."""
        return tuple(str(problem) for problem in self._units_problems)

    def users_declaration_problems(self) -> tuple[str, ...]:
        """What is wrong with what users' units declare."""
        return tuple(str(problem) for problems in self._users_problems.values() for problem in problems)

    def sight(self) -> Sight:
        """How well is seen what /proc hides of other users' processes."""
        return self._processes.sight()

    def before_looking(self) -> Seen:
        """The tenants that are described, with nothing known of them."""
        sample = Sample(self._clock.now(), STARTING)
        return self._seen(sample, take_census(sample, {}, self.catalog, self._recognizer))

    async def look(self, *, needed: bool) -> Seen:
        """Look at everything that is due. needed: whether anybody wants the driver kept open."""
        sample = await self._monitor.sample(utilization=True, needed=needed, sensors=True)
        return await self._look(sample)

    async def moved(self, before: Sample) -> bool:
        """Whether much memory has come or gone since a sample: a glance that asks for little and wakes nothing."""
        used = {gpu.identity.uuid: gpu.memory.used for gpu in before.gpus if gpu.memory is not None}
        now = (await self._monitor.sample(needed=False)).gpus
        return any(
            abs(gpu.memory.used - used.get(gpu.identity.uuid, gpu.memory.used)) >= MOTION for gpu in now if gpu.memory
        )

    async def wake(self) -> bool:
        """Wake the GPUs that sleep; whether there is one to be used."""
        return any(gpu.state == "ok" for gpu in (await self._monitor.wake()).gpus)

    async def look_closely(self, tenant: str) -> Seen:
        """The same with the process lists read anew and, where one is named, a tenant's activity asked anew."""
        seen = await self._look(await self._monitor.sample(fresh_processes=True, utilization=True))
        if not tenant:
            return seen
        activity = await self._tracker.recheck(tenant)
        return replace(seen, now=self._clock.now(), activities={**seen.activities, tenant: activity})

    async def recheck_engines(self) -> None:
        """Query every engine whose API had a problem, so that what has been repaired does not count any more."""
        troubled = [tenant for tenant, each in self._tracker.activities().items() if each.trouble or each.unreachable]
        for tenant in troubled:
            self._tracker.forget_refusals(tenant)
        await asyncio.gather(*(self._tracker.recheck(tenant) for tenant in troubled))

    async def measure(self, tenant: str, gpus: Iterable[str]) -> Mapping[str, Measurement]:
        """Measure some GPUs now as far as one tenant's release goes. Raises GpuUnavailable."""
        measured = {}
        for uuid in gpus:
            try:
                gpu = await self._monitor.sample_gpu(uuid)
                sample = Sample(gpu.sampled_at, DriverStatus("ok"), (gpu,))
                census = self._census(sample, await self._identities(sample))
                self.catalog.resolve(tenant)  # its file may be gone since: what is whose cannot be told then
            except (NoSuchGpu, NoSuchTenant) as error:
                raise GpuUnavailable(str(error)) from error
            found = measurement(self._seen(sample, census), tenant, uuid)
            if found is None:
                what = f"{gpu.identity.name} is {gpu.state}: {gpu.detail or 'its memory is not known'}"
                raise GpuUnavailable(f"{what}. {gpu.remedy}" if gpu.remedy else what)
            measured[uuid] = found
        return measured

    def engines(self, seen: Seen) -> dict[str, EngineStatus]:
        """Identity and reachability of every engine, by tenant id."""
        engines = {}
        for tenant, presence in seen.census.tenants.items():
            definition = seen.definitions[tenant]
            if not definition.engine:
                continue
            activity = seen.activities.get(tenant)
            reachable = activity is not None and _is_reachable(activity, self._discovery.has_answered(tenant))
            detail = "" if reachable or activity is None else activity.reason
            reading = self._discovery.reading(tenant)
            engines[tenant] = EngineStatus(
                tenant, definition.engine, definition.title, presence.endpoint, reachable,
                self._tracker.version(tenant) or reading.version, detail,
                settings=reading.settings, unit=reading.unit, hidden=reading.hidden, needs_reload=reading.needs_reload,
                settings_checked_against=_checked_against(definition.engine),
                settings_problem=_settings_problem(reading, presence.endpoint, self.sight()) if reachable else "",
                peer=presence.peer,
            )  # fmt: skip
        return engines

    def counters(self) -> dict[str, int]:
        """How often each branch of judging activity was taken, by name."""
        return dict(self._tracker.counters)

    async def close(self) -> None:
        """End every look that is under way and let the driver go."""
        await self._discovery.close()
        await self._tracker.close()
        await self._monitor.close()

    async def _look(self, sample: Sample) -> Seen:
        identities = await self._identities(sample)
        if self._witness is not None:
            await self._witness.saw(sample, identities)
        self._heed_declarations(_system_services(identities[pid] for pid in self._pids(sample) & identities.keys()))
        seen = self._seen(sample, self._census(sample, identities))
        self._discovery.look(seen.census, identities, seen.definitions, lambda each: self._recognize(each, identities))
        activities = await self._tracker.look(seen.census, seen.definitions, sample.taken_at, full_cards(sample))
        return replace(seen, now=self._clock.now(), activities=activities)

    async def _identities(self, sample: Sample) -> Mapping[int, ProcessIdentity]:
        """Of everybody who holds VRAM, of the engines that run without, and of their ancestors."""
        pids, scan = self._pids(sample), self._discovery.scan
        if scan.is_due():
            identities = await asyncio.to_thread(lambda: self._processes.identify(pids | scan.look()))
        else:
            identities = await asyncio.to_thread(self._processes.identify, pids) if pids else {}
        return self._discovery.informed(identities, self._address_variables)

    def _pids(self, sample: Sample) -> frozenset[int]:
        return self._discovery.servers().union(process.pid for gpu in sample.gpus for process in gpu.processes)

    def _census(self, sample: Sample, identities: Mapping[int, ProcessIdentity]) -> Census:
        servers = self._discovery.found_servers(
            identities, lambda each: self._recognize(each, identities), self.catalog.resolve
        )
        return take_census(sample, identities, self.catalog, self._recognizer, servers)

    def _recognize(self, identity: ProcessIdentity, identities: Mapping[int, ProcessIdentity]) -> Recognition | None:
        """Which tenant a process belongs to."""
        return self._recognizer.recognize(self.catalog, identity, frozenset(), identities)

    def _seen(self, sample: Sample, census: Census) -> Seen:
        self._users_problems = {each: them for each, them in self._users_problems.items() if each in census.tenants}
        definitions = {presence.id: self._definition(presence) for presence in census.tenants.values()}
        remote = frozenset(t.id for t in census.tenants.values() if t.endpoint and not is_local(t.endpoint))
        problems = {
            tenant: problem
            for tenant, definition in definitions.items()
            if definition.release and (problem := self._release_problem(census.tenants[tenant], definition))
        }
        return Seen(self._clock.now(), sample, census, {}, definitions, remote, problems)

    def _release_problem(self, presence: TenantPresence, definition: TenantDefinition) -> str:
        """Why every rung of a tenant's release would be refused: its engine's version, or an API that has not answered
        and that no probe asks; empty when one would not, or nothing is known."""
        tenant = presence.id
        is_probed = definition.activity is not None and definition.activity.asks_api
        is_engine = bool(presence.holders) and definition.engine in TABLES
        if is_engine and not is_probed and not self._discovery.has_answered(tenant):
            where = f" at {presence.endpoint}" if presence.endpoint else ""
            return f"its API{where} has not answered: nothing can be asked of it"
        version = self._tracker.version(tenant)
        if not version or not all(rung.version for rung in definition.release):
            return ""
        minimums = [rung.version.minimum for rung in definition.release if rung.version]
        if any(at_least(version, minimum) is not False for minimum in minimums):
            return ""
        minimum = minimums[0]
        return f"its version {version} is too old for its release, which needs {minimum} or later: update it"

    def _heed_declarations(self, present: frozenset[str]) -> None:
        declared = self._units.declared(present)
        if declared is not self._declared:
            self._declared = declared
            self.use(self._configured)

    def _definition(self, presence: TenantPresence) -> TenantDefinition:
        """A tenant whose file has errors is asked for nothing: what was meant may be that it must not be."""
        definition, problems = tempered(self.catalog.resolve(presence.id), presence)
        if problems:
            self._users_problems[presence.id] = tuple(problems)
        else:
            self._users_problems.pop(presence.id, None)
        return replace(definition, protected=True) if presence.id in self._broken else definition


def full_cards(sample: Sample) -> frozenset[str]:
    """GPUs with so little free memory that nothing of weight can be loaded: less than an eighth."""
    return frozenset(
        gpu.identity.uuid for gpu in sample.gpus if gpu.memory is not None and gpu.memory.free < gpu.memory.total // 8
    )


def _system_services(identities: Iterable[ProcessIdentity]) -> frozenset[str]:
    """The services of the system's own manager that the processes are in."""
    return frozenset(
        each.unit
        for each in identities
        if each.unit.endswith(".service") and not each.user_unit and not each.unit.startswith("user@")
    )


def _checked_against(engine: str) -> str:
    return TABLES[engine].checked_against if engine in TABLES else ""


def _settings_problem(reading: Reading, endpoint: str, sight: Sight) -> str:
    if reading.found or is_local(endpoint):
        is_blind = not reading.found and sight.state not in ("ok", "unasked")
        return f"{reading.problem}; the reader does not tell of other users' processes" if is_blind else reading.problem
    return "it is on another machine"


def _is_reachable(activity: Activity, has_answered: bool) -> bool:
    """Whether its API answers, whatever that says: an engine is not away because nobody knows whether it works.

    has_answered: when it was asked for its settings; that counts where no probe asks.
    """
    if activity.unreachable:
        return False
    return activity.state in _ANSWERED or bool(has_answered if activity.answered is None else activity.answered)
