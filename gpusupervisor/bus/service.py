"""The bus service: connects, shows the published state, owns the name, and notices when it is lost."""

from collections.abc import Callable, Mapping, Sequence

from gpusupervisor.arbitration.events import Event
from gpusupervisor.bus import interfaces, names
from gpusupervisor.bus.admission import GUARDED, Admission
from gpusupervisor.bus.authority import Authority, PolkitAuthority
from gpusupervisor.bus.control_methods import ControlMethods
from gpusupervisor.bus.control_views import fans_view, profile_view
from gpusupervisor.bus.declare import Interface
from gpusupervisor.bus.job_methods import JobMethods
from gpusupervisor.bus.job_views import finished_body, job_view
from gpusupervisor.bus.log_control import LogControl
from gpusupervisor.bus.methods import Methods
from gpusupervisor.bus.model_methods import ModelMethods
from gpusupervisor.bus.objects import Handlers, ObjectServer
from gpusupervisor.bus.plans import signal_of
from gpusupervisor.bus.presence import Presence
from gpusupervisor.bus.process_methods import ProcessMethods
from gpusupervisor.bus.published import Values
from gpusupervisor.bus.realtime import SteadyRealtime
from gpusupervisor.bus.record_methods import Recorder, RecordMethods
from gpusupervisor.bus.telemetry_methods import TelemetryMethods
from gpusupervisor.bus.transport import BusConnection
from gpusupervisor.bus.views import (
    changed_checks,
    dead_band,
    engine_view,
    gpu_view,
    health_view,
    manager_view,
    starting,
    tenant_view,
)
from gpusupervisor.bus.warm_methods import WarmMethods
from gpusupervisor.clock import Clock
from gpusupervisor.controls import HardwareController
from gpusupervisor.gpu.sample import GpuSample
from gpusupervisor.health.surroundings import PolkitSeen
from gpusupervisor.jobs import Job, Jobs
from gpusupervisor.journal.setup import SUPERVISOR
from gpusupervisor.state import Controller, State
from gpusupervisor.telemetry.chores import Limits
from gpusupervisor.telemetry.service import Telemetry, TelemetryAnswers

Views = dict[Interface, Values]
"""The properties of an object, by interface."""
AuthorityFactory = Callable[[BusConnection], Authority]


