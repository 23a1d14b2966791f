"""What an engine is told in one place: by the process that runs, or by the unit that will start it (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpusupervisor.engines.arguments import given_on
from gpusupervisor.engines.table import Table
from gpusupervisor.engines.values import is_off, is_on
from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.processes.procfs import MAX_ARGUMENTS, MAX_COMMAND_LINE
from gpusupervisor.processes.settings_files import SettingsFile
from gpusupervisor.unit_environment import Given
from gpusupervisor.unit_syntax import expanded, words

LAUNCHERS = frozenset(
    {
        "sh", "bash", "dash", "zsh", "fish", "env", "sudo", "su", "nice", "ionice", "taskset", "numactl", "timeout",
        "conda", "micromamba", "mamba", "uv", "poetry", "pixi", "stdbuf", "systemd-run",
    }
)  # fmt: skip
"""Programs that run another: what they are told is not the engine's."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A system service as systemd has it, and the files that it is made of."""

    name: str
    active: bool = False
    main_pid: int = 0
    members: tuple[int, ...] = ()
    """PIDs in its control group when it was looked at."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Its ExecStart lines, program first, variables not filled in."""
    environment: Mapping[str, Given] = field(default_factory=dict)
    """What its next start gives its processes; sources are files."""
    passed: frozenset[str] = frozenset()
    """Variables that it hands on from systemd's own environment."""
    unreadable: tuple[str, ...] = ()
    """Its environment files that may not be read."""
    needs_reload: bool = False
    """Its files have changed since systemd read them."""
    fragment: str = ""
    """Where its ExecStart comes from."""
    declares: Mapping[str, str] = field(default_factory=dict)
    """Its GPUSUPERVISOR_ variables."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings that one place gives."""

    given: Mapping[str, Given]
    """By the setting's name."""
    complete: bool
    """What is not in it is not given; otherwise not everything could be read."""


def by_process(table: Table, identity: ProcessIdentity) -> Configured:
    """What the running process was started with."""
    environment = {name: Given(value, "environment") for name, value in identity.environment}
    given = _given(table, identity.command_line, environment, "command line")
    given = _with_files(table, given, identity.configuration)
    length = len(" ".join(identity.command_line))
    cut_short = len(identity.command_line) >= MAX_ARGUMENTS or length >= MAX_COMMAND_LINE - 1
    is_read = all(file.readable for file in identity.configuration)
    return Configured(given, "environment" not in identity.hidden and not cut_short and is_read)


def _with_files(table: Table, given: dict[str, Given], files: Sequence[SettingsFile]) -> dict[str, Given]:
    """What is given otherwise, and what configuration files set; a later file counts more than an earlier one."""
    found: dict[str, Given] = {}
    for file in files:
        found |= {name: Given(value, file.path) for name, value in _set_by(table, dict(file.values))}
    return given | found if table.file_beats_flags else found | given


def _set_by(table: Table, values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Settings by name, out of a file's keys. A switch that is off in it is not given."""
    for known in table.settings:
        for key in table.keys_of(known):
            if key in values and (known.takes != "nothing" or is_on(values[key])):
                yield known.name, "" if known.takes == "nothing" else values[key]
                break
        else:
            if any(is_off(values.get(key, "on")) for key in table.undoing_keys_of(known)):
                yield known.name, ""


def by_unit(table: Table, unit: Unit) -> Configured:
    """What the unit will start it with."""
    environment = unit.environment
    command = unit.commands[-1] if unit.commands else ()
    arguments = expanded(command, {name: given.value for name, given in environment.items()})
    return Configured(_given(table, arguments, environment, unit.fragment or unit.name), not unit.unreadable)


def _given(table: Table, arguments: Sequence[str], environment: Mapping[str, Given], source: str) -> dict[str, Given]:
    """Flags beat single variables, and the variable with more flags comes after those of the command line."""
    found: dict[str, Given] = {}
    for known in table.settings:
        candidates = (environment[name] for name in known.variables if name in environment)
        value = next((each for each in candidates if known.is_set(each.value)), None)
        off = (environment[name] for name in known.off_variables if name in environment)
        if value is None and (undone := next((each for each in off if is_off(each.value)), None)):
            value = Given("", undone.source)
        if value is not None:
            found[known.name] = value
    found |= {name: Given(value, source) for name, value in given_on(table, arguments).items()}
    more = environment.get(table.arguments_variable)
    if more is not None:
        found |= {name: Given(value, more.source) for name, value in given_on(table, words(more.value)).items()}
    return found


def is_direct(unit: Unit, identity: ProcessIdentity) -> bool:
    """The process is what the unit's ExecStart names itself, and no script's doing: the unit alone decides."""
    program = unit.commands[-1][0] if unit.commands else ""
    base = program.rsplit("/", 1)[-1]
    return (
        bool(program)
        and identity.key.pid == unit.main_pid
        and base not in LAUNCHERS
        and program in (*identity.command_line[:2], identity.executable)
    )
