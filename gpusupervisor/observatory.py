"""What is going on: samples, census and activities, made into one `Seen` per look.

The first half of the way of the data; it decides nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from gpusupervisor.arbitration.compose import Seen, measurement
from gpusupervisor.arbitration.verify import Measurement
from gpusupervisor.clock import Clock
from gpusupervisor.engine_discovery import EngineDiscovery
from gpusupervisor.engine_http import EngineHttp, is_local
from gpusupervisor.engines.variables import VARIABLES
from gpusupervisor.errors import GpuUnavailable, NoSuchGpu, NoSuchTenant
from gpusupervisor.gpu.driver_status import STARTING
from gpusupervisor.gpu.monitor import GpuMonitor
from gpusupervisor.gpu.sample import DriverStatus, Sample
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.privileged import Sight
from gpusupervisor.processes.reader import ProcessReader
from gpusupervisor.state import EngineStatus
from gpusupervisor.tenants.activity.tracker import ActivityTracker
from gpusupervisor.tenants.catalog import Catalog
from gpusupervisor.tenants.census import Census
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.recognizer import Recognizer
from gpusupervisor.tenants.take_census import take_census
from gpusupervisor.unit_client import UnitClient

_ANSWERED = ("idle", "busy", "stuck")


class Observatory:
    """Looks at GPUs, processes and engines."""

    def __init__(
        self,
        monitor: GpuMonitor,
        processes: ProcessReader,
        http: EngineHttp,
        catalog: Catalog,
        clock: Clock,
        units: UnitClient,
    ) -> None:
        self.use(catalog)
        self._discovery = EngineDiscovery(http, clock, units)
        self._monitor = monitor
        self._processes = processes
        self._tracker = ActivityTracker(clock, http)
        self._recognizer = Recognizer()
        self._clock = clock

    def use(self, catalog: Catalog) -> None:
        """Recognise by another catalog from now on."""
        self.catalog = catalog
        self._broken = frozenset(Path(problem.file).stem for problem in catalog.problems)
        endpoints = (definition.endpoint for definition in catalog.definitions.values())
        self._host_variables = frozenset(each.host_variable for each in endpoints if each and each.host_variable)
        self._wants_utilization = any(
            probe.kind == "sm-utilization"
            for definition in catalog.definitions.values()
            if definition.activity
            for probe in definition.activity.probes
        )

    def variables(self) -> frozenset[str]:
        """Environment variables that may be read: by which tenants say where they listen, and engines are set."""
        return self._host_variables | VARIABLES

    def sight(self) -> Sight:
        """How well is seen what /proc hides of other users' processes."""
        return self._processes.sight()

    def before_looking(self) -> Seen:
        """The tenants that are described, with nothing known of them."""
        sample = Sample(self._clock.now(), STARTING)
        return self._seen(sample, take_census(sample, {}, self.catalog, self._recognizer))

    async def look(self, *, needed: bool) -> Seen:
        """Look at everything that is due. needed: whether anybody wants the driver kept open."""
        return await self._look(await self._monitor.sample(utilization=self._wants_utilization, needed=needed))

    async def look_closely(self, tenant: str) -> Seen:
        """The same with the process lists read anew and, where one is named, a tenant's activity asked anew."""
        seen = await self._look(await self._monitor.sample(fresh_processes=True, utilization=self._wants_utilization))
        if not tenant:
            return seen
        activity = await self._tracker.recheck(tenant)
        return replace(seen, now=self._clock.now(), activities={**seen.activities, tenant: activity})

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
                raise GpuUnavailable(f"{gpu.identity.name} is {gpu.state}: {gpu.detail or 'its memory is not known'}")
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
            reachable = activity is not None and activity.state in _ANSWERED and not activity.unreachable
            detail = "" if reachable or activity is None else activity.reason
            reading = self._discovery.reading(tenant)
            engines[tenant] = EngineStatus(
                tenant, definition.engine, definition.title, presence.endpoint, reachable,
                self._tracker.version(tenant) or reading.version, detail,
                settings=reading.settings, unit=reading.unit, hidden=reading.hidden, needs_reload=reading.needs_reload,
            )  # fmt: skip
        return engines

    async def close(self) -> None:
        """End every look that is under way and let the driver go."""
        await self._discovery.close()
        await self._tracker.close()
        await self._monitor.close()

    async def _look(self, sample: Sample) -> Seen:
        identities = await self._identities(sample)
        seen = self._seen(sample, self._census(sample, identities))
        self._discovery.look(seen.census, identities, seen.definitions, lambda each: self._is_of(each, identities))
        activities = await self._tracker.look(seen.census, seen.definitions, sample.taken_at)
        return replace(seen, now=self._clock.now(), activities=activities)

    async def _identities(self, sample: Sample) -> Mapping[int, ProcessIdentity]:
        """Of everybody who holds VRAM, of the engines that run without, and of their ancestors."""
        pids = self._discovery.servers().union(process.pid for gpu in sample.gpus for process in gpu.processes)
        identities = await asyncio.to_thread(self._processes.identify, pids) if pids else {}
        return self._discovery.informed(identities, self._host_variables)

    def _census(self, sample: Sample, identities: Mapping[int, ProcessIdentity]) -> Census:
        servers = self._discovery.unit_servers()
        return take_census(sample, identities, self.catalog, self._recognizer, servers)

    def _is_of(self, identity: ProcessIdentity, identities: Mapping[int, ProcessIdentity]) -> str:
        """The id of the definition that a process belongs to."""
        recognition = self._recognizer.recognize(self.catalog, identity, frozenset(), identities)
        return recognition.definition_id if recognition is not None else ""

    def _seen(self, sample: Sample, census: Census) -> Seen:
        definitions = {tenant: self._definition(tenant) for tenant in census.tenants}
        remote = frozenset(t.id for t in census.tenants.values() if t.endpoint and not is_local(t.endpoint))
        return Seen(self._clock.now(), sample, census, {}, definitions, remote)

    def _definition(self, tenant: str) -> TenantDefinition:
        """A tenant whose file has errors is asked for nothing: what was meant may be that it must not be."""
        definition = self.catalog.resolve(tenant)
        return replace(definition, protected=True) if tenant in self._broken else definition
