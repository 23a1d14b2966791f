"""The service's boundary, with a stage behind it in the place of the machine."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from gpusupervisor.clock import MICROSECONDS, Clock
from gpusupervisor.engine_http import (
    NO_USERS,
    Answer,
    BadAnswer,
    EngineHttp,
    Header,
    NotAllowed,
    Peer,
    TimedOut,
    Unreachable,
    connectable,
    is_local,
)
from gpusupervisor.engine_http.connection import MAX_BODY
from gpusupervisor.engines.configured import Unit
from gpusupervisor.errors import NoSuchGpu
from gpusupervisor.films.stage import UNKNOWN_SIZE, Stage, StagedGpu, StagedProcess
from gpusupervisor.gpu.driver_status import NO_GPU
from gpusupervisor.gpu.sample import (
    DriverStatus,
    GpuIdentity,
    GpuMemory,
    GpuProcess,
    GpuSample,
    GpuSensors,
    Sample,
    told_apart,
)
from gpusupervisor.processes.identity import ProcessKey
from gpusupervisor.processes.privileged import PrivilegedFacts, Sight
from gpusupervisor.processes.procfs import Procfs, Stat
from gpusupervisor.tenants.census import TenantPresence
from gpusupervisor.tenants.declared import Variables
from gpusupervisor.unit_environment import Given

OK = DriverStatus("ok", version="580.95.05")


class StagedMonitor:
    """In the place of `GpuMonitor`."""

    def __init__(self, stage: Stage, clock: Clock, up_to_date: Callable[[], None]) -> None:
        """up_to_date: brings the stage to the present."""
        self._stage = stage
        self._clock = clock
        self._up_to_date = up_to_date

    async def sample(
        self, *, fresh_processes: bool = False, utilization: bool = False, needed: bool = True, sensors: bool = False
    ) -> Sample:
        """See `GpuMonitor`."""
        self._up_to_date()
        now = self._clock.now()
        gpus = told_apart([self._gpu(alias, gpu, now, utilization) for alias, gpu in self._stage.gpus.items()])
        return Sample(now, self._driver(), gpus)

    async def wake(self) -> Sample:
        """See `GpuMonitor`."""
        self._up_to_date()
        for gpu in self._stage.gpus.values():
            if gpu.state == "asleep":
                gpu.state = "ok"
        return await self.sample()

    async def sample_gpu(self, uuid: str) -> GpuSample:
        """See `GpuMonitor`."""
        for gpu in (await self.sample(fresh_processes=True)).gpus:
            if gpu.identity.uuid == uuid:
                return gpu
        raise NoSuchGpu(f"There is no GPU {uuid!r}")

    async def close(self) -> None:
        """See `GpuMonitor`."""

    def _driver(self) -> DriverStatus:
        if not self._stage.gpus:
            return NO_GPU
        asleep = all(gpu.state == "asleep" for gpu in self._stage.gpus.values())
        return DriverStatus("asleep", version=OK.version) if asleep else OK

    def _gpu(self, alias: str, gpu: StagedGpu, now: int, utilization: bool) -> GpuSample:
        identity = GpuIdentity(gpu.uuid, gpu.name, "")
        if gpu.state != "ok":
            return GpuSample(identity, gpu.state, now, detail=gpu.detail)
        processes = tuple(_processes(self._stage, alias, now, utilization))
        used = gpu.used
        if used is None:
            used = gpu.other + sum(process.used or 0 for process in processes)
        used = min(used, gpu.total - gpu.reserved)
        memory = GpuMemory(gpu.total, used, gpu.total - gpu.reserved - used, gpu.reserved, gpu.source)
        sensors = GpuSensors(gpu.power, gpu.temperature, gpu.utilization)
        return GpuSample(identity, "ok", now, memory, processes, gpu.problem, gpu.detail, sensors)


def _processes(stage: Stage, alias: str, now: int, utilization: bool) -> Iterator[GpuProcess]:
    for process in stage.processes.values():
        if alias not in process.vram:
            continue
        held = process.held(alias, now)
        if held:
            sm = _sm_of(process, alias) if utilization else None
            yield GpuProcess(process.pid, None if held == UNKNOWN_SIZE else held, frozenset({process.kind}), sm)


def _sm_of(process: StagedProcess, alias: str) -> int | None:
    return process.sm.get(alias, 0) if isinstance(process.sm, Mapping) else process.sm


class StagedProcfs(Procfs):
    """In the place of /proc."""

    def __init__(self, stage: Stage, clock: Clock) -> None:
        super().__init__(Path("/nonexistent"))
        self._stage = stage
        self._clock = clock

    def pids(self) -> frozenset[int]:
        """See `Procfs`."""
        return frozenset(pid for pid, process in self._stage.processes.items() if not process.zombie)

    def stat(self, pid: int) -> Stat | None:
        """See `Procfs`."""
        process = self._living(pid)
        if process is None:
            return None
        return Stat(ProcessKey(pid, process.started), process.parent, process.comm, process.cpu_time(self._clock.now()))

    def cgroup(self, pid: int) -> str:
        """See `Procfs`."""
        process = self._living(pid)
        return f"0::{process.cgroup}" if process else ""

    def uid(self, pid: int) -> int | None:
        """See `Procfs`."""
        process = self._living(pid)
        return process.uid if process else None

    def command_line(self, pid: int) -> tuple[str, ...]:
        """See `Procfs`."""
        process = self._living(pid)
        return process.command_line if process else ()

    def link(self, pid: int, name: str) -> str | None:
        """See `Procfs`."""
        process = self._living(pid)
        if process is None:
            return ""
        return process.executable if name == "exe" else process.directory

    def _living(self, pid: int) -> StagedProcess | None:
        process = self._stage.processes.get(pid)
        return None if process is None or process.zombie else process

    async def cpu_time_of(self, presence: TenantPresence) -> int | None:
        """CPU microseconds that the processes of a tenant have used; None when one of them has ended."""
        stats = [self.stat(pid) for pid in {holder.pid for holder in presence.holders}]
        used = [stat.cpu_time for stat in stats if stat is not None]
        return sum(used) if used and len(used) == len(stats) else None


class StagedHelper:
    """In the place of the privileged helper: nothing is hidden."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def facts(self, key: ProcessKey) -> PrivilegedFacts | None:
        """See `PrivilegedReader`."""
        process = self._stage.processes.get(key.pid)
        if process is None or process.started != key.start_time:
            return None
        return PrivilegedFacts(
            process.executable, process.directory, process.ports, process.environment, process.elsewhere
        )

    def sight(self) -> Sight:
        """See `PrivilegedReader`."""
        return Sight("ok")


