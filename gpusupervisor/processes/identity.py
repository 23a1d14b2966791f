"""Who a process is."""

from dataclasses import dataclass

INTERPRETERS = ("python", "node", "ruby", "perl", "java")


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """A process for good: a recycled PID has another start time."""

    pid: int
    start_time: int
    """Clock ticks after boot, field 22 of /proc/PID/stat."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """What is known of a process. What could not be read is empty, and `hidden` says which of it."""

    key: ProcessKey
    parent_pid: int
    uid: int
    comm: str
    """Kernel task name, 15 bytes at most, ambiguous: for people, never for matching alone."""
    executable: str = ""
    """Resolved /proc/PID/exe; empty when not permitted."""
    command_line: tuple[str, ...] = ()
    cgroup: str = ""
    """cgroup path (v2, or the named systemd hierarchy of v1), e.g. "/system.slice/ollama.service"."""
    unit: str = ""
    """System unit (service or scope) of the cgroup, e.g. "ollama.service"; "user@1000.service" for user units."""
    user_unit: str = ""
    """Unit of a user manager, e.g. "comfyui.service"."""
    container: str = ""
    """Container id, 64 hex digits as the runtime wrote it into the cgroup path; empty outside containers."""
    working_directory: str = ""
    listening_ports: tuple[int, ...] = ()
    ancestors: tuple[ProcessKey, ...] = ()
    """Parent first, up to PID 1 (excluded)."""
    hidden: frozenset[str] = frozenset()
    """Names of fields that only root may read, e.g. {"executable", "working_directory"}."""

    @property
    def name(self) -> str:
        """What to call it before a person: "blender", or "python3 main.py" where an interpreter says little."""
        for candidate in (self.executable, *self.command_line[:1]):
            base = candidate.rsplit("/", 1)[-1].strip()
            if base:
                return f"{base} {self._script}".rstrip() if base.startswith(INTERPRETERS) else base
        return self.comm

    @property
    def _script(self) -> str:
        """What an interpreter runs: the base name of its first argument, or its module."""
        arguments = iter(self.command_line[1:])
        for argument in arguments:
            if argument == "-m":
                return f"-m {next(arguments, '')}"
            if not argument.startswith("-"):
                return argument.rsplit("/", 1)[-1]
        return ""
