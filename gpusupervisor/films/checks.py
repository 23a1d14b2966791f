"""Checking what a film's line says, key by key; every error names line, key and what is allowed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from gpusupervisor.clock import MICROSECONDS
from gpusupervisor.foreign_text import harmless
from gpusupervisor.quantities import parse_bytes, parse_duration

T = TypeVar("T")
F = TypeVar("F")
S = TypeVar("S", bound=str)


class FilmError(Exception):
    """A film that cannot be used; the text says where and why."""


class Unfit(ValueError):  # noqa: N818  (read as a verdict)
    """A value that is not allowed; the text says what is."""


class Line:
    """One table of a line, taken apart key by key."""

    def __init__(self, table: Mapping[str, object], number: int, path: str = "") -> None:
        self._left = dict(table)
        self._known: list[str] = []
        self._path = path
        self.number = number

    def fault(self, key: str, message: str) -> FilmError:
        """The error to raise for a key."""
        name = harmless(f"{self._path}.{key}" if self._path else key, 120)
        return FilmError(f"line {self.number}: {name}: {message}")

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        return key in self._left

    def take(self, key: str, read: Callable[[object], T], fallback: F) -> T | F:
        """The value of a key as `read` understands it (ValueError: not allowed)."""
        self._known.append(key)
        if key not in self._left:
            return fallback
        try:
            return read(self._left.pop(key))
        except ValueError as error:
            raise self.fault(key, str(error)) from None

    def end(self) -> None:
        """Raise FilmError for keys that nobody has taken."""
        if self._left:
            allowed = ", ".join(sorted(set(self._known)))
            raise self.fault(sorted(self._left)[0], f"is no key here; allowed: {allowed}")


Table = Mapping[str, object]
NOTHING: Table = {}


def table(value: object) -> Table:
    """A JSON object."""
    if not isinstance(value, dict):
        raise Unfit(f"is {_shown(value)}; allowed: an object, e.g. {{}}")
    return value


def text(value: object) -> str:
    """A string."""
    if not isinstance(value, str):
        raise Unfit(f"is {_shown(value)}; allowed: a string")
    return value


def flag(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise Unfit(f"is {_shown(value)}; allowed: true, false")
    return value


def number(value: object) -> float:
    """A number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e15:
        raise Unfit(f"is {_shown(value)}; allowed: a number from 0 on")
    return value


def whole(value: object) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unfit(f"is {_shown(value)}; allowed: a whole number from 0 on")
    return value


def size(value: object) -> int:
    """Bytes, as a number or as "13G"."""
    if isinstance(value, str):
        return parse_bytes(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Unfit(f'is {_shown(value)}; allowed: bytes, or a size such as "13G"')
    return value


def time(value: object) -> int:
    """Microseconds, of seconds as a number or of a text such as "1min 30s"."""
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise Unfit(f'is {_shown(value)}; allowed: seconds, or a time such as "1min 30s"')
    return round(value * MICROSECONDS)


def texts(value: object) -> tuple[str, ...]:
    """A list of strings."""
    if not isinstance(value, list):
        raise Unfit(f"is {_shown(value)}; allowed: a list of strings")
    return tuple(text(each) for each in value)


def one_of(allowed: Sequence[S]) -> Callable[[object], S]:
    """One of these strings."""

    def read(value: object) -> S:
        for each in allowed:
            if value == each:
                return each
        raise Unfit(f"is {_shown(value)}; allowed: {', '.join(allowed)}")

    return read


def words(names: Iterable[str]) -> str:
    """A list for a person."""
    return ", ".join(sorted(names))


def _shown(value: object) -> str:
    return harmless(repr(value), 60)
