"""The commands: which there are, and the module of each, which is imported when it is needed."""

from collections.abc import Mapping
from importlib import import_module

from gpusupervisor.cli.registry import Command

GROUPS: Mapping[str, tuple[str, ...]] = {
    "setup": ("setup",),
    "status": ("status",),
    "top": ("top",),
    "tenants": ("tenants", "tenant"),
    "engines": ("engines", "engine"),
    "memory": ("plan", "make-room", "release"),
    "definitions": ("cat", "edit", "lint"),
    "service": ("automatic", "reload", "health"),
    "controls": ("fans", "profile"),
    "models": ("models", "load", "unload"),
    "warm": ("warm",),
    "autotune": ("autotune",),
    "verify": ("verify",),
    "jobs": ("jobs", "job", "cancel"),
    "history": ("history", "events"),
    "learned": ("learned", "forget"),
    "monitor": ("monitor",),
    "record": ("record-card",),
    "films": ("record", "replay"),
}
"""Modules of this package with the commands that each declares, in the order of `gpusupervisorctl --help`."""


def is_known(name: str) -> bool:
    """Whether there is such a command."""
    return any(name in names for names in GROUPS.values())


def nearest(name: str) -> str:
    """Return the command that was probably meant, or ""."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, [each for names in GROUPS.values() for each in names], 1)), "")


def load(name: str) -> Command:
    """One command; `name` must be one."""
    group = next(group for group, names in GROUPS.items() if name in names)
    return next(command for command in _declared(group) if command.name == name)


def load_all() -> list[Command]:
    """Every command."""
    return [command for group in GROUPS for command in _declared(group)]


def _declared(group: str) -> tuple[Command, ...]:
    found: tuple[Command, ...] = import_module(f"{__name__}.{group}").COMMANDS
    return found