class BusService:
    """The daemon's whole face. Made by `start`."""

    def __init__(
        self,
        presence: Presence,
        controller: Controller,
        hardware: HardwareController,
        jobs: Jobs,
        version: str,
        clock: Clock,
        authority: Authority,
        telemetry: TelemetryAnswers | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self._presence = presence
        self._version = version
        self._state = starting()
        self._realtime = SteadyRealtime(clock)
        self._authority = authority
        admission = Admission(authority)
        self._methods = Methods(controller, admission, self._realtime, lambda: self._state)
        self._jobs = jobs
        self._job_methods = JobMethods(jobs, admission, presence.bus, self._realtime)
        self._model_methods = ModelMethods(controller, admission, self._job_methods, lambda: self._state)
        self._control_methods = ControlMethods(hardware, controller, self._job_methods, admission)
        self._process_methods = ProcessMethods(controller, admission, lambda: self._state)
        self._record_methods = RecordMethods(recorder, admission)
        self._telemetry_methods = TelemetryMethods(telemetry or Telemetry(None, Limits(0, 0), clock), admission)
        self._warm_methods = WarmMethods(controller, admission, self._job_methods, lambda: self._state)
        self._server = ObjectServer(presence.bus, names.ROOT, guarded=GUARDED)
        self._export_fixed_objects()
        LogControl(self._server, presence.bus, SUPERVISOR)

    @classmethod
    async def start(
        cls,
        bus_address: str | None,
        controller: Controller,
        hardware: HardwareController,
        jobs: Jobs,
        version: str,
        clock: Clock,
        authority: AuthorityFactory = PolkitAuthority,
        telemetry: TelemetryAnswers | None = None,
        recorder: Recorder | None = None,
    ) -> "BusService":
        """Connect (None: the system bus), export, then own the name. Raises `BusUnavailable`.

        jobs: whoever owns them tells of each change by `show_job`. telemetry: None stores nothing.
        recorder: None where nothing can be recorded.
        """
        presence = await Presence.connect(bus_address, names.BUS_NAME)
        service = cls(
            presence, controller, hardware, jobs, version, clock, authority(presence.bus), telemetry, recorder
        )
        try:
            await presence.own_name()
        except BaseException:
            await service.stop()
            raise
        return service

    @property
    def connection(self) -> BusConnection:
        """For calls of other services."""
        return self._presence.bus

    def publish(self, state: State) -> None:
        """Show a new state; listeners are told of what changed."""
        before, self._state = self._state, state
        self._realtime.refresh()
        server = self._server
        server.update(names.ROOT, interfaces.MANAGER, manager_view(state, self._version))
        server.update(names.HEALTH_PATH, interfaces.HEALTH, health_view(state, self._realtime))
        tenants = {names.tenant_path(id_): id_ for id_ in state.definitions}
        self._show(
            names.TENANTS_PATH,
            {path: {interfaces.TENANT: tenant_view(state, id_, self._realtime)} for path, id_ in tenants.items()},
            lambda path: {interfaces.TENANT: self._methods.tenant(tenants[path])},
        )
        engines = {names.engine_path(id_): id_ for id_ in state.engines}
        self._show(
            names.ENGINES_PATH,
            {path: {interfaces.ENGINE: engine_view(state, id_)} for path, id_ in engines.items()},
            lambda path: {interfaces.ENGINE: self._engine_handlers(engines[path])},
        )
        gpus = {names.gpu_path(gpu.identity.uuid): gpu for gpu in state.sample.gpus}
        self._show(
            names.GPUS_PATH,
            {path: self._gpu_views(state, gpu) for path, gpu in gpus.items()},
            lambda path: self._gpu_handlers(gpus[path].identity.uuid),
        )
        self._show_jobs()
        server.flush(dead_band(state))
        for body in changed_checks(before.checks, state.checks, self._realtime):
            server.emit(names.HEALTH_PATH, interfaces.HEALTH, "Changed", body)

    def show_job(self, job: Job) -> None:
        """Show a job that is new or has changed; of its end listeners are told at once."""
        self._show_jobs()
        self._server.flush(dead_band(self._state))
        if job.state != "running":
            path = names.job_path(job.id)
            self._server.flush_at_once(path)
            self._server.emit(path, interfaces.JOB, "Finished", finished_body(job))

    def emit(self, event: Event) -> None:
        """Tell listeners of an event."""
        member, body = signal_of(event, self._realtime)
        self._server.emit(names.ROOT, interfaces.MANAGER, member, body)

    def emit_control(self, gpu: str, member: str, body: Sequence[object]) -> None:
        """Tell listeners of an event of what the helper controls, as its signal named it."""
        path = names.gpu_path(gpu)
        if path not in self._server.paths(names.GPUS_PATH):
            return
        if member == "FanAlert":
            self._server.emit(path, interfaces.FANS, "Alert", body)
        else:
            self._server.emit(path, interfaces.PROFILE, member, body)

    async def authority_seen(self) -> PolkitSeen:
        """How it is with who decides what callers may."""
        return await self._authority.seen()

    async def wait_lost(self) -> str:
        """Waits until the connection or the name is lost, and says which: there is no way on but to exit."""
        return await self._presence.wait_lost()

    async def stop(self) -> None:
        """Answer what is being served with an error and leave the bus."""
        await self._server.close()
        await self._authority.close()
        await self._presence.leave()

    def _export_fixed_objects(self) -> None:
        export = self._server.export
        processes = self._process_methods
        manager = {**self._methods.manager(), **processes.manager(), **self._record_methods.manager()}
        export(names.ROOT, interfaces.MANAGER, manager, manager_view(self._state, self._version))
        export(names.TENANTS_PATH, interfaces.TENANTS, {**self._methods.tenants(), **processes.tenants()})
        engines = {**self._methods.engines(), **self._model_methods.engines(), **self._warm_methods.engines()}
        export(names.ENGINES_PATH, interfaces.ENGINES, engines)
        shown = health_view(self._state, self._realtime)
        export(names.HEALTH_PATH, interfaces.HEALTH, self._methods.health(), shown)
        export(names.TELEMETRY_PATH, interfaces.TELEMETRY, self._telemetry_methods.telemetry())
        export(names.JOBS_PATH, interfaces.JOBS, self._job_methods.jobs())

    def _show_jobs(self) -> None:
        jobs = {names.job_path(job.id): job for job in self._jobs.list()}
        self._show(
            names.JOBS_PATH,
            {path: {interfaces.JOB: job_view(job, self._realtime)} for path, job in jobs.items()},
            lambda path: {interfaces.JOB: self._job_methods.job(jobs[path].id)},
        )

    def _engine_handlers(self, engine: str) -> Handlers:
        return {**self._model_methods.engine(engine), **self._warm_methods.engine(engine)}

    def _gpu_views(self, state: State, gpu: GpuSample) -> Views:
        uuid = gpu.identity.uuid
        return {
            interfaces.GPU: gpu_view(state, gpu, self._realtime),
            interfaces.FANS: fans_view(state.controls, uuid),
            interfaces.PROFILE: profile_view(state.controls, uuid),
        }

    def _gpu_handlers(self, uuid: str) -> dict[Interface, Handlers]:
        methods = self._control_methods
        return {
            interfaces.GPU: methods.gpu(uuid),
            interfaces.FANS: methods.fans(uuid),
            interfaces.PROFILE: methods.profile(uuid),
        }

    def _show(
        self,
        prefix: str,
        objects: dict[str, Views],
        handlers: Callable[[str], Mapping[Interface, Handlers]] = lambda _path: {},
    ) -> None:
        """Make the objects below a path exactly those of `views`."""
        there = self._server.paths(prefix)
        for path in there - objects.keys():
            self._server.unexport(path)
        for path, views in objects.items():
            offered = {} if path in there else handlers(path)
            for interface, values in views.items():
                if path in there:
                    self._server.update(path, interface, values)
                else:
                    self._server.export(path, interface, offered.get(interface), values)
