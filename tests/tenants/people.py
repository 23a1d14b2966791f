"""Identities, samples and catalogs for tests, short to write."""

from collections.abc import Iterable, Mapping

from gpusupervisor.gpu.sample import DriverStatus, GpuIdentity, GpuMemory, GpuProcess, GpuSample, ProcessKind, Sample
from gpusupervisor.processes.cgroup import parse_cgroup
from gpusupervisor.processes.identity import ProcessIdentity, ProcessKey

GIB = 1 << 30
HEX = "3f2a" * 16
USER = "/user.slice/user-1000.slice/user@1000.service/app.slice"
SESSION = "/user.slice/user-1000.slice/session-3.scope"
COMPUTE: frozenset[ProcessKind] = frozenset({"compute"})
GRAPHICS: frozenset[ProcessKind] = frozenset({"graphics"})


def who(
    pid: int,
    command_line: str = "",
    *,
    executable: str = "",
    cgroup: str = SESSION,
    comm: str = "python3",
    parents: Iterable[ProcessIdentity] = (),
    parent_pid: int | None = None,
    folder: str = "",
    ports: tuple[int, ...] = (),
    variables: Mapping[str, str] | None = None,
) -> ProcessIdentity:
    """A process; parents are its ancestors, parent first."""
    place = parse_cgroup(f"0::{cgroup}")
    ancestors = tuple(parent.key for parent in parents)
    return ProcessIdentity(
        key=ProcessKey(pid, pid * 10),
        parent_pid=parent_pid if parent_pid is not None else ancestors[0].pid if ancestors else 1,
        uid=1000,
        comm=comm,
        executable=executable,
        command_line=tuple(command_line.split()),
        cgroup=place.path,
        unit=place.unit,
        user_unit=place.user_unit,
        container=place.container,
        working_directory=folder,
        listening_ports=ports,
        environment=tuple((variables or {}).items()),
        ancestors=ancestors,
    )


def gpu(
    uuid: str = "GPU-1",
    *,
    used: int = 10 * GIB,
    processes: Mapping[int, int | None] | None = None,
    kinds: frozenset[ProcessKind] = COMPUTE,
    problem: str = "",
) -> GpuSample:
    """A GPU of 24 GiB and who holds how much of it, by PID."""
    return GpuSample(
        GpuIdentity(uuid, "RTX", ""),
        "ok",
        0,
        GpuMemory(24 * GIB, used, max(0, 24 * GIB - used), 0, "nvml-v2"),
        tuple(GpuProcess(pid, size, kinds) for pid, size in (processes or {}).items()),
        attribution_problem=problem,
    )


def sample(*gpus: GpuSample) -> Sample:
    """These GPUs at one moment."""
    return Sample(0, DriverStatus("ok"), gpus)
