"""What the driver says at one moment, as frozen values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

DriverState = Literal[
    "ok",
    "starting",  # not asked yet
    "missing",  # no libnvidia-ml.so.1, or the kernel module is not loaded
    "mismatch",  # library and kernel module are of different releases
    "no-gpu",  # the driver works and has no device
    "denied",  # the device nodes cannot be opened
    "unresponsive",  # a call did not return within its deadline
    "failing",  # any other error; tried again with back-off
    "asleep",  # every GPU sleeps, NVML is closed so that they can
]
GpuState = Literal["ok", "asleep", "lost", "failing"]
MemorySource = Literal["nvml-v2", "nvml-v1", "unified"]
ProcessKind = Literal["compute", "graphics", "mps"]

NEXT_TO_NOTHING = 16 << 20
"""Bytes that a display server keeps on a GPU beside the one it draws with (Xorg 4 MiB, Wayland compositors a few more);
one framebuffer alone takes 8 MiB and more, and there are several. Such a GPU sleeps all the same."""


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """The state of driver and library, in words a person can act on."""

    state: DriverState
    detail: str = ""
    """What failed, e.g. "nvmlInit: Driver/library version mismatch"."""
    impact: str = ""
    """What that breaks; empty when nothing is broken."""
    remedy: str = ""
    """What to do about it; empty when nothing is broken."""
    version: str = ""
    """Driver version, e.g. "580.95.05"; empty when unknown."""


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """Which GPU. The UUID is the key; the index is never one (it may change at every boot)."""

    uuid: str
    name: str
    """What the driver calls it; in a sample also the beginning of its UUID where there are several GPUs."""
    pci_bus_id: str
    """As sysfs writes it, e.g. "0000:01:00.0"; empty when unknown."""
    coherent: bool = False
    """Linux manages its memory as it does its own (GH200, GB200): pages may stay in use when a process has ended."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes of VRAM on the device. total = reserved + used + free."""

    total: int
    used: int
    free: int
    reserved: int
    source: MemorySource

    @property
    def shared(self) -> bool:
        """It is the machine's own memory: what is reserved is the host programs', what is free shrinks with them."""
        return self.source == "unified"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds VRAM on one GPU, as NVML lists it (compute, graphics and MPS lists merged by PID)."""

    pid: int
    used: int | None
    """Bytes; None when the driver does not say (never read as 0)."""
    kinds: frozenset[ProcessKind]
    sm_utilization: int | None = None
    """Percent of SM time of this process over the last second; None when not asked or not supported."""

    @property
    def looks_on(self) -> bool:
        """A display server that has the GPU open, as it opens every one, and does not use it."""
        return self.kinds == {"graphics"} and self.used is not None and self.used <= NEXT_TO_NOTHING


@dataclass(frozen=True, slots=True)
class GpuSensors:
    """What the card's sensors tell; None for what was not asked for, or is not told."""

    power: int | None = None
    """mW."""
    temperature: int | None = None
    """Degrees Celsius."""
    utilization: int | None = None
    """Percent of time in which anything ran on it: never a sign of one tenant's work."""
    persistence: bool | None = None
    """Whether the driver keeps the GPU initialised while nobody uses it."""


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU at one moment."""

    identity: GpuIdentity
    state: GpuState
    sampled_at: int
    """Microseconds of the domain clock at which `memory` was read."""
    memory: GpuMemory | None = None
    """None while the GPU sleeps, is lost or fails."""
    processes: tuple[GpuProcess, ...] = ()
    """Up to some seconds older than `memory`, for reading them costs more."""
    attribution_problem: str = ""
    """Why the process list cannot be believed ("attribution unavailable: ..."); empty when it can."""
    detail: str = ""
    """What failed, for `lost` and `failing`; that it is detached, for one that counts as `asleep` because it is."""
    sensors: GpuSensors = GpuSensors()
    remedy: str = ""
    """What to do about it; empty when nothing failed, or the driver's own remedy is meant."""
    attribution_gap: str = ""
    """What the process list lacks although it can be believed; empty when nothing."""
    attribution_remedy: str = ""
    """What to do about the problem or the gap."""

    @property
    def is_unused(self) -> bool:
        """Nobody uses it, for certain."""
        return self.state == "ok" and not self.attribution_problem and all(each.looks_on for each in self.processes)


@dataclass(frozen=True, slots=True)
class Sample:
    """All GPUs at one moment, ordered by PCI bus id, and the driver's state."""

    taken_at: int
    driver: DriverStatus
    gpus: tuple[GpuSample, ...] = ()


def told_apart(gpus: Sequence[GpuSample]) -> tuple[GpuSample, ...]:
    """Each of several GPUs with the beginning of its UUID in its name: commands take it by that."""
    if len(gpus) < 2:
        return tuple(gpus)
    return tuple(replace(gpu, identity=_named(gpu.identity)) for gpu in gpus)


def _named(gpu: GpuIdentity) -> GpuIdentity:
    return replace(gpu, name=f"{gpu.name} ({'-'.join(gpu.uuid.split('-')[:2])})")
