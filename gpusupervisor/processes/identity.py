"""Who a process is."""

import posixpath
from dataclasses import dataclass

from gpusupervisor.processes.names import INTERPRETERS, is_game, name_of
from gpusupervisor.processes.settings_files import SettingsFile

_RUN_SOMETHING_ELSE = ("-m", "-c", "-e", "-jar")
_TAKE_A_VALUE = ("-W", "-X")
"""Python's."""


@dataclass(frozen=True, slots=True)
class ProcessKey:
    """A process for good: a recycled PID has another start time."""

    pid: int
    start_time: int
    """Clock ticks after boot, field 22 of /proc/PID/stat."""


@dataclass(frozen=True, slots=True)
class OwnNetwork:
    """A network namespace that is not the machine's: an address that is named in it means nothing outside."""

    addresses: tuple[str, ...] = ()
    """IPv4 addresses of its interfaces, without loopback."""
    ports: tuple[int, ...] = ()
    """TCP ports on which the process listens in it."""


@dataclass(frozen=True, slots=True)
class PublishedPort:
    """A port of the machine that leads into a container."""

    inner: int
    """The port in the container's network; 0: not known, it is the only one that is published."""
    port: int
    host: str = ""
    """The address of the machine; empty: any."""


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
    """TCP ports on which 127.0.0.1 reaches it."""
    listens_elsewhere: bool = False
    """It listens where 127.0.0.1 does not lead: at another address, or in a network of its own."""
    network: OwnNetwork | None = None
    """Where it has a network of its own; None: it has the machine's, or nobody has looked (see `is_elsewhere`)."""
    published: tuple[PublishedPort, ...] = ()
    """Ports of the machine that lead to it, where it has a network of its own."""
    container_name: str = ""
    """What the container is called, where the runtime's own processes say so."""
    has_opened_gpu: bool = False
    """It has a device file of the driver open."""
    environment: tuple[tuple[str, str], ...] = ()
    """Only the variables that tenant definitions and engines' settings name; of secrets only that they are set."""
    configuration: tuple[SettingsFile, ...] = ()
    """Its configuration files, the one that counts most last; known together with `environment`."""
    ancestors: tuple[ProcessKey, ...] = ()
    """Parent first, up to PID 1 (excluded)."""
    hidden: frozenset[str] = frozenset()
    """Names of fields that only root may read or that nobody has read yet, e.g. {"executable", "environment"}."""

    @property
    def program(self) -> str:
        """Base name of its executable or, where that is hidden, of its first argument; empty when neither is known."""
        return (self.executable or "".join(self.command_line[:1])).rsplit("/", 1)[-1]

    @property
    def name(self) -> str:
        """What to call it before a person: "blender", "VLLM::EngineCore", or "python3 main.py"."""
        return name_of(
            self.executable, self.command_line, self.comm,
            script=self.script, unit=self.unit, user_unit=self.user_unit,
        )  # fmt: skip

    @property
    def is_game(self) -> bool:
        """Whether it is a game, or a program for Windows."""
        return is_game(self.executable, self.command_line, self.unit, self.user_unit)

    @property
    def is_kernel_thread(self) -> bool:
        """Whether it is one of the kernel's own threads, all of which kthreadd (PID 2) has started."""
        return (self.key.pid == 2 or self.parent_pid == 2) and not self.command_line and not self.executable

    @property
    def is_elsewhere(self) -> bool:
        """Whether the addresses that it names are not, or may not be, the machine's: it has a network of its own, or is
        in a container of which that is not known yet."""
        return self.network is not None or (bool(self.container) and "environment" in self.hidden)

    @property
    def started_by_root(self) -> bool:
        """Whether root has started it, or chosen how it is started: a process of root's, or of a system unit.

        Only root can put a process into a control group outside the users' own.
        """
        is_users = self.unit.startswith("user@") or self.cgroup.startswith("/user.slice/")
        return self.uid == 0 or (bool(self.unit) and not is_users)

    @property
    def listens(self) -> bool:
        """Whether it is known to listen on any TCP port."""
        return bool(self.listening_ports) or self.listens_elsewhere

    @property
    def arguments(self) -> tuple[str, ...]:
        """What its program was given; of an interpreter, what the script or module that it runs was given."""
        where = self.script_index
        if where is None and self._is_interpreter and "-m" in self.command_line[1:]:
            where = self.command_line.index("-m", 1) + 1
        return self.command_line[(where or 0) + 1 :]

    @property
    def placed_command_line(self) -> tuple[str, ...]:
        """The command line with the folder of an interpreter's script: "python main.py" started in /opt/app is
        "python /opt/app/main.py". The same as `command_line` where nothing is to be added, or the folder is hidden.
        """
        where = self.script_index
        if not self.working_directory or where is None or self.command_line[where].startswith("/"):
            return self.command_line
        script = posixpath.normpath(f"{self.working_directory}/{self.command_line[where]}")
        return (*self.command_line[:where], script, *self.command_line[where + 1 :])

    @property
    def script(self) -> str:
        """What an interpreter runs: the base name of its first argument, or its module; empty for other programs."""
        where = self.script_index
        if where is not None:
            return self.command_line[where].rsplit("/", 1)[-1]
        if self._is_interpreter and "-m" in self.command_line[1:]:
            return " ".join(self.command_line[self.command_line.index("-m") :][:2])
        return ""

    @property
    def _is_interpreter(self) -> bool:
        programs = (self.executable, *self.command_line[:1])
        return any(program.rsplit("/", 1)[-1].startswith(INTERPRETERS) for program in programs)

    @property
    def script_index(self) -> int | None:
        """Which argument is an interpreter's script: its first one; None when there is none or it runs a module."""
        if not self._is_interpreter:
            return None
        arguments = iter(enumerate(self.command_line[1:], 1))
        for index, argument in arguments:
            if argument in _RUN_SOMETHING_ELSE:
                return None
            if argument in _TAKE_A_VALUE:
                next(arguments, None)
            elif not argument.startswith("-"):
                return index
        return None
