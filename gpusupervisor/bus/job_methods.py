"""The methods of jobs, and how the methods of other objects start one."""

from functools import partial

from dbus_fast.aio import MessageBus

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.authority import known_user
from gpusupervisor.bus.interfaces import JOB
from gpusupervisor.bus.job_views import job_view
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.published import variants
from gpusupervisor.bus.views import Realtime
from gpusupervisor.bus.wire import text
from gpusupervisor.jobs import Job, Jobs, Work


class JobMethods:
    """Handlers of the collection and of each job."""

    def __init__(self, jobs: Jobs, admission: Admission, bus: MessageBus, realtime: Realtime) -> None:
        self._jobs = jobs
        self._admission = admission
        self._bus = bus
        self._realtime = realtime

    async def start(self, call: Call, kind: str, target: str, work: Work) -> str:
        """Start a job on behalf of a caller that was let in; its object, which is there from now on.

        A method that does so declares the output "job:o", and its handler is

            async with self._admission.authorized(call, names.ACTION_CONTROL_PROFILE, gpu=gpu):
                return [await self._jobs.start(call, "autotune", gpu, work)]

        target: what it works on, for people to read. Raises SupervisorError, or AccessDenied when the caller has left.
        """
        return self.start_for(await self.owner(call), kind, target, work)

    async def owner(self, call: Call) -> int:
        """The uid of a caller; raises AccessDenied when it has left."""
        return await known_user(self._bus, call.sender)

    def start_for(self, owner: int, kind: str, target: str, work: Work) -> str:
        """Start a job on behalf of a user at once, with nothing awaited meanwhile. Raises SupervisorError."""
        return names.job_path(self._jobs.start(kind, work, target, owner).id)

    def running_of(self, kind: str) -> tuple[Job, ...]:
        """The jobs of a kind that run."""
        return self._jobs.running_of(kind)

    def jobs(self) -> Handlers:
        """Of the collection of jobs."""
        return {"List": self._list, "Get": self._get, "Cancel": self._cancel}

    def job(self, number: int) -> Handlers:
        """Of one job."""
        return {"Cancel": partial(self._cancel_this, number)}

    async def _list(self, _call: Call) -> list[object]:
        return [[job.id for job in self._jobs.list()]]

    async def _get(self, _call: Call, number: int) -> list[object]:
        return [variants(JOB, job_view(self._jobs.get(number), self._realtime))]

    async def _cancel(self, call: Call, number: int) -> list[object]:
        return await self._cancel_this(number, call)

    async def _cancel_this(self, number: int, call: Call) -> list[object]:
        """Whoever had it started may end it; who else may is for polkit to say."""
        job = self._jobs.running(number)
        if await known_user(self._bus, call.sender) == job.owner:
            self._jobs.cancel(number)
            return []
        details = {"kind": job.kind, "target": text(job.target)}
        async with self._admission.authorized(call, names.ACTION_CANCEL_JOB, **details):
            self._jobs.cancel(number)
        return []
