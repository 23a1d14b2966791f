"""What a process is that holds VRAM and matches no tenant (pure)."""

from collections.abc import Iterable
from typing import Literal

from gpusupervisor.processes.identity import ProcessIdentity
from gpusupervisor.tenants.definition import TenantDefinition
from gpusupervisor.tenants.patterns import executable_of, lines_of, matches

StrangerKind = Literal["program", "game", "desktop"]
"""Only a program is worth a description."""


def kind_of(identity: ProcessIdentity, definitions: Iterable[TenantDefinition]) -> StrangerKind:
    """Return what to say of it.

    A browser that decodes a video and a compositor that computes are not on the driver's graphics list, and so are no
    tenant; they are the desktop's all the same.
    """
    if identity.is_game:
        return "game"
    for match in (each.match for each in definitions if each.match.graphics_only):
        places = matches(match.units, identity.unit) or matches(match.user_units, identity.user_unit)
        program = matches(match.executables, executable_of(identity))
        if places or program or any(matches(match.command_lines, line) for line in lines_of(identity)):
            return "desktop"
    return "program"
