"""The signs of an engine: whether a process may be the server of one, from who it is and nothing else (pure).

The supervisor goes by them to find engines that hold no VRAM, the reader to decide of which processes it may tell. A
program that only names an engine among its arguments (grep, vim, ssh, a shell) shows none of them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.patterns import executable_of, lines_of, matches

_APP_SERVERS = frozenset({"uvicorn", "gunicorn", "hypercorn", "granian"})
"""Programs that are what they are given: "uvicorn speaches.main:app" is Speaches."""


@dataclass(frozen=True, slots=True)
class EngineSigns:
    """Patterns of all definitions of engines; system units are left out, as systemd itself tells of those."""

    user_units: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()
    executables: tuple[str, ...] = ()
    command_lines: tuple[str, ...] = ()

    def shown_by(self, identity: ProcessIdentity) -> bool:
        """Whether it is an engine's by the program that it runs, or by the user unit or container that it is in."""
        return self.shown_by_program(identity) or self._shown_by_place(identity)

    def shown_by_program(self, identity: ProcessIdentity) -> bool:
        """Whether the program itself is an engine, and not only what it was told."""
        if matches(self.executables, executable_of(identity)):
            return True
        lines = [line for line in lines_of(identity) if matches(self.command_lines, line)]
        if not lines:
            return False
        first = "".join(identity.command_line[:1]).rsplit("/", 1)[-1]
        is_app_server = not _APP_SERVERS.isdisjoint((first, identity.script.removeprefix("-m ")))
        rest = "" if is_app_server else " ".join(identity.arguments)
        return any(matches(self.command_lines, line, rest) for line in lines)

    def could_be_shown_by(self, identity: ProcessIdentity) -> bool:
        """Whether the folder that it was started in, which is not known, may make an engine of it: "python main.py"."""
        where = identity.script_index
        if where is None or identity.working_directory or identity.command_line[where].startswith("/"):
            return False
        script = f"/{identity.script}"
        return any(script in pattern for pattern in self.command_lines)

    def _shown_by_place(self, identity: ProcessIdentity) -> bool:
        return matches(self.user_units, identity.user_unit) or (
            bool(identity.container)
            and (matches(self.containers, identity.container) or matches(self.containers, identity.cgroup))
        )


def signs_of(definitions: Iterable[TenantDefinition]) -> EngineSigns:
    """What the engines among these definitions look like."""
    engines = [each.match for each in definitions if each.engine]
    return EngineSigns(
        user_units=tuple(pattern for each in engines for pattern in each.user_units),
        containers=tuple(pattern for each in engines for pattern in each.containers),
        executables=tuple(pattern for each in engines for pattern in each.executables),
        command_lines=tuple(pattern for each in engines for pattern in each.command_lines),
    )
