"""What a command is: its name, arguments and handler, declared so that completion and man pages can read it too."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpusupervisor.quantities import parse_bytes

if TYPE_CHECKING:
    from gpusupervisor.cli.session import Session

Completes = Literal["", "tenant", "gpu", "engine", "model", "job", "check", "file", "host"]
"""What an argument names, so that completion can ask the running service for it."""
Handler = Callable[["Session"], Awaitable[int | None]]
_SMALLEST = 1 << 20
"""Bytes below which nobody asks for VRAM."""


class Argument(NamedTuple):
    """One argument of a command."""

    names: tuple[str, ...]
    """A positional's name, or the spellings of an option."""
    help: str
    completes: Completes
    settings: Mapping[str, Any]
    """More of what argparse's add_argument takes."""


def argument(*names: str, help: str, completes: Completes = "", **settings: Any) -> Argument:  # noqa: A002, ANN401  (argparse's words and values)
    """Declare one argument; `settings` as argparse has them."""
    return Argument(names, help, completes, settings)


def typed(parse: Callable[[str], int]) -> Callable[[str], int]:
    """A reader of amounts whose ValueError says what is allowed, so that argparse shows its words."""

    def read(text: str) -> int:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def size(text: str) -> int:
    """Read a size of VRAM: as `parse_bytes`, but a small bare number is refused, since it lacks its unit."""
    if text.strip().isdecimal() and int(text) < _SMALLEST:
        raise argparse.ArgumentTypeError(f"{text.strip()} would be bytes; do you mean {text.strip()}G?")
    return typed(parse_bytes)(text)


class Command(NamedTuple):
    """One command, or one action of a command."""

    name: str
    help: str
    """What it does, in a few words."""
    handler: Handler
    arguments: tuple[Argument, ...] = ()
    actions: tuple["Command", ...] = ()
    """Words that may follow; without one of them the handler is used."""
    connects: bool = True
    """Whether it needs the service."""


def description(command: Command) -> str:
    """What it does, as a sentence."""
    return f"{command.help[0].upper()}{command.help[1:]}."


COMMON = (
    argument("-H", "--host", help="the service of another machine, over ssh: [USER@]HOST[:PORT]", completes="host"),
    argument("--json", help="print JSON", action="store_true"),
)
"""What every command takes, before its name or after it."""


def add_to(parser: argparse.ArgumentParser, command: Command) -> None:
    """Teach a parser one command."""
    parser.set_defaults(command=command)
    for each in (*command.arguments, *COMMON):
        more = {"default": argparse.SUPPRESS, **each.settings} if each in COMMON else each.settings
        parser.add_argument(*each.names, help=each.help, **more)
    if command.actions:
        actions = parser.add_subparsers(metavar="ACTION")
        for action in command.actions:
            parsed = actions.add_parser(
                action.name, help=action.help, description=description(action), allow_abbrev=False
            )
            add_to(parsed, action)