class StagedUnits:
    """In the place of systemd. See `Units`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._patterns: frozenset[str] = frozenset()
        self._declared: Mapping[str, Variables] = {}

    @property
    def units(self) -> Mapping[str, Unit]:
        """See `Units`."""
        return {
            name: Unit(
                name,
                active=True,
                environment={variable: Given(value, "film") for variable, value in unit.environment.items()},
                declares=unit.declares,
            )
            for name, unit in self._stage.units.items()
        }

    def want(self, patterns: frozenset[str]) -> None:
        """See `Units`."""
        self._patterns = patterns

    def declared(self, present: frozenset[str]) -> Mapping[str, Variables]:
        """See `Units`."""
        declared = {name: unit.declares for name, unit in self._stage.units.items() if unit.declares}
        if declared != self._declared:
            self._declared = declared
        return self._declared


class StagedHttp(EngineHttp):
    """In the place of the network."""

    def __init__(self, stage: Stage, asked: Callable[[str, str, bytes], None]) -> None:
        """asked: hears of each request but GET, with address ("host:port"), "POST /path" and body."""
        super().__init__()
        self._stage = stage
        self._asked = asked

    async def request(
        self,
        verb: str,
        base: str,
        path: str,
        *,
        timeout: int,  # noqa: ASYNC109  (see `EngineHttp`)
        body: bytes | None = None,
        headers: Sequence[Header] = (),
        remote: bool = False,
        largest: int = MAX_BODY,
        peer: Peer = NO_USERS,
        until: re.Pattern[bytes] | None = None,
    ) -> Answer:
        """See `EngineHttp`: a recorded answer is whole."""
        where = connectable(base)
        if not remote and not is_local(where):
            raise NotAllowed(f"{where} is not on this machine")
        parts = urlsplit(where)
        address = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"
        question = f"{verb} {parts.path}{path}"
        reply = self._stage.reply(address, question)
        if verb != "GET" and reply.fault != "refused":
            self._asked(address, question, body or b"")
        if reply.fault == "silent" or reply.after >= timeout:
            await asyncio.sleep(timeout / MICROSECONDS)
            raise TimedOut(f"did not answer {path} in time")
        if reply.after:
            await asyncio.sleep(reply.after / MICROSECONDS)
        if reply.fault == "refused":
            raise Unreachable(f"nothing listens on port {parts.port}")
        if reply.fault == "closed":
            raise BadAnswer("closed the connection without an answer")
        return Answer(reply.status, reply.body, reply.content_type)
