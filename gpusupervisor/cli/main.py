"""`gpusupervisorctl`: finds the command, connects where it needs that, and ends with the exit code."""

import argparse
import atexit
import gc
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from typing import NoReturn

from gpusupervisor import __version__
from gpusupervisor.cli import commands, exits
from gpusupervisor.cli.exits import CommandFailed
from gpusupervisor.cli.registry import COMMON, Command, add_to, description
from gpusupervisor.cli.session import Session
from gpusupervisor.cli.text import NEAREST, folded, text_encoding

DEFAULT = "status"
_WITH_VALUE = {name for each in COMMON if "action" not in each.settings for name in each.names}
_SHOWING = {"-h", "--help", "--version"}


class Parser(argparse.ArgumentParser):
    """Whose errors are folded as all other messages."""

    def error(self, message: str) -> NoReturn:
        """End with how it is used, and what is wrong."""
        self.print_usage(sys.stderr)
        self.exit(exits.WRONG_USE, f"{folded(f'{self.prog}: error: {message}', sys.stderr)}\n")


def parser(known: Iterable[Command]) -> argparse.ArgumentParser:
    """The command line, as far as these commands go."""
    codes = "".join(f"\n  {code:<5}{meaning}" for code, meaning in exits.MEANINGS.items())
    top = Parser(
        prog="gpusupervisorctl",
        description=f"See and control who holds the GPU's memory. Without a command: {DEFAULT}.",
        epilog=f"exit codes:{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=__version__)
    for each in COMMON:
        top.add_argument(*each.names, help=each.help, default=argparse.SUPPRESS, **each.settings)
    words = top.add_subparsers(metavar="COMMAND", required=True)
    for command in known:
        add_to(
            words.add_parser(command.name, help=command.help, description=description(command), allow_abbrev=False),
            command,
        )
    return top


def first_word(arguments: Sequence[str]) -> int | None:
    """Where the command stands among the arguments; None when there is none."""
    position = 0
    while position < len(arguments):
        word = arguments[position]
        if not word.startswith("-"):
            return position
        position += 2 if word in _WITH_VALUE else 1
    return None


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a run. Only the module of the command that is asked for is imported, where it is one."""
    given = list(arguments)
    if given[:1] == ["--version"]:
        return parser(()).parse_args(given)
    position = first_word(given)
    if position is None and not _SHOWING.intersection(given):
        given.append(DEFAULT)
        position = len(given) - 1
    word = "" if position is None else given[position]
    if word and not commands.is_known(word):
        parser(()).error(_unknown(word))
    given = _with_negative_values(given)
    known = [commands.load(word)] if commands.is_known(word) else commands.load_all()
    return parser(known).parse_args(given)


def _unknown(word: str) -> str:
    """The text for a command that does not exist."""
    meant = commands.nearest(word)
    return f"there is no command {word!r}" + (f"; do you mean {meant}?" if meant else "; gpusupervisorctl --help")


def _with_negative_values(given: Sequence[str]) -> list[str]:
    """Join "--size -8G" to "--size=-8G": argparse would take the value for an option and not say what is wrong."""
    joined: list[str] = []
    for word in given:
        if re.match(r"-\d", word) and joined and re.fullmatch(r"--[a-z-]+", joined[-1]):
            joined[-1] = f"{joined[-1]}={word}"
        else:
            joined.append(word)
    return joined


async def _run(options: argparse.Namespace) -> int:
    from asyncio import get_running_loop

    # A signal that comes right before the loop waits is heard at once only where the loop itself handles some signal.
    get_running_loop().add_signal_handler(signal.SIGWINCH, lambda: None)
    command: Command = options.command
    if not command.connects:
        return await command.handler(Session(options)) or exits.DONE
    from gpusupervisor.cli.client import Client

    async with Client(getattr(options, "host", "")) as client:
        return await command.handler(Session(options, client)) or exits.DONE


def main() -> None:
    """Entry point."""
    gc.set_threshold(100_000)  # what is imported stays: looking through it took a tenth of the start,
    atexit.register(gc.freeze)  # and at the interpreter's end as much again
    if sys.argv[1:2] == ["complete"]:  # what shells call, and no person
        from gpusupervisor.cli.completion import answer

        answer.main(sys.argv[2:])
        return
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding=text_encoding(), errors=NEAREST)
    try:
        options = parse(sys.argv[1:])
        import asyncio  # once the command line is understood

        code = asyncio.run(_run(options))
        sys.stdout.flush()
    except CommandFailed as failure:
        if str(failure):
            print(folded(failure, sys.stderr), file=sys.stderr)
        code = failure.exit_code
    except KeyboardInterrupt:
        code = exits.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's end fails once more
        code = exits.FAILED
    sys.exit(code)


if __name__ == "__main__":
    main()
