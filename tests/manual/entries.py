"""How the manual writes the command line, made from the declarations of the commands."""

from collections.abc import Iterator

from gpusupervisor.cli import commands
from gpusupervisor.cli.registry import Argument, Command


def every_command() -> Iterator[tuple[str, Command]]:
    """Each command and each action of one, with its whole name: "profile", "profile try"."""
    for command in commands.load_all():
        yield command.name, command
        for action in command.actions:
            yield f"{command.name} {action.name}", action


def entry(name: str, command: Command) -> str:
    """The line that begins what gpusupervisorctl(1) says of a command."""
    return " ".join([f"*{name}*", *map(_shown, command.arguments)])


def option_entry(argument: Argument) -> str:
    """The line that begins what it says of an option."""
    names = ", ".join(f"*{name}*" for name in sorted(argument.names, key=len))
    return f"{names} {_value(argument)}".strip()


def is_option(argument: Argument) -> bool:
    return argument.names[0].startswith("-")


def _value(argument: Argument) -> str:
    if argument.settings.get("action", "append") != "append":
        return ""
    choices = argument.settings.get("choices")
    if choices and "metavar" not in argument.settings:  # a long list of them cannot be folded by every man
        return "|".join(f"*{each}*" for each in choices)
    longest = max(argument.names, key=len).lstrip("-")
    return f"_{argument.settings.get('metavar', longest.upper())}_"


def _shown(argument: Argument) -> str:
    """In the line of its command; brackets around what may be left out."""
    many = argument.settings.get("nargs")
    if is_option(argument):
        return f"[*{max(argument.names, key=len)}* {_value(argument)}".strip() + "]"
    value = _value(argument) + ("..." if many in ("*", "+") else "")
    return f"[{value}]" if many in ("?", "*") else value
