"""A process that nobody knows, described: by what it is recognised again, and what it is called. Pure.

The least specific way that is still unambiguous is taken: a file must still be right when the application has moved to
another folder or was started anew, and must not take in what is another application.
"""

import fnmatch
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from gpusupervisor.cli.setup.findings import Process

INTERPRETERS = ("python", "node", "ruby", "perl", "java")
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh"})
VAGUE = frozenset({
    "__main__", "app", "cli", "demo", "generate", "index", "infer", "inference", "launch", "main", "run", "script",
    "serve", "server", "start", "test", "train", "webui", "worker",
})  # fmt: skip
"""Names of scripts that half of all projects have."""
LAUNCHERS = frozenset({
    "accelerate.commands.launch", "gunicorn", "torch.distributed.launch", "torch.distributed.run", "uvicorn",
})  # fmt: skip
"""Modules that run another program, of which their name says nothing."""
_STRONG = ("unit ", "user unit ", "container ")
"""How what the service recognised a process by begins where nothing that is proposed here beats it."""
_LONGEST_ID = 40
_HEX_ID = re.compile(r"[0-9a-f]{64}")
_MANAGERS = re.compile(
    r"(docker|containerd|crio|cri-o|podman|k3s|kubelet|lxc|lxd|incus)\.service|systemd-nspawn@.*\.service"
)
"""Units in which other programs' containers run."""
_TRANSIENT = re.compile(r"(run-|app-|invocation-|dbus-:|vte-spawn-).*|user@[0-9]+\.service")
"""Units that have another name each time, or that hold a whole session."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to recognise it."""

    key: str
    """The key of [match]."""
    patterns: tuple[str, ...]
    name: str
    """What the application is called then."""


def way_to(process: Process, others: Iterable[Process]) -> Way | None:
    """The way to recognise a process and nothing that is another application; None when there is none."""
    foreign = [each for each in others if _essence(each) != _essence(process)]
    for way in _ways(process):
        if matches(way, process) and not any(_takes_away(way, each) for each in foreign):
            return way
    return None


def _essence(process: Process) -> tuple[str, str, str]:
    """What makes it the same application as another process, as far as can be told."""
    for unit in (lasting(process.user_unit), lasting(process.unit)):
        if unit:
            return ("unit", unit, "")
    if _has_a_name(process.container):
        return ("container", process.container, "")
    script = _script_path(process)
    return ("program", script or process.path or process.name, "" if script else process.name)


def _takes_away(way: Way, process: Process) -> bool:
    """Whether the way would make another application's process its own: units and containers beat all else."""
    is_held = process.recognised_by.startswith(_STRONG) or (
        not process.recognised_by and _essence(process)[0] != "program"
    )
    return matches(way, process) and not (is_held and way.key in ("executables", "command-lines"))


def matches(way: Way, process: Process) -> bool:
    """Whether the way takes in a process, as far as is known of it."""
    texts: Sequence[str]
    match way.key:
        case "units":
            texts = (process.unit,)
        case "user-units":
            texts = (process.user_unit,)
        case "containers":
            texts = (process.container,)
        case "executables":
            texts = (process.path or f"/{process.executable}",)
        case _:
            texts = (" ".join(process.command_line) or process.name,)
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts if text for pattern in way.patterns)


def _ways(process: Process) -> Iterator[Way]:
    """Every way, the one that outlives most first, from less to more specific."""
    for key, unit in (("user-units", lasting(process.user_unit)), ("units", lasting(process.unit))):
        if unit:
            yield Way(key, (_literal(unit),), unit.removesuffix(".service"))
    if _has_a_name(process.container):
        yield Way("containers", (_literal(process.container),), process.container)
    if is_interpreter(process.executable):
        yield from _ways_of_script(process)
    elif process.executable:
        yield Way("executables", (f"*/{_literal(process.executable)}",), process.executable)
        if process.path:
            yield Way("executables", (_literal(process.path),), process.executable)
    if process.container:
        yield Way("containers", (process.container,), process.name)


def _ways_of_script(process: Process) -> Iterator[Way]:
    program = next((each for each in INTERPRETERS if process.executable.startswith(each)), process.executable)
    script = process.name.removeprefix(process.executable).strip()
    if script.startswith("-m "):
        module = script.removeprefix("-m ")
        if module not in LAUNCHERS:
            yield Way("command-lines", _with_arguments(f"*{program}* -m {_literal(module)}"), module.partition(".")[0])
        return
    if not script or script.startswith("-"):
        return
    path = _script_path(process)
    folder, name = path.rpartition("/")[0].rpartition("/")[2], _stem(script)
    if not (folder and name.lower() in VAGUE):
        yield Way("command-lines", _with_arguments(f"*{program}*[/ ]{_literal(script)}"), name)
    if folder:
        yield Way("command-lines", _with_arguments(f"*{program}*/{_literal(folder)}/{_literal(script)}"), folder)
        yield Way("command-lines", _with_arguments(f"*{program}* {_literal(path)}"), folder)


def _with_arguments(pattern: str) -> tuple[str, ...]:
    return (pattern, f"{pattern} *")


def _script_path(process: Process) -> str:
    """The whole path of an interpreter's script, where that is known."""
    script = process.name.rpartition(" ")[2]
    found = (each for each in process.command_line[1:] if each.startswith("/") and each.endswith(f"/{script}"))
    return next(found, "") if is_interpreter(process.executable) else ""


def is_interpreter(executable: str) -> bool:
    """Whether a program says nothing of the application."""
    return executable.startswith(INTERPRETERS) or executable in SHELLS


def _has_a_name(container: str) -> bool:
    """Whether a container is called something: an id is another one when it is made anew."""
    return bool(container) and not _HEX_ID.fullmatch(container)


def lasting(unit: str) -> str:
    """The unit where it is a service that has the same name next time, and is one application."""
    is_one = unit.endswith(".service") and not _TRANSIENT.fullmatch(unit) and not _MANAGERS.fullmatch(unit)
    return unit if is_one else ""


def _literal(text: str) -> str:
    """A shell pattern that matches just this text."""
    return re.sub(r"([*?[])", r"[\1]", text)


def _stem(script: str) -> str:
    return script.rpartition(".")[0] or script


def name_for(way: Way, taken: Set[str]) -> str:
    """An id for the tenant that no other has."""
    plain = re.sub(r"[^A-Za-z0-9._:-]+", "-", way.name)[:_LONGEST_ID].strip("-.:") or "application"
    number, name = 2, plain
    while name in taken:
        name, number = f"{plain}-{number}", number + 1
    return name
