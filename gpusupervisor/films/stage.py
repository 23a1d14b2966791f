"""The stage: GPUs, processes, engines and units as a film, or a modelled machine, has them at one moment.

Mutable, for one event loop. Instants are microseconds of the virtual clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpusupervisor.gpu.sample import GpuState, MemorySource, ProcessKind

UNKNOWN_SIZE = -1
"""A process's memory on a GPU whose size the driver does not tell."""


@dataclass(slots=True)
class StagedGpu:
    """One GPU. In bytes."""

    uuid: str
    name: str = "NVIDIA GeForce RTX 3090"
    total: int = 24 << 30
    used: int | None = None
    """None: what its processes hold, and `other`."""
    other: int = 0
    """In use, and no process's."""
    reserved: int = 0
    state: GpuState = "ok"
    detail: str = ""
    problem: str = ""
    """Why its process list cannot be believed."""
    source: MemorySource = "nvml-v2"
    power: int | None = None
    temperature: int | None = None
    utilization: int | None = None


@dataclass(frozen=True, slots=True)
class Ramp:
    """A figure that moves evenly from one value to another."""

    start: int
    end: int
    since: int
    until: int

    def at(self, now: int) -> int:
        """Its value at an instant."""
        if now >= self.until:
            return self.end
        return self.start + (self.end - self.start) * (now - self.since) // (self.until - self.since)


@dataclass(slots=True)
class StagedProcess:
    """One process."""

    pid: int
    started: int = 0
    """Clock ticks after boot."""
    parent: int = 1
    uid: int = 1000
    comm: str = ""
    executable: str = ""
    command_line: tuple[str, ...] = ()
    cgroup: str = "/"
    directory: str = "/"
    ports: tuple[int, ...] = ()
    elsewhere: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    vram: dict[str, int] = field(default_factory=dict)
    """By GPU; `UNKNOWN_SIZE` where the driver does not tell."""
    ramps: dict[str, Ramp] = field(default_factory=dict)
    kind: ProcessKind = "compute"
    sm: Mapping[str, int] | int | None = 0
    """Percent of SM time, on every GPU or by GPU; None: the driver does not tell."""
    zombie: bool = False
    """The driver still lists it, and nobody is behind it any more."""
    cpu_used: int = 0
    """CPU microseconds at `cpu_since`."""
    cpu_rate: float = 0.0
    """Cores that it keeps busy from then on."""
    cpu_since: int = 0

    def cpu_time(self, now: int) -> int:
        """CPU microseconds used by an instant."""
        return self.cpu_used + int((now - self.cpu_since) * self.cpu_rate)

    def use_cpu(self, now: int, cores: float) -> None:
        """Work at another pace from now on."""
        self.cpu_used, self.cpu_rate, self.cpu_since = self.cpu_time(now), cores, now

    def hold(self, gpu: str, size: int, now: int, over: int = 0) -> None:
        """Hold so many bytes on a GPU, reached evenly within `over` microseconds; 0 bytes: none any more."""
        before = self.held(gpu, now)
        self.ramps.pop(gpu, None)
        if over > 0 and UNKNOWN_SIZE not in (before, size):
            self.ramps[gpu] = Ramp(before, size, now, now + over)
            self.vram[gpu] = size
        elif size == 0:
            self.vram.pop(gpu, None)
        else:
            self.vram[gpu] = size

    def held(self, gpu: str, now: int) -> int:
        """Bytes at an instant; `UNKNOWN_SIZE` where the driver does not tell."""
        ramp = self.ramps.get(gpu)
        if ramp is None:
            return self.vram.get(gpu, 0)
        if now >= ramp.until:
            del self.ramps[gpu]
            if not ramp.end:
                self.vram.pop(gpu, None)
        return ramp.at(now)


@dataclass(frozen=True, slots=True)
class Reply:
    """What an engine answers."""

    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    after: int = 0
    """Microseconds until it does."""
    fault: str = ""
    """Instead of an answer: "silent", "refused" or "closed"."""


@dataclass(slots=True)
class StagedUnit:
    """A system unit."""

    declares: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Stage:
    """Everything."""

    gpus: dict[str, StagedGpu] = field(default_factory=dict)
    """By the film's short name for it."""
    processes: dict[int, StagedProcess] = field(default_factory=dict)
    answers: dict[str, dict[str, Reply]] = field(default_factory=dict)
    """By "host:port", then by "GET /path"."""
    units: dict[str, StagedUnit] = field(default_factory=dict)

    def reply(self, address: str, question: str) -> Reply:
        """What is answered there: 404 to what it does not know, refused where nothing listens."""
        known = self.answers.get(address)
        if known is None:
            return REFUSED
        found = known.get(question) or known.get(question.partition("?")[0])
        if found is not None:
            return found
        return known.get("*", NOT_FOUND if question.startswith("GET ") else EMPTY)


REFUSED = Reply(fault="refused")
NOT_FOUND = Reply(404, b"", "text/plain")
EMPTY = Reply()
