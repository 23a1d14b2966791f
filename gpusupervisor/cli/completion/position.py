"""Where in the command line a word stands, and so what it may be. Pure; all from the declarations of the commands."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gpusupervisor.cli import commands
from gpusupervisor.cli.registry import COMMON, Argument, Command, Completes, argument

HELP = argument("-h", "--help", help="show a short help", action="help")
VERSION = argument("--version", help="show the version", action="version")


class Candidate(NamedTuple):
    """A word that may stand there."""

    value: str
    about: str = ""


class Expected(NamedTuple):
    """What may stand at a place: these words, and names of a kind that is asked of the service or the shell."""

    words: tuple[Candidate, ...] = ()
    names: Completes = ""
    engine: str = ""
    """Whose models are meant, where that was said before."""
    prefix: str = ""
    """Stands before each: "--gpu=" where an option and its value are one word."""


class _Place:
    """What was said so far."""

    def __init__(self) -> None:
        self.command: Command | None = None
        self.given: list[str] = []
        """Positional arguments."""
        self.pending: Argument | None = None
        """An option whose value comes next."""
        self.engine = ""
        self.elsewhere = False
        """Another machine is meant."""
        self.only_arguments = False
        """After "--"."""

    @property
    def options(self) -> tuple[Argument, ...]:
        """Options that may stand here."""
        own = self.command.arguments if self.command else (VERSION,)
        return (*(each for each in own if each.names[0].startswith("-")), *COMMON, HELP)

    @property
    def next_argument(self) -> Argument | None:
        """The positional argument that comes next."""
        own = [each for each in (self.command.arguments if self.command else ()) if not each.names[0].startswith("-")]
        if len(self.given) < len(own):
            return own[len(self.given)]
        return own[-1] if own and own[-1].settings.get("nargs") in ("*", "+") else None


def expected(words: Sequence[str]) -> Expected:
    """What the last of the words may be; the others stand before it, without the program's name."""
    *before, current = words
    place = _Place()
    for word in before:
        if not _take(place, word):
            return Expected()
    if place.pending:
        return _value_of(place.pending, place)
    if current.startswith("-") and not place.only_arguments:
        name, equals, _ = current.partition("=")
        if equals:
            option = _option(place, name)
            return _value_of(option, place, f"{name}=") if option and _takes_value(option) else Expected()
        return Expected(tuple(Candidate(name, each.help) for each in place.options for name in each.names))
    if place.command is None:
        return Expected(tuple(_of(commands.load_all())))
    actions = () if place.given else place.command.actions
    argument = place.next_argument
    found = _value_of(argument, place) if argument else Expected()
    return Expected((*_of(actions), *found.words), found.names, found.engine)


def _of(found: Iterable[Command]) -> Iterator[Candidate]:
    return (Candidate(each.name, each.help) for each in found)


def _take(place: _Place, word: str) -> bool:
    """Read one word that was said; False when nothing can be told after it."""
    if place.pending:
        _remember(place, place.pending, word)
        place.pending = None
    elif word == "--":
        place.only_arguments = True
    elif word.startswith("-") and word != "-" and not place.only_arguments:
        _take_option(place, word)
    elif place.command is None:
        if not commands.is_known(word):
            return False
        place.command = commands.load(word)
    else:
        action = next((each for each in place.command.actions if each.name == word and not place.given), None)
        argument = place.next_argument
        if action:
            place.command = action
        elif argument is None:
            return False
        else:
            _remember(place, argument, word)
            place.given.append(word)
    return True


def _take_option(place: _Place, word: str) -> None:
    name, equals, value = word.partition("=")
    option = _option(place, name) or _option(place, word[:2])
    if option and _takes_value(option):
        if word in option.names:
            place.pending = option
        else:
            _remember(place, option, value if equals else word[2:])


def _option(place: _Place, name: str) -> Argument | None:
    return next((each for each in place.options if name in each.names), None)


def _takes_value(option: Argument) -> bool:
    return "action" not in option.settings


def _remember(place: _Place, argument: Argument, value: str) -> None:
    if argument.completes == "engine":
        place.engine = value
    elif argument.completes == "host":
        place.elsewhere = True


def _value_of(argument: Argument, place: _Place, prefix: str = "") -> Expected:
    if choices := argument.settings.get("choices"):
        return Expected(tuple(Candidate(str(each)) for each in choices), prefix=prefix)
    asked_of_the_service = argument.completes not in ("", "file", "host")
    if asked_of_the_service and place.elsewhere:
        return Expected()
    return Expected((), argument.completes, place.engine if argument.completes == "model" else "", prefix)
